import { ISettingRegistry } from '@jupyterlab/settingregistry';
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
  showStatusBar: true
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
    const take = () => {
      this._choices = { ...DEFAULTS, ...settings.composite };
      this._changed.emit();
    };
    settings.changed.connect(take);
    take();
  }

  private _choices: IChoices = DEFAULTS;
  private _changed = new Signal<this, void>(this);
}
