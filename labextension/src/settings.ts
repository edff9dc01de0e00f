import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { JSONObject } from '@lumino/coreutils';
import { ISignal, Signal } from '@lumino/signaling';

import { MemoryUnit } from './units';

/** What a person can choose; the defaults are those of schema/plugin.json. */
export interface IChoices {
  intervalSeconds: number;
  memoryUnit: MemoryUnit;
  historyMinutes: number;
  cards: 'automatic' | 'compact' | 'expanded';
  idleKernelMinutes: number;
  idleKernelGigabytes: number;
  idleGpuMinutes: number;
  hotCelsius: number;
  showSparklines: boolean;
  showHolders: boolean;
  showRuns: boolean;
  showHost: boolean;
  showStatusBar: boolean;
  /** Of the charts of runs: see nbkit/live/static/view_choices.js. */
  curves: JSONObject;
}

const DEFAULTS: IChoices = {
  intervalSeconds: 0,
  memoryUnit: 'GiB',
  historyMinutes: 30,
  cards: 'automatic',
  idleKernelMinutes: 20,
  idleKernelGigabytes: 1,
  idleGpuMinutes: 30,
  hotCelsius: 85,
  showSparklines: true,
  showHolders: true,
  showRuns: true,
  showHost: true,
  showStatusBar: true,
  curves: {}
};

/** The current choices; the defaults until the registry is loaded. */
export class Settings {
  get choices(): IChoices {
    return this._choices;
  }

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  async follow(registry: ISettingRegistry, id: string): Promise<void> {
    const settings = await registry.load(id);
    this._loaded = settings;
    const take = () => {
      this._choices = { ...DEFAULTS, ...settings.composite };
      this._changed.emit();
    };
    settings.changed.connect(take);
    take();
  }

  /** Keep what a reader has chosen of the charts. */
  keepCurves(curves: JSONObject): void {
    this._choices = { ...this._choices, curves };
    this._loaded?.set('curves', curves).catch(error => {
      console.warn('nbkit: the choice of curves was not saved', error);
    });
  }

  private _loaded: ISettingRegistry.ISettings | null = null;
  private _choices: IChoices = DEFAULTS;
  private _changed = new Signal<this, void>(this);
}
