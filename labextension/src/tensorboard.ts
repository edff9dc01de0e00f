import { ILabShell } from '@jupyterlab/application';
import {
  MainAreaWidget,
  Notification,
  WidgetTracker
} from '@jupyterlab/apputils';
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import { TranslationBundle } from '@jupyterlab/translation';
import { IFrame, launchIcon } from '@jupyterlab/ui-components';
import {
  ReadonlyJSONObject,
  ReadonlyPartialJSONObject
} from '@lumino/coreutils';
import { Poll } from '@lumino/polling';

import { tensorBoardIcon } from './icons';
import { IRun } from './messages';
import { toolbarButton } from './pages';
import { request } from './requests';

/** What has to be known of a run to show its curves. */
export type ICurvesRun = Pick<
  IRun,
  'run_id' | 'name' | 'folder' | 'folder_path'
>;

/** What a TensorBoard shows. */
export interface ICurves {
  /** Its unique key. */
  key: string;
  /** Where to ask for it, below nbkit's API. */
  request: string;
  /** What a person reads on its tab. */
  label: string;
  /** The run, if it is of a single one. */
  run: ICurvesRun | null;
}

export interface IStudy {
  study_id: string;
  /** Null if the study has no name. */
  name: string | null;
}

/** The curves of one run. */
export function oneRun(run: ICurvesRun, trans: TranslationBundle): ICurves {
  return {
    key: run.run_id,
    request: `runs/${encodeURIComponent(run.run_id)}/tensorboard`,
    label: trans.__('TensorBoard: %1', run.name ?? run.run_id),
    run
  };
}

/** The curves of a study's runs. */
export function ofStudy(study: IStudy, trans: TranslationBundle): ICurves {
  const { study_id, name } = study;
  return {
    key: `${STUDY}${study_id}`,
    request: `studies/${encodeURIComponent(study_id)}/tensorboard`,
    label: trans.__('TensorBoard: study %1', name ?? study_id),
    run: null
  };
}

/** The curves of the newest runs of the store. */
export function allRuns(trans: TranslationBundle): ICurves {
  return {
    key: ALL,
    request: 'tensorboard',
    label: trans.__('TensorBoard: all runs'),
    run: null
  };
}

/** Where TensorBoard keeps what a reader has set, in the storage of its pages. */
const READERS_SETTINGS = '_tb_global_settings';

const ALL = 'all-runs';
const STUDY = 'study-';

/** The curves of a tab that was there before the page was loaded again. */
function ofKey(key: string, label: string, trans: TranslationBundle): ICurves {
  const study_id = key.startsWith(STUDY) ? key.slice(STUDY.length) : null;
  const curves =
    key === ALL
      ? allRuns(trans)
      : study_id !== null
        ? ofStudy({ study_id, name: null }, trans)
        : oneRun(
            { run_id: key, name: null, folder: null, folder_path: '' },
            trans
          );
  return { ...curves, label, run: null };
}

/** What the server answers once a TensorBoard is there. */
interface IOpened {
  /** Below the server's base URL. */
  path: string;
  /** Whether there was none before. */
  started: boolean;
  /** It ends after this time without a request. */
  idle_seconds: number;
  /** Of several runs: how many it shows. */
  shown?: number;
  /** Of several runs: how many there are. */
  total?: number;
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

/** A page of the server as TensorBoard's are, and its title. */
const FRAME = 'nbkit/tensorboard/frame';
const FRAME_TITLE = 'nbkit';
const FRAME_WITHIN_MILLISECONDS = 10_000;
const RETRIED_WITHIN_MILLISECONDS = 1_000;

/** TensorBoards: a tab of Lab each, or of the browser where Lab is not. */
export class TensorBoards {
  constructor(
    private _shell: ILabShell | null,
    private _settings: ServerConnection.ISettings,
    private _trans: TranslationBundle
  ) {}

  /**
   * Show curves.
   *
   * Rejects with the server's message if TensorBoard cannot be started.
   */
  async open(curves: ICurves): Promise<void> {
    const shell = this._shell;
    if (shell === null || !(await this._mayBeFramed())) {
      await this._openInBrowser(curves);
      return;
    }
    const tab = this._tabs.get(curves.key);
    if (!tab) {
      await this._addTab(curves, shell);
      return;
    }
    shell.activateById(tab.id);
    if (tab.isRevealed) {
      await this._renew(curves, tab);
    }
  }

  /** The tabs, which Lab brings back where its page is loaded again. */
  readonly tabs = new WidgetTracker<MainAreaWidget<IFrame>>({
    namespace: 'nbkit-tensorboard'
  });

  /** What brings a tab back. */
  argumentsOf(tab: MainAreaWidget<IFrame>): ReadonlyJSONObject {
    return { key: this._keys.get(tab) ?? '', label: tab.title.label };
  }

  /** Bring a tab back; Lab does not wait for its TensorBoard. */
  bringBack({ key, label }: ReadonlyPartialJSONObject): void {
    const shell = this._shell;
    if (shell && typeof key === 'string' && key) {
      const curves = ofKey(key, String(label), this._trans);
      this._mayBeFramed()
        .then(async isFramed => {
          if (isFramed && !this._tabs.has(key)) {
            await this._addTab(curves, shell);
          }
        })
        .catch(error => {
          console.warn(`nbkit: ${curves.label} was not restored`, error);
        });
    }
  }

  /**
   * Try whether frames are allowed, before anything is opened.
   *
   * Only for a few seconds after a click may a page open a tab of the browser.
   */
  prepare(): void {
    if (this._shell !== null) {
      void this._mayBeFramed();
    }
  }

  /** Whether Lab's page may show TensorBoard's in a frame; tried until it may. */
  private _mayBeFramed(): Promise<boolean> {
    if (!this._isFramed) {
      this._isFramed = isShown(
        URLExt.join(this._settings.baseUrl, FRAME),
        this._frameWithin
      );
      void this._isFramed.then(isFramed => {
        // A fault of the network looks like a header that forbids it.
        this._isFramed = isFramed ? this._isFramed : null;
        this._frameWithin = RETRIED_WITHIN_MILLISECONDS;
      });
    }
    return this._isFramed;
  }

  /** Start a TensorBoard that has ended, of which a tab has the page. */
  private async _renew(
    curves: ICurves,
    tab: MainAreaWidget<IFrame>,
    keep = {}
  ): Promise<void> {
    const { url, started } = await this._start(curves, keep);
    if (started && !tab.isDisposed) {
      tab.content.url = url;
    }
  }

  /** Keep the TensorBoard of a tab as long as the tab is seen. */
  private _keep(
    curves: ICurves,
    tab: MainAreaWidget<IFrame>,
    idleSeconds: number
  ): void {
    const seconds = Math.min(LONGEST_WAIT_SECONDS, idleSeconds / 3);
    const poll = new Poll({
      name: tab.id,
      // All runs of a store take long to find: the server does so once a minute.
      factory: () => this._renew(curves, tab, { keep: true }),
      frequency: { interval: 1000 * seconds },
      standby: () => document.hidden || !tab.isVisible
    });
    tab.disposed.connect(() => poll.dispose());
  }

  private async _addTab(curves: ICurves, shell: ILabShell): Promise<void> {
    const content = new IFrame({ sandbox: ALLOWED });
    const { label } = curves;
    // Lab may come to have another element there.
    const frame = content.node.querySelector('iframe') ?? content.node;
    frame.title = label;
    const starting = this._start(curves);
    // A tab without content closes itself.
    const reveal = starting.then(
      ({ url }) => {
        content.url = url;
      },
      () => content.dispose()
    );
    const tab = new MainAreaWidget({ content, reveal });
    tab.id = `nbkit-tensorboard-${curves.key}`;
    tab.title.label = label;
    tab.title.caption = `${label}\n${curves.key}`;
    tab.title.icon = tensorBoardIcon;
    // A proxy may forbid frames for some pages of the server only.
    tab.toolbar.addItem(
      'browser',
      toolbarButton(launchIcon, this._trans.__('Open in Browser Tab'), () => {
        this._openInBrowser(curves).catch(error => {
          Notification.error((error as Error).message);
        });
      })
    );
    this._tabs.set(curves.key, tab);
    this._keys.set(tab, curves.key);
    void this.tabs.add(tab);
    tab.disposed.connect(() => this._tabs.delete(curves.key));
    shell.add(tab, 'main', { type: 'TensorBoard' });
    shell.activateById(tab.id);
    const { idleSeconds, note } = await starting;
    if (!tab.isDisposed) {
      this._say(note);
      this._keep(curves, tab, idleSeconds);
    }
  }

  private async _openInBrowser(curves: ICurves): Promise<void> {
    // Only while it handles the click may a page open another.
    const page = window.open('', `nbkit-tensorboard-${curves.key}`);
    if (page === null) {
      const message = this._trans.__(
        'The browser blocked the new tab. Allow pop-ups for this page.'
      );
      throw new Error(message);
    }
    // The name may belong to a tab that is already open.
    const isNew = isBlank(page);
    try {
      const { url, started, note } = await this._start(curves);
      if (isNew || started) {
        page.location.replace(url);
        this._say(note);
      }
    } catch (error) {
      if (isNew) {
        page.close();
      }
      throw error;
    }
  }

  /** Show which runs are omitted. */
  private _say(note: string | null): void {
    if (note !== null) {
      Notification.info(note, { autoClose: 10_000 });
    }
  }

  private async _start(
    curves: ICurves,
    keep = {}
  ): Promise<{
    url: string;
    started: boolean;
    idleSeconds: number;
    note: string | null;
  }> {
    const { path, started, idle_seconds, shown, total } =
      await request<IOpened>(this._settings, curves.request, keep);
    const url = URLExt.join(this._settings.baseUrl, path);
    foldSettings();
    const note =
      shown !== undefined && total !== undefined && shown < total
        ? this._trans.__(
            'TensorBoard shows %1 of %2 runs: the newest with curves, at most 100.',
            shown,
            total
          )
        : null;
    return { url, started, idleSeconds: idle_seconds, note };
  }

  private _isFramed: Promise<boolean> | null = null;
  private _frameWithin = FRAME_WITHIN_MILLISECONDS;
  private _tabs = new Map<string, MainAreaWidget<IFrame>>();
  private _keys = new WeakMap<MainAreaWidget<IFrame>, string>();
}

/** Let the settings of TensorBoard, a third of a tab, be folded until a reader's choice. */
function foldSettings(): void {
  if (localStorage.getItem(READERS_SETTINGS) === null) {
    const settings = JSON.stringify({ timeSeriesSettingsPaneOpened: false });
    localStorage.setItem(READERS_SETTINGS, settings);
  }
}

/**
 * Whether a frame shows a page.
 *
 * Tried, since not only the server's own headers may forbid it: a hub's, those that a
 * proxy adds, and the policy of Lab's page itself.
 */
function isShown(url: string, withinMilliseconds: number): Promise<boolean> {
  const frame = document.createElement('iframe');
  frame.setAttribute('sandbox', 'allow-same-origin');
  frame.hidden = true;
  frame.src = url;
  return new Promise(resolve => {
    const settle = () => {
      resolve(frame.contentDocument?.title === FRAME_TITLE);
      frame.remove();
    };
    frame.onload = settle;
    // Not every browser loads something in its place.
    setTimeout(settle, withinMilliseconds);
    document.body.append(frame);
  });
}

function isBlank(page: Window): boolean {
  try {
    return page.location.href === 'about:blank';
  } catch {
    return false; // The page of another site hides its address.
  }
}
