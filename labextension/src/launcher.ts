import {
  Dialog,
  Notification,
  showDialog,
  showErrorMessage
} from '@jupyterlab/apputils';
import { PathExt } from '@jupyterlab/coreutils';
import { ILauncher } from '@jupyterlab/launcher';
import { ServerConnection, ServiceManager } from '@jupyterlab/services';
import { TranslationBundle } from '@jupyterlab/translation';
import { CommandRegistry } from '@lumino/commands';

import { openDocument } from './documents';
import { notebookIconOf } from './icons';
import { request, RequestError } from './requests';

/** A canonical notebook, which users copy. */
interface ICanonicalNotebook {
  name: string;
  /** What its tile says: its subject, and what it measures. */
  title: string;
  description: string;
}

export const COPY_COMMAND = 'nbkit:copy-notebook';

const FIRST_WAIT_SECONDS = 5;
const LONGEST_WAIT_SECONDS = 300;

/**
 * Add a tile for every canonical notebook, and the command that they run.
 *
 * Do not await this during startup: it returns after the server lists its notebooks.
 */
export async function addNotebooks(
  commands: CommandRegistry,
  launcher: ILauncher | null,
  services: ServiceManager.IManager,
  currentFolder: () => string,
  trans: TranslationBundle
): Promise<ICanonicalNotebook[]> {
  const settings = services.serverSettings;
  const notebooks = await listNotebooks(settings);
  const find = (name: unknown) =>
    notebooks.find(notebook => notebook.name === name);
  commands.addCommand(COPY_COMMAND, {
    label: args => {
      const notebook = find(args.name);
      return args.isPalette && notebook
        ? trans.__('New from nbkit: %1', notebook.title)
        : (notebook?.title ?? trans.__('Notebook'));
    },
    caption: args => {
      const notebook = find(args.name);
      return notebook
        ? `${notebook.title}\n${notebook.description}`.trim()
        : trans.__('Copy an nbkit notebook into the current folder');
    },
    icon: args => (args.isPalette ? undefined : notebookIconOf(args.name)),
    execute: async args => {
      const name = String(args.name);
      // Lab's paths may begin with the name of a drive; the server's do not.
      const folder = services.contents.localPath(
        String(args.cwd ?? currentFolder())
      );
      let copy: { path: string };
      try {
        copy = await request<{ path: string }>(
          settings,
          `notebooks/${encodeURIComponent(name)}`,
          { folder }
        );
      } catch (error) {
        await explain(error as Error, trans);
        return;
      }
      if (PathExt.dirname(copy.path) !== folder.replace(/^\/|\/$/g, '')) {
        Notification.info(
          trans.__(
            'Copied to /%1: the folder /%2 is read-only or contains the original.',
            copy.path,
            folder
          ),
          { autoClose: 10_000 }
        );
      }
      try {
        return await openDocument(commands, copy.path, trans);
      } catch (error) {
        const title = trans.__('The notebook was copied but did not open');
        await showErrorMessage(title, error as Error);
      }
    }
  });
  notebooks.forEach((notebook, rank) => {
    launcher?.add({
      command: COPY_COMMAND,
      args: { name: notebook.name },
      category: 'nbkit',
      // Below Notebook (0), above Console (20).
      categoryRank: 10,
      rank
    });
  });
  return notebooks;
}

/** Ask until there is an answer; without the extension, the panel says why. */
async function listNotebooks(
  settings: ServerConnection.ISettings
): Promise<ICanonicalNotebook[]> {
  let wait = FIRST_WAIT_SECONDS;
  for (;;) {
    try {
      const answer = await request<{ notebooks: ICanonicalNotebook[] }>(
        settings,
        'notebooks'
      );
      return answer.notebooks;
    } catch (error) {
      if (wait === FIRST_WAIT_SECONDS) {
        console.warn('nbkit: the launcher tiles are not available yet', error);
      }
    }
    await new Promise(resolve => window.setTimeout(resolve, 1000 * wait));
    wait = Math.min(LONGEST_WAIT_SECONDS, 2 * wait);
  }
}

async function explain(error: Error, trans: TranslationBundle): Promise<void> {
  if (error instanceof RequestError && error.status === 403) {
    await showDialog({
      title: trans.__('The notebook was not copied'),
      body: error.message,
      buttons: [Dialog.okButton({ label: trans.__('OK') })]
    });
  } else {
    await showErrorMessage(trans.__('The notebook was not copied'), error);
  }
}
