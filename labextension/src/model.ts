import { ServerConnection } from '@jupyterlab/services';
import { IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';

import { History } from './history';
import {
  IInventory,
  IRun,
  ISample,
  IStatus,
  IStudyRow,
  keepKnown,
  Message,
  Readings,
  readings,
  reorder,
  SCHEMA
} from './messages';
import { request } from './requests';
import { Connection, Stream } from './stream';

/** A sample that comes late, as from a slow driver, does not turn the clock back. */
const MOST_LATE_SECONDS = 10;

/** What is known of the machine, and the watchers on this page. */
export class MonitorModel implements IDisposable {
  constructor(readonly serverSettings: ServerConnection.ISettings) {
    this._stream = new Stream<Message>(serverSettings, 'stream', () =>
      this._resume()
    );
    this._stream.received.connect((_, message) => this._receive(message));
    this._stream.connectionChanged.connect(() => this._changed.emit());
    document.addEventListener('visibilitychange', this._look);
  }

  readonly history = new History();

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get runsChanged(): ISignal<this, void> {
    return this._runsChanged;
  }

  get connection(): Connection {
    return this._stream.connection;
  }

  /** Whether the server sends updates. */
  get isConnected(): boolean {
    return this.connection === 'live';
  }

  get inventory(): IInventory | null {
    return this._inventory;
  }

  get sample(): ISample | null {
    return this._sample;
  }

  /** Newest first; null before the server's first answer. */
  get runs(): readonly IRun[] | null {
    return this._runs;
  }

  /** Newest first. */
  get studies(): readonly IStudyRow[] {
    return this._studies;
  }

  get status(): IStatus | null {
    return this._status;
  }

  /** Whether this page is of another version than the server. */
  get outdated(): boolean {
    return this._outdated;
  }

  /** The server's clock at the newest message, in Unix seconds. */
  get serverTime(): number {
    return this._serverTime;
  }

  /** Seconds since the last sample was taken, by this page's clock. */
  get ageSeconds(): number | null {
    const last = this._lastSample;
    return last === null ? null : Math.max(0, (Date.now() - last) / 1000);
  }

  /** Whether the values shown are current: connected, and the sampler runs. */
  get isCurrent(): boolean {
    return this.isConnected && this._status?.sampler === 'running';
  }

  /** Whether actions are disabled; null before the server's first answer. */
  get readOnly(): boolean | null {
    return this._readOnly;
  }

  get isDisposed(): boolean {
    return this._stream.isDisposed;
  }

  /** The readings of one GPU, by its place in the inventory; null without any. */
  gpuReadings(place: number): Readings | null {
    const row = this._sample?.gpus[place];
    return row && this._inventory
      ? readings(this._inventory.gpu_columns, row)
      : null;
  }

  /** Whether the readings of a GPU are of the newest sample, not of one before. */
  isFresh(place: number): boolean {
    return this._isFresh[place] ?? false;
  }

  hostReadings(): Readings | null {
    return this._sample && this._inventory
      ? readings(this._inventory.host_columns, this._sample.host_values)
      : null;
  }

  /** Register a watcher and its interval between samples; 0 is the server's. */
  watch(who: string, intervalSeconds: number): void {
    this._watchers.set(who, intervalSeconds);
    this._look();
    this._sendInterval();
  }

  unwatch(who: string): void {
    this._watchers.delete(who);
    this._look();
    this._sendInterval();
  }

  retry(): void {
    this._stream.close();
    this._look();
  }

  /** Ask for the runs while the stream has no watcher. */
  async refreshRuns(): Promise<void> {
    if (this._readOnly === null) {
      const { read_only } = await request<{ read_only: boolean }>(
        this.serverSettings,
        'status'
      );
      this._readOnly = read_only;
    }
    const { runs } = await request<{ runs: IRun[] }>(
      this.serverSettings,
      'runs'
    );
    this._setRuns(runs);
  }

  dispose(): void {
    document.removeEventListener('visibilitychange', this._look);
    this._stream.dispose();
    Signal.clearData(this);
  }

  private _look = (): void => {
    if (this._watchers.size && !document.hidden) {
      this._stream.open();
    } else {
      this._stream.close();
    }
  };

  private _resume(): string {
    this._sentInterval = null;
    this._connectedAt = null;
    return this._streamId === null
      ? ''
      : `stream=${this._streamId}&since=${this._seq}`;
  }

  private _receive(message: Message): void {
    this._outdated = message.schema !== SCHEMA;
    if (this._outdated) {
      this._changed.emit();
      return;
    }
    if (message.stream !== this._streamId) {
      // The server was restarted: its numbers and its knowledge start again.
      this._streamId = message.stream;
      this._seq = 0;
      this._serverTime = 0;
      this._inventory = null;
      this._sample = null;
      this._sentInterval = null;
    }
    const isNew = message.seq > this._seq;
    this._seq = Math.max(this._seq, message.seq);
    // A new page may get runs that were sent hours ago.
    if (message.type === 'history' || (isNew && message.type === 'sample')) {
      this._follow(message.t);
    } else if (isNew) {
      this._serverTime = Math.max(this._serverTime, message.t);
    }
    switch (message.type) {
      case 'inventory':
        if (this._sample && this._inventory) {
          this._sample = reorder(this._sample, this._inventory, message);
        }
        this._inventory = message;
        this._sendInterval();
        break;
      case 'sample':
        if (message.inventory !== this._inventory?.seq) {
          return;
        }
        // Two clocks are never compared: either may be wrong, or be set again.
        this._lastSample = Date.now() - 1000 * this._lateSeconds(message.t);
        this.history.add(this._inventory, message, this._wanted(1));
        this._sample = keepKnown(message, this._sample, this._inventory);
        this._isFresh = message.gpus.map(row => row !== null);
        break;
      case 'history':
        if (message.since === null) {
          this.history.clear();
        }
        this.history.load(message);
        this._connectedAt = message.t;
        break;
      case 'runs':
        this._studies = message.studies;
        this._setRuns(message.runs);
        return;
      case 'status':
        this._status = message;
        this._readOnly = message.read_only;
        break;
    }
    this._changed.emit();
  }

  /** Take over the server's clock, also where it was set back. */
  private _follow(t: number): void {
    if (t < this._serverTime - MOST_LATE_SECONDS) {
      this.history.setBack(t);
      this._serverTime = t;
    }
    this._serverTime = Math.max(this._serverTime, t);
  }

  /** How long before it was sent a sample was taken: the first of a connection waits. */
  private _lateSeconds(t: number): number {
    const sent = this._connectedAt ?? t;
    this._connectedAt = null;
    return Math.max(0, sent - t);
  }

  private _setRuns(runs: IRun[]): void {
    this._runs = runs;
    this._runsChanged.emit();
    this._changed.emit();
  }

  /** Seconds between two samples: the server refuses to go faster than its pace. */
  private _wanted(pace: number): number {
    const wanted = Math.min(...this._watchers.values());
    return Math.max(
      this._inventory?.interval_seconds ?? pace,
      Number.isFinite(wanted) ? wanted : 0
    );
  }

  private _sendInterval(): void {
    const pace = this._inventory?.interval_seconds;
    if (pace === undefined || this.connection !== 'live') {
      return;
    }
    const wanted = this._wanted(pace);
    this._stream.intervalSeconds = wanted;
    if (wanted !== (this._sentInterval ?? pace)) {
      this._sentInterval = wanted;
      this._stream.send({ type: 'interval', interval_seconds: wanted });
    }
  }

  private _stream: Stream<Message>;
  private _watchers = new Map<string, number>();
  private _streamId: string | null = null;
  private _seq = 0;
  private _serverTime = 0;
  /** By the server's clock; null once a sample has come. */
  private _connectedAt: number | null = null;
  private _sentInterval: number | null = null;
  private _inventory: IInventory | null = null;
  private _sample: ISample | null = null;
  private _isFresh: boolean[] = [];
  private _runs: IRun[] | null = null;
  private _studies: readonly IStudyRow[] = [];
  private _status: IStatus | null = null;
  private _readOnly: boolean | null = null;
  private _lastSample: number | null = null;
  private _outdated = false;
  private _changed = new Signal<this, void>(this);
  private _runsChanged = new Signal<this, void>(this);
}
