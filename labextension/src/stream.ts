import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import { IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';

import { request, RequestError } from './requests';

export type Connection =
  /** No watcher. */
  | 'idle'
  | 'connecting'
  | 'live'
  /** The server answers, but a websocket cannot reach it. */
  | 'blocked'
  | 'disconnected'
  /** The server has no nbkit extension. */
  | 'missing'
  | 'forbidden';

const LONGEST_WAIT_SECONDS = 30;
/** Until the next request to a server without nbkit, or without access. */
const HOPELESS_WAIT_SECONDS = 300;
/** A server that answers while so many sockets in a row bring nothing is not restarting. */
const BLOCKED_SOCKETS = 2;
/** The server sends a message every ten seconds, also without samples. */
const SILENCE_SECONDS = 20;

/** A websocket: open while there is a watcher, opened again when it breaks. */
export class Stream<T> implements IDisposable {
  /**
   * `path` is below nbkit's API; `resume` gives the query with which the server sends
   * only what was missed.
   */
  constructor(
    private _settings: ServerConnection.ISettings,
    private _path: string,
    private _resume: () => string
  ) {}

  get connection(): Connection {
    return this._connection;
  }

  /** Time between two samples; a connection that is silent for long is dead. */
  set intervalSeconds(seconds: number) {
    this._silenceSeconds = Math.max(SILENCE_SECONDS, 3 * seconds);
  }

  get received(): ISignal<this, T> {
    return this._received;
  }

  /** A connection is there: what the server has to know of it may be sent. */
  get opened(): ISignal<this, void> {
    return this._opened;
  }

  get connectionChanged(): ISignal<this, void> {
    return this._connectionChanged;
  }

  get isDisposed(): boolean {
    return this._disposed;
  }

  /** Connect; a waiting retry happens immediately. */
  open(): void {
    if (!this._socket && !this._disposed) {
      this._failures = 0;
      this._connect();
    }
  }

  close(): void {
    this._drop();
    this._set('idle');
  }

  dispose(): void {
    this.close();
    this._disposed = true;
    Signal.clearData(this);
  }

  /** Send if there is a connection; a new one starts with the server's own rule. */
  send(message: object): void {
    if (this._socket?.readyState === WebSocket.OPEN) {
      this._socket.send(JSON.stringify(message));
    }
  }

  private _connect(): void {
    this._drop();
    if (this._connection === 'idle') {
      this._set('connecting');
    }
    const query = new URLSearchParams(this._resume());
    if (this._settings.appendToken && this._settings.token) {
      query.set('token', this._settings.token);
    }
    const url = URLExt.join(this._settings.wsUrl, 'nbkit/api', this._path);
    const socket = new this._settings.WebSocket(`${url}?${query}`);
    this._socket = socket;
    this._isHeard = false;
    socket.onopen = () => this._opened.emit();
    socket.onmessage = event => this._take(event.data);
    socket.onclose = () => void this._lost(socket);
    this._listen();
  }

  private _take(data: string): void {
    this._failures = 0;
    this._blocked = 0;
    this._isHeard = true;
    this._listen();
    const message = JSON.parse(data) as T;
    this._set('live');
    this._received.emit(message);
  }

  private async _lost(socket: WebSocket): Promise<void> {
    if (socket !== this._socket) {
      return;
    }
    this._drop();
    const attempt = this._attempt;
    const wasHeard = this._isHeard;
    this._connectIn(Math.min(LONGEST_WAIT_SECONDS, 2 ** this._failures));
    this._failures++;
    if (this._connection === 'live') {
      this._set('disconnected');
    }
    let why = await this._explain();
    if (attempt !== this._attempt) {
      return; // It explains an attempt that is not the last one any more.
    }
    if (why === 'blocked') {
      this._blocked += wasHeard ? 0 : 1;
      why = this._blocked < BLOCKED_SOCKETS ? 'disconnected' : 'blocked';
    } else {
      this._blocked = 0;
    }
    this._set(why);
    // A listener may have closed it.
    if (why !== 'disconnected' && attempt === this._attempt) {
      this._connectIn(HOPELESS_WAIT_SECONDS);
    }
  }

  private _connectIn(seconds: number): void {
    window.clearTimeout(this._retry);
    // Spread, so that pages do not all reconnect to a restarted server together.
    const milliseconds = 1000 * seconds * (0.75 + 0.5 * Math.random());
    this._retry = window.setTimeout(() => this._connect(), milliseconds);
  }

  /** A browser does not say why a websocket failed; an ordinary request does. */
  private async _explain(): Promise<Connection> {
    try {
      await request(this._settings, 'status');
      return 'blocked';
    } catch (error) {
      if (error instanceof RequestError && error.status === 404) {
        return 'missing';
      }
      if (error instanceof RequestError && [401, 403].includes(error.status)) {
        return 'forbidden';
      }
    }
    return 'disconnected';
  }

  private _listen(): void {
    window.clearTimeout(this._silence);
    this._silence = window.setTimeout(() => {
      if (this._socket) {
        void this._lost(this._socket);
      }
    }, this._silenceSeconds * 1000);
  }

  private _drop(): void {
    this._attempt++;
    window.clearTimeout(this._retry);
    window.clearTimeout(this._silence);
    this._retry = 0;
    const socket = this._socket;
    this._socket = null;
    if (socket) {
      socket.onopen = null;
      socket.onmessage = null;
      socket.onclose = null;
      socket.close();
    }
  }

  private _set(connection: Connection): void {
    if (connection !== this._connection) {
      this._connection = connection;
      this._connectionChanged.emit();
    }
  }

  private _socket: WebSocket | null = null;
  private _connection: Connection = 'idle';
  private _silenceSeconds = SILENCE_SECONDS;
  private _attempt = 0;
  private _failures = 0;
  /** Whether the newest socket has brought anything. */
  private _isHeard = false;
  /** Sockets in a row that brought nothing although the server answers. */
  private _blocked = 0;
  private _retry = 0;
  private _silence = 0;
  private _disposed = false;
  private _received = new Signal<this, T>(this);
  private _opened = new Signal<this, void>(this);
  private _connectionChanged = new Signal<this, void>(this);
}
