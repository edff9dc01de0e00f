import { ILabShell } from '@jupyterlab/application';
import { MainAreaWidget } from '@jupyterlab/apputils';
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import { TranslationBundle } from '@jupyterlab/translation';
import { IFrame } from '@jupyterlab/ui-components';
import { Poll } from '@lumino/polling';

import { tensorBoardIcon } from './icons';
import { IRun } from './messages';
import { request } from './requests';

/** What the server answers once a run's TensorBoard is there. */
interface IOpened {
  /** Below the server's base URL. */
  path: string;
  /** Whether there was none before. */
  started: boolean;
  /** It ends when nobody has asked for it for so long. */
  idle_seconds: number;
}

/** A page that is seen again after its TensorBoard has ended waits at most so long. */
const LONGEST_WAIT_SECONDS = 30;

/** Of a page of this server, as TensorBoard's is. */
const ALLOWED: IFrame.SandboxExceptions[] = [
  'allow-downloads',
  'allow-forms',
  'allow-modals',
  'allow-popups',
  'allow-same-origin',
  'allow-scripts'
];

/** TensorBoards of single runs: a tab of Lab each, or of the browser where Lab is not. */
export class TensorBoards {
  constructor(
    private _shell: ILabShell | null,
    private _settings: ServerConnection.ISettings,
    private _trans: TranslationBundle
  ) {}

  /**
   * Show a run's curves.
   *
   * Rejects with what the server said if there is no TensorBoard.
   */
  async open(run: IRun): Promise<void> {
    const shell = this._shell;
    if (shell === null) {
      await this._openInBrowser(run);
      return;
    }
    const tab = this._tabs.get(run.run_id);
    if (!tab) {
      await this._addTab(run, shell);
      return;
    }
    shell.activateById(tab.id);
    if (tab.isRevealed) {
      await this._renew(run, tab);
    }
  }

  /** Start a TensorBoard that has ended, of which a tab has the page. */
  private async _renew(run: IRun, tab: MainAreaWidget<IFrame>): Promise<void> {
    const { url, started } = await this._start(run);
    if (started && !tab.isDisposed) {
      tab.content.url = url;
    }
  }

  /** Keep the TensorBoard of a tab as long as the tab is seen. */
  private _keep(
    run: IRun,
    tab: MainAreaWidget<IFrame>,
    idleSeconds: number
  ): void {
    const seconds = Math.min(LONGEST_WAIT_SECONDS, idleSeconds / 3);
    const poll = new Poll({
      name: tab.id,
      factory: () => this._renew(run, tab),
      frequency: { interval: 1000 * seconds },
      standby: () => document.hidden || !tab.isVisible
    });
    tab.disposed.connect(() => poll.dispose());
  }

  private async _addTab(run: IRun, shell: ILabShell): Promise<void> {
    const content = new IFrame({ sandbox: ALLOWED });
    const label = this._trans.__('TensorBoard: %1', run.name ?? run.run_id);
    content.node.querySelector('iframe')!.title = label;
    const starting = this._start(run);
    // A tab without content closes itself.
    const reveal = starting.then(
      ({ url }) => {
        content.url = url;
      },
      () => content.dispose()
    );
    const tab = new MainAreaWidget({ content, reveal });
    tab.id = `nbkit-tensorboard-${run.run_id}`;
    tab.title.label = label;
    tab.title.caption = `${label}\n${run.run_id}`;
    tab.title.icon = tensorBoardIcon;
    tab.toolbar.hide();
    this._tabs.set(run.run_id, tab);
    tab.disposed.connect(() => this._tabs.delete(run.run_id));
    shell.add(tab, 'main', { type: 'TensorBoard' });
    shell.activateById(tab.id);
    const { idleSeconds } = await starting;
    if (!tab.isDisposed) {
      this._keep(run, tab, idleSeconds);
    }
  }

  private async _openInBrowser(run: IRun): Promise<void> {
    // Only while it handles the click may a page open another.
    const page = window.open('', `nbkit-tensorboard-${run.run_id}`);
    if (page === null) {
      const message = this._trans.__(
        'The browser opens no other tab from this page; allow pop-ups for it.'
      );
      throw new Error(message);
    }
    // By its name it may be a tab that the visitor has already.
    const isNew = isBlank(page);
    try {
      const { url, started } = await this._start(run);
      if (isNew || started) {
        page.location.replace(url);
      }
    } catch (error) {
      if (isNew) {
        page.close();
      }
      throw error;
    }
  }

  private async _start(run: IRun): Promise<{
    url: string;
    started: boolean;
    idleSeconds: number;
  }> {
    const id = encodeURIComponent(run.run_id);
    const { path, started, idle_seconds } = await request<IOpened>(
      this._settings,
      `runs/${id}/tensorboard`,
      {}
    );
    const url = URLExt.join(this._settings.baseUrl, path);
    return { url, started, idleSeconds: idle_seconds };
  }

  private _tabs = new Map<string, MainAreaWidget<IFrame>>();
}

function isBlank(page: Window): boolean {
  try {
    return page.location.href === 'about:blank';
  } catch {
    return false; // The page of another site does not tell.
  }
}
