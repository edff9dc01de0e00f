import { TranslationBundle } from '@jupyterlab/translation';
import { CommandRegistry } from '@lumino/commands';

const OPEN_COMMAND = 'docmanager:open';

/**
 * Open a file in the page, and return what shows it.
 *
 * Rejects with what to do instead where the page has no such command.
 */
export async function openDocument(
  commands: CommandRegistry,
  path: string,
  trans: TranslationBundle
): Promise<unknown> {
  if (!commands.hasCommand(OPEN_COMMAND)) {
    throw new Error(
      trans.__(
        '%1 cannot be opened: command %2 is not available on this page. Open the file in the file browser.',
        path,
        OPEN_COMMAND
      )
    );
  }
  return commands.execute(OPEN_COMMAND, { path });
}
