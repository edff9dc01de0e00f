import { ServerConnection } from '@jupyterlab/services';
import { TranslationBundle } from '@jupyterlab/translation';
import { JSONObject } from '@lumino/coreutils';

import { request } from './requests';
import { IRun } from './messages';
import { Connection, Stream } from './stream';

/** What a view and the server say to each other, by the `kind` of it. */
interface IViewMessage {
  kind: string;
  [field: string]: unknown;
}

const FOLLOWED_UNSEEN_MILLISECONDS = 30_000;

type Listener = (message: IViewMessage) => void;

/** What a live view needs of a page: see nbkit/live/static/view.js. */
export interface IViewWords {
  connecting: string;
  unanswered: string;
  restarted: string;
  silence: (since: string) => string;
  busy: () => string;
}

/** What a reader has chosen of the charts, on whichever page. */
export interface IKeptChoices {
  get: () => JSONObject;
  set: (choices: JSONObject) => void;
}

/**
 * What feeds a live view: the server, as a notebook's view is fed by its kernel.
 *
 * The view sends `open`, `log`, `here` and `close`, and asks for deeds; each new
 * connection begins with what it has last asked to see.
 */
export class RunModel {
  constructor(
    private _settings: ServerConnection.ISettings,
    private _runId: string,
    private _refusal: () => string | null,
    private _trans: TranslationBundle,
    private _choices: IKeptChoices,
    private _isPage: boolean
  ) {
    const path = `runs/${encodeURIComponent(_runId)}/view`;
    this._stream = new Stream<IViewMessage>(_settings, path, () => '');
    this._stream.opened.connect(() => {
      if (this._wish) {
        this._stream.send({ ...this._wish, kind: 'open' });
      }
    });
    this._stream.received.connect((_, message) => this._tell(message));
  }

  /** Why the run cannot be shown, for now or for good, once the server has said so. */
  onGone: (why: string) => void = () => undefined;

  get connection(): Connection {
    return this._stream.connection;
  }

  get connectionChanged() {
    return this._stream.connectionChanged;
  }

  /** Follow the run while the view is seen, and for a short look at another tab. */
  follow(isSeen: boolean): void {
    if (isSeen === this._isSeen) {
      return; // A view says so every second, and must not hasten the next attempt.
    }
    this._isSeen = isSeen;
    if (isSeen) {
      window.clearTimeout(this._closing);
      this._closing = 0;
      this._stream.open();
    } else if (!this._closing) {
      // A new connection reads the whole run again.
      this._closing = window.setTimeout(
        () => this._stream.close(),
        FOLLOWED_UNSEEN_MILLISECONDS
      );
    }
    this._others.forEach(other => other.follow(isSeen));
  }

  /** Draw other runs in the same charts. */
  compare(runs: string[]): void {
    this._compared = runs;
    this._tell({ kind: 'compare', runs });
  }

  /** The newest runs of the store. */
  async runs(limit: number): Promise<IRun[]> {
    const path = `runs?limit=${limit}`;
    return (await request<{ runs: IRun[] }>(this._settings, path)).runs;
  }

  /** What feeds the curves of another run, while this one is seen. */
  other(runId: string, onGone: (why: string) => void): RunModel {
    const other = new RunModel(
      this._settings,
      runId,
      this._refusal,
      this._trans,
      this._choices,
      false
    );
    other.onGone = onGone;
    other._onDispose = () => this._others.delete(other);
    this._others.add(other);
    other.follow(this._isSeen);
    return other;
  }

  /** Remember what a reader has chosen of the charts. */
  keep(choices: JSONObject): void {
    this._choices.set(choices);
  }

  get(name: string): unknown {
    switch (name) {
      case 'run_id':
        return this._runId;
      case 'is_page':
        return this._isPage;
      case 'compared':
        return this._compared;
      case 'words':
        return this._words();
      case 'choices':
        return this._choices.get();
      case 'refusal':
        return this._refusal();
    }
    return undefined;
  }

  on(_: 'msg:custom', listener: Listener): void {
    this._listeners.add(listener);
  }

  off(_: 'msg:custom', listener: Listener): void {
    this._listeners.delete(listener);
  }

  send(message: IViewMessage): void {
    const { kind, view: to, request: number } = message;
    if (kind === 'ask') {
      // The server always hears; whether it does what is asked, it says itself.
      queueMicrotask(() => this._tell({ kind: 'heard', to, request: number }));
    } else if (kind === 'do') {
      void this._do(String(message.action), { to, request: number });
    } else {
      if (kind !== 'close') {
        this._wish = message;
      }
      this._stream.send(message);
    }
  }

  dispose(): void {
    this._onDispose();
    window.clearTimeout(this._closing);
    [...this._others].forEach(other => other.dispose());
    this._stream.dispose();
    this._listeners.clear();
  }

  private async _do(action: string, address: object): Promise<void> {
    const path = `runs/${encodeURIComponent(this._runId)}/${action}`;
    try {
      await request(this._settings, path, {});
    } catch (error) {
      const why = (error as Error).message;
      this._tell({ kind: 'refused', ...address, why });
      return;
    }
    this._tell({ kind: 'done', ...address });
    // A run that has ended is not followed; this one may continue.
    this._stream.send({ kind: 'look' });
  }

  private _tell(message: IViewMessage): void {
    if (message.kind === 'gone' || message.kind === 'busy') {
      this._stream.close(); // or its silence would open it again
      this.onGone(String(message.message));
    } else {
      [...this._listeners].forEach(listener => listener(message));
    }
  }

  private _words(): IViewWords {
    const trans = this._trans;
    return {
      connecting: trans.__('connecting to the server…'),
      unanswered: trans.__('no answer from the server yet'),
      restarted: '',
      silence: since =>
        trans.__(
          'No message from the server since %1. This page reconnects automatically.',
          since
        ),
      busy: () => trans.__('The server does not respond. Try again.')
    };
  }

  private _stream: Stream<IViewMessage>;
  private _isSeen = false;
  private _closing = 0;
  private _compared: string[] = [];
  private _others = new Set<RunModel>();
  private _onDispose: () => void = () => undefined;
  private _listeners = new Set<Listener>();
  /** What the view has last asked to see. */
  private _wish: IViewMessage | null = null;
}
