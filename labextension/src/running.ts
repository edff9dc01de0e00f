import { IRunningSessions } from '@jupyterlab/running';
import { TranslationBundle } from '@jupyterlab/translation';
import { stopIcon } from '@jupyterlab/ui-components';
import { Poll } from '@lumino/polling';
import { ISignal } from '@lumino/signaling';

import { Actions } from './actions';
import { gpuIcon } from './icons';
import { hasEnded, IRun } from './messages';
import { MonitorModel } from './model';
import { stateWords } from './runs';

/** Active runs, in JupyterLab's panel of running terminals and kernels. */
export class RunningRuns implements IRunningSessions.IManager {
  constructor(
    private _model: MonitorModel,
    private _actions: Actions,
    private _trans: TranslationBundle
  ) {
    this.name = _trans.__('nbkit Runs');
    this.shutdownLabel = _trans.__('Stop Run');
    this.shutdownAllLabel = _trans.__('Stop All');
    this.shutdownAllConfirmationText = _trans.__(
      'Stop all of your active runs in this store? Their recorded data is kept.'
    );
    // Without a watcher of the stream, runs are still polled at a low rate.
    this._poll = new Poll({
      name: 'nbkit:runs',
      factory: () => _model.refreshRuns(),
      frequency: { interval: 10_000, backoff: true, max: 300_000 },
      standby: () => document.hidden || _model.connection !== 'idle'
    });
  }

  dispose(): void {
    this._poll.dispose();
  }

  readonly name: string;
  readonly shutdownLabel: string;
  readonly shutdownAllLabel: string;
  readonly shutdownAllConfirmationText: string;
  readonly shutdownItemIcon = stopIcon;

  get runningChanged(): ISignal<MonitorModel, void> {
    return this._model.runsChanged;
  }

  running(): IRunningSessions.IRunningItem[] {
    return this._going().map(run => ({
      icon: () => gpuIcon,
      label: () => run.name ?? run.run_id,
      labelTitle: () => run.run_id,
      detail: () => stateWords(run, this._trans),
      open: () => this._actions.openRun(run),
      // JupyterLab ends one item without a question, so nbkit asks.
      ...(this._actions.refusal(run.own) === null && {
        shutdown: () => void this._actions.stop(run)
      })
    }));
  }

  shutdownAll(): void {
    for (const run of this._going()) {
      if (this._actions.refusal(run.own) === null) {
        void this._actions.stopAfterQuestion(run);
      }
    }
  }

  refreshRunning(): void {
    this._model.refreshRuns().catch(error => {
      console.warn('nbkit: the runs cannot be listed', error);
    });
  }

  private _going(): IRun[] {
    return (this._model.runs ?? []).filter(run => !hasEnded(run));
  }

  private _poll: Poll;
}
