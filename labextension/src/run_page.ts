import { MainAreaWidget } from '@jupyterlab/apputils';
import { ServerConnection } from '@jupyterlab/services';
import { TranslationBundle } from '@jupyterlab/translation';
import { folderIcon, linkIcon, notebookIcon } from '@jupyterlab/ui-components';
import { Message } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';

import { Actions } from './actions';
import { IRun } from './messages';
import { pageAddress, sentence, toolbarButton } from './pages';
import { request } from './requests';
import { IKeptChoices, RunModel } from './run_model';

/** The browser part of the live view, as anywidget knows it. */
interface IViewPart {
  initialize(context: { model: RunModel }): () => void;
  render(context: { model: RunModel; el: HTMLElement }): () => void;
}

/** The page of one run: its live view, without a kernel. */
export class RunPage extends Widget {
  constructor(
    private _runId: string,
    private _settings: ServerConnection.ISettings,
    private _actions: Actions,
    private _trans: TranslationBundle,
    choices: IKeptChoices,
    private _tab: () => MainAreaWidget<RunPage>
  ) {
    super();
    this.addClass('nbk-page');
    this.node.tabIndex = -1;
    this._model = new RunModel(
      _settings,
      _runId,
      () => (this._run ? _actions.refusal(this._run.own) : null),
      _trans,
      choices,
      true
    );
    this._model.onGone = why => this._say(why);
    this._model.connectionChanged.connect(() => this._sayConnection());
    void this._build();
  }

  override dispose(): void {
    if (!this.isDisposed) {
      this._close();
      this._model.dispose();
      super.dispose();
    }
  }

  /** Draw other runs in the same charts. */
  compare(runs: string[]): void {
    this._model.compare(runs);
  }

  protected override onActivateRequest(message: Message): void {
    super.onActivateRequest(message);
    this.node.focus();
    this._tryAgain();
  }

  private async _build(): Promise<void> {
    const trans = this._trans;
    this._hasFailed = false;
    try {
      const { part, style } = await viewPart(this._settings);
      if (this.isDisposed) {
        return;
      }
      const sheet = document.createElement('style');
      sheet.textContent = style;
      this.node.replaceChildren(sheet);
      this._parts = [
        part.initialize({ model: this._model }),
        part.render({ model: this._model, el: this.node })
      ];
    } catch (error) {
      this._say(
        trans.__('The page was not loaded: %1', (error as Error).message)
      );
      return;
    }
    if (this._run) {
      return; // the tab has its name and its buttons
    }
    try {
      const path = `runs/${encodeURIComponent(this._runId)}`;
      this._run = await request<IRun>(this._settings, path);
      if (!this.isDisposed) {
        this._equip(this._run);
      }
    } catch {
      // The view says why the run cannot be shown.
    }
  }

  /** Name the tab, and put what opens other things of the run into its toolbar. */
  private _equip(run: IRun): void {
    const trans = this._trans;
    const { title, toolbar } = this._tab();
    title.label = run.name ?? run.run_id;
    title.caption = `${title.label}\n${run.run_id}`;
    toolbar.addItem(
      'link',
      toolbarButton(linkIcon, trans.__('Copy Link'), () => {
        void this._actions.copyPath(pageAddress('run', run.run_id));
      })
    );
    const { notebook, folder } = run;
    if (notebook !== null) {
      toolbar.addItem(
        'notebook',
        toolbarButton(notebookIcon, trans.__('Open Notebook'), () => {
          void this._actions.openNotebook(notebook);
        })
      );
    }
    if (folder !== null && this._actions.canOpenFolder()) {
      toolbar.addItem(
        'folder',
        toolbarButton(folderIcon, trans.__('Open Folder'), () => {
          void this._actions.openFolder(folder);
        })
      );
    }
  }

  private _sayConnection(): void {
    const trans = this._trans;
    switch (this._model.connection) {
      case 'blocked':
        this._say(
          trans.__(
            'A proxy in front of the Jupyter server blocks WebSockets, which this page needs. It must forward the headers Upgrade, Connection and Host.'
          )
        );
        break;
      case 'missing':
        this._say(
          trans.__(
            'nbkit is not enabled on the Jupyter server. In the server’s environment, run “jupyter server extension enable nbkit.server”, then restart the server.'
          )
        );
        break;
      case 'forbidden':
        this._say(
          trans.__(
            'The server denied access to nbkit. Log in again, or ask the administrator for access.'
          )
        );
        break;
    }
  }

  /** Show a sentence in the place of the view, until a user tries again. */
  private _say(words: string): void {
    const trans = this._trans;
    this._close();
    this._hasFailed = true;
    const again = document.createElement('button');
    again.className = 'nbk-button';
    again.textContent = trans.__('Try Again');
    again.onclick = () => this._tryAgain();
    const page = sentence(trans.__('Run %1', this._runId), words);
    page.append(again);
    this.node.replaceChildren(page);
  }

  private _tryAgain(): void {
    if (this._hasFailed) {
      void this._build();
    }
  }

  private _close(): void {
    this._parts.forEach(end => end());
    this._parts = [];
  }

  private _model: RunModel;
  private _run: IRun | null = null;
  private _hasFailed = false;
  private _parts: (() => void)[] = [];
}

let loaded: Promise<{ part: IViewPart; style: string }> | null = null;

/** Load what draws a view, once: the server has the same as a notebook's kernel. */
function viewPart(settings: ServerConnection.ISettings) {
  loaded ??= load(settings);
  loaded.catch(() => {
    loaded = null; // the next page tries again
  });
  return loaded;
}

async function load(settings: ServerConnection.ISettings) {
  const { module, style } = await request<{ module: string; style: string }>(
    settings,
    'view'
  );
  const blob = new Blob([module], { type: 'text/javascript' });
  const url = URL.createObjectURL(blob);
  try {
    const imported = await import(/* webpackIgnore: true */ url);
    return { part: imported.default as IViewPart, style };
  } finally {
    URL.revokeObjectURL(url);
  }
}
