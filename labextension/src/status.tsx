import { ReactWidget } from '@jupyterlab/ui-components';
import { TranslationBundle } from '@jupyterlab/translation';
import { Message, MessageLoop } from '@lumino/messaging';
import { ISignal, Signal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';
import * as React from 'react';

import { gpuIcon } from './icons';
import { MonitorModel } from './model';
import { occupancy } from './panel';
import { Settings } from './settings';
import { memoryOf } from './units';

const WATCHER = 'status bar';
/** The status bar needs no faster updates. */
const INTERVAL_SECONDS = 5;
/** Without a GPU, it checks again after a minute, then less and less often. */
const FIRST_REST_SECONDS = 60;
const LONGEST_REST_SECONDS = 600;
/** A sampler that starts has listed its GPUs by then. */
const GLANCE_SECONDS = 15;
/** Reasons that last until the server is restarted. */
const LASTING = ['hidden', 'source cannot be used'];

/** "GPU 3/8 busy · 142 GiB" in the status bar. */
export class MonitorStatus extends ReactWidget {
  constructor(
    private _model: MonitorModel,
    private _settings: Settings,
    private _trans: TranslationBundle,
    private _open: () => void
  ) {
    super();
    this.addClass('nbk-status');
    _model.changed.connect(this._look, this);
    _settings.changed.connect(this._look, this);
  }

  /** Whether there is a GPU to show. */
  get isActive(): boolean {
    return this._active;
  }

  get activeChanged(): ISignal<this, void> {
    return this._activeChanged;
  }

  override dispose(): void {
    window.clearTimeout(this._turn);
    this._model.unwatch(WATCHER);
    this._model.changed.disconnect(this._look, this);
    this._settings.changed.disconnect(this._look, this);
    Signal.clearData(this);
    super.dispose();
  }

  override render(): JSX.Element {
    const trans = this._trans;
    const { inventory, isCurrent } = this._model;
    const { busy, usedMib, totalMib } = occupancy(this._model);
    const unit = this._settings.choices.memoryUnit;
    const count = inventory?.gpus.length ?? 0;
    const held =
      usedMib === null ? '' : ` · ${memoryOf(usedMib, totalMib, unit, trans)}`;
    const old = isCurrent ? '' : ` (${trans.__('not live')})`;
    const text = trans.__('GPU %1/%2 busy%3%4', busy, count, held, old);
    return (
      <button
        type="button"
        className="nbk-status-button"
        title={trans.__('Show GPUs and runs')}
        onClick={this._open}
      >
        <gpuIcon.react tag="span" className="nbk-kind" aria-hidden="true" />
        {text}
      </button>
    );
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    // The bar is hidden and shown as a whole; an item that is hidden itself gets no
    // message about it.
    this._bar = this.parent;
    if (this._bar) {
      MessageLoop.installMessageHook(this._bar, this._hear);
    }
    this._look();
  }

  protected override onBeforeDetach(message: Message): void {
    if (this._bar) {
      MessageLoop.removeMessageHook(this._bar, this._hear);
      this._bar = null;
    }
    this._watch(false);
    super.onBeforeDetach(message);
  }

  private _hear = (_: unknown, message: Message): boolean => {
    if (['after-show', 'before-hide'].includes(message.type)) {
      this._seen = message.type === 'after-show';
      this._look();
    }
    return true;
  };

  private _look(): void {
    const { inventory } = this._model;
    const wanted = this._settings.choices.showStatusBar;
    const without = inventory !== null && !inventory.gpus.length;
    const seen = this._bar !== null && (this._seen ?? this._bar.isVisible);
    if (!without) {
      this._rest = FIRST_REST_SECONDS;
    }
    // Without a GPU the item is hidden and reads nothing; but the driver may be
    // loaded later.
    const reason = inventory?.gpus_unavailable?.reason ?? '';
    const mayCome = without && !LASTING.includes(reason);
    this._watch(wanted && seen && (!without || (mayCome && this._glancing)));
    this._plan(wanted && seen && mayCome);
    const active = wanted && inventory !== null && !without;
    if (active !== this._active) {
      this._active = active;
      this._activeChanged.emit();
    }
    if (active) {
      this.update();
    }
  }

  private _watch(on: boolean): void {
    const seconds = Math.max(
      INTERVAL_SECONDS,
      this._settings.choices.intervalSeconds
    );
    if (on && seconds !== this._watching) {
      this._watching = seconds;
      this._model.watch(WATCHER, seconds);
    } else if (!on && this._watching !== null) {
      this._watching = null;
      this._model.unwatch(WATCHER);
    }
  }

  /** Check for a GPU from time to time. */
  private _plan(on: boolean): void {
    if (!on) {
      window.clearTimeout(this._turn);
      this._turn = 0;
      this._glancing = false;
    } else if (!this._turn) {
      const seconds = this._glancing ? GLANCE_SECONDS : this._rest;
      this._turn = window.setTimeout(() => {
        this._turn = 0;
        this._glancing = !this._glancing;
        if (!this._glancing) {
          this._rest = Math.min(LONGEST_REST_SECONDS, 2 * this._rest);
        }
        this._look();
      }, 1000 * seconds);
    }
  }

  private _bar: Widget | null = null;
  private _seen: boolean | null = null;
  private _watching: number | null = null;
  private _turn = 0;
  private _glancing = false;
  private _rest = FIRST_REST_SECONDS;
  private _active = false;
  private _activeChanged = new Signal<this, void>(this);
}
