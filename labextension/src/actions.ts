import {
  Dialog,
  InputDialog,
  Notification,
  showDialog,
  showErrorMessage
} from '@jupyterlab/apputils';
import { KernelAPI, ServiceManager } from '@jupyterlab/services';
import { TranslationBundle } from '@jupyterlab/translation';
import { CommandRegistry } from '@lumino/commands';

import { isCopied } from './clipboard';
import { openDocument } from './documents';
import { hasEnded, IHolder, IRun, isSameProcess } from './messages';
import { MonitorModel } from './model';
import { request } from './requests';
import {
  ICurves,
  ICurvesRun,
  IStudy,
  ofStudy,
  TensorBoards
} from './tensorboard';
import { baseName } from './units';

/** What a kernel is called, and what it holds, in the dialogs. */
export interface IKernelHolder {
  kernel_id: string;
  path: string | null;
  own: boolean;
  /** Such as "12.3 GiB on GPU 0". */
  holds: string;
  /** Its processes as they were shown. */
  processes: readonly Pick<IHolder, 'pid' | 'start_ticks'>[];
  /** Since when it was shown to be idle; null while it works. */
  idle_since: number | null;
}

export const RUN_COMMAND = 'nbkit:open-run';
export const REPORT_COMMAND = 'nbkit:open-report';
const SETTINGS_COMMAND = 'settingeditor:open';
/** Of the extensions that show TensorBoard in Lab. */
const TENSORBOARD_COMMAND = 'tensorboard:create-new';

/** Actions of the rows; those that end something ask first. */
export class Actions {
  constructor(
    private _commands: CommandRegistry,
    private _services: ServiceManager.IManager,
    private _model: MonitorModel,
    private _tensorBoards: TensorBoards,
    private _trans: TranslationBundle
  ) {}

  /** Why nothing of this owner may be ended here; null if it may. */
  refusal(own: boolean): string | null {
    const trans = this._trans;
    const { connection, isConnected, readOnly } = this._model;
    if (!isConnected && connection !== 'idle') {
      return trans.__('Not connected to the server');
    }
    if (readOnly === null) {
      return trans.__('The server has not sent its permissions yet');
    }
    if (readOnly) {
      return trans.__(
        'The administrator has made nbkit read-only on this server'
      );
    }
    return own ? null : trans.__('Owned by another user');
  }

  /** Why a process that a card shows may not be ended; null if it may. */
  holderRefusal(own: boolean): string | null {
    return this._model.isCurrent
      ? this.refusal(own)
      : this._trans.__('The values shown are not current');
  }

  /** Whether this server runs a kernel. */
  hasKernel(kernelId: string | null): boolean {
    const kernels = [...this._services.kernels.running()];
    return kernels.some(({ id }) => id === kernelId);
  }

  async openNotebook(path: string): Promise<void> {
    const { contents } = this._services;
    await this._try(async () => {
      try {
        await contents.get(path, { content: false });
      } catch (error) {
        const why = (error as Error).message;
        throw new Error(
          this._trans.__(
            '%1 cannot be opened (%2). It may have been moved, removed or hidden by this server.',
            path,
            why
          )
        );
      }
      await openDocument(this._commands, path, this._trans);
    });
  }

  async openFolder(path: string): Promise<void> {
    const command = 'filebrowser:open-path';
    await this._try(() => this._commands.execute(command, { path }));
  }

  canOpenFolder(): boolean {
    return this._commands.hasCommand('filebrowser:open-path');
  }

  /** Show the page of a run, with the curves of others. */
  openRun(
    run: { run_id: string; name: string | null },
    others: string[] = []
  ): void {
    const args = { id: run.run_id, label: run.name ?? run.run_id, others };
    void this._commands.execute(RUN_COMMAND, args);
  }

  /** Show the report of a study. */
  showReport(studyId: string): void {
    const args = { id: studyId, label: this._trans.__('Report') };
    void this._commands.execute(REPORT_COMMAND, args);
  }

  async copyPath(path: string): Promise<void> {
    const trans = this._trans;
    await this._try(async () => {
      if (!isCopied(path)) {
        throw new Error(
          trans.__(
            'The browser blocked the copy. Copy this text manually: %1',
            path
          )
        );
      }
      Notification.success(trans.__('Copied: %1', path), { autoClose: 3000 });
    });
  }

  canOpenSettings(): boolean {
    return this._commands.hasCommand(SETTINGS_COMMAND);
  }

  async openSettings(): Promise<void> {
    await this._try(() =>
      this._commands.execute(SETTINGS_COMMAND, { query: 'nbkit' })
    );
  }

  /** Try what opening TensorBoard depends on: a click does not wait for it. */
  prepareTensorBoard(): void {
    this._tensorBoards.prepare();
  }

  /** Show curves; if that fails, show why and the alternatives. */
  async openTensorBoard(curves: ICurves): Promise<void> {
    try {
      await this._tensorBoards.open(curves);
    } catch (error) {
      const why = (error as Error).message;
      if (curves.run) {
        await this._offerOtherTensorBoards(curves.run, why);
      } else {
        await showErrorMessage(this._trans.__('TensorBoard did not open'), why);
      }
    }
  }

  /** Let a person choose a study, and show its curves. */
  async openTensorBoardOfStudy(): Promise<void> {
    const title = this._trans.__('TensorBoard for Which Study?');
    await this._chooseStudy(title, study =>
      this.openTensorBoard(ofStudy(study, this._trans))
    );
  }

  /** Let a person choose a study, and show its report. */
  async openReportOfStudy(): Promise<void> {
    const title = this._trans.__('Report of Which Study?');
    await this._chooseStudy(title, async ({ study_id }) =>
      this.showReport(study_id)
    );
  }

  private async _chooseStudy(
    title: string,
    show: (study: IStudy) => Promise<void>
  ): Promise<void> {
    const trans = this._trans;
    const { serverSettings } = this._services;
    await this._try(async () => {
      const { studies } = await request<{ studies: IStudy[] }>(
        serverSettings,
        'studies'
      );
      if (!studies.length) {
        throw new Error(
          trans.__('No studies yet. Create one with nbkit.Study.create(…).')
        );
      }
      const items = studies.map(({ study_id, name }) =>
        name ? `${name} (${study_id})` : study_id
      );
      const { value } = await InputDialog.getItem({ title, items });
      const study = value && studies[items.indexOf(value)];
      if (study) {
        await show(study);
      }
    });
  }

  private async _offerOtherTensorBoards(
    run: ICurvesRun,
    why: string
  ): Promise<void> {
    const trans = this._trans;
    const command = `tensorboard --logdir ${quoted(`${run.folder_path}/tensorboard`)}`;
    const copy = trans.__('Copy the Command');
    const other = trans.__('Open with Another Extension');
    const cwd = run.folder;
    const hasOther =
      cwd !== null && this._commands.hasCommand(TENSORBOARD_COMMAND);
    const danger = hasOther
      ? trans.__(
          'Starting TensorBoard with another extension or in a terminal opens a port that every user of the machine can reach.'
        )
      : trans.__(
          'Starting TensorBoard in a terminal opens a port that every user of the machine can reach.'
        );
    const manually = trans.__(
      'To start TensorBoard in a terminal, run on the server: %1',
      command
    );
    const result = await showDialog({
      title: trans.__('TensorBoard did not open'),
      body: [why, danger, manually].join(' '),
      buttons: [
        Dialog.cancelButton({ label: trans.__('Close') }),
        ...(hasOther ? [Dialog.okButton({ label: other })] : []),
        Dialog.okButton({ label: copy })
      ],
      // What others can reach is opened only where a person chooses it.
      defaultButton: 0
    });
    if (result.button.label === copy) {
      await this.copyPath(command);
    } else if (result.button.label === other) {
      await this._try(() =>
        this._commands.execute(TENSORBOARD_COMMAND, { cwd })
      );
    }
  }

  async interrupt(kernel: IKernelHolder): Promise<void> {
    const trans = this._trans;
    const name = this.kernelName(kernel);
    const sure = await this._confirm(
      trans.__('Interrupt %1?', name),
      trans.__('A running cell is interrupted. The variables are kept.'),
      trans.__('Interrupt')
    );
    if (sure) {
      const { serverSettings } = this._services;
      await this._try(async () => {
        if (await this._isStillThere(kernel)) {
          await KernelAPI.interruptKernel(kernel.kernel_id, serverSettings);
        }
      });
    }
  }

  /** End a kernel after a question; with `onlyIdle`, unless it works by then. */
  async shutDown(kernel: IKernelHolder, onlyIdle = false): Promise<void> {
    const trans = this._trans;
    const name = this.kernelName(kernel);
    const sure = await this._confirm(
      trans.__('Shut down %1?', name),
      trans.__(
        'The kernel ends and its variables are lost. It holds %1.',
        kernel.holds
      ),
      trans.__('Shut Down')
    );
    if (sure) {
      await this._try(async () => {
        if (await this._isStillThere(kernel, onlyIdle)) {
          await this._shutDown(kernel.kernel_id);
        }
      });
    }
  }

  async stop(run: IRun): Promise<void> {
    const trans = this._trans;
    const saves =
      run.task === 'train' && run.state === 'running'
        ? ` ${trans.__('The run saves a checkpoint after its next step. To continue from it, choose Resume on the run’s page.')}`
        : '';
    const sure = await this._confirm(
      trans.__('Stop the run %1?', run.name ?? run.run_id),
      run.state === 'queued'
        ? trans.__(
            'Run %1 is removed from the queue and does not start.',
            run.run_id
          )
        : `${trans.__(
            'The processes of run %1 end. Its recorded data is kept.',
            run.run_id
          )}${saves}`,
      trans.__('Stop Run')
    );
    if (!sure) {
      return;
    }
    const now = this._model.runs?.find(({ run_id }) => run_id === run.run_id);
    const why =
      now && hasEnded(now)
        ? trans.__('The run has already ended.')
        : this.refusal(run.own);
    if (why === null) {
      await this.stopAfterQuestion(run);
    } else {
      await this._sayItChanged(why);
    }
  }

  /** Stop a run; JupyterLab has already asked for confirmation. */
  async stopAfterQuestion(run: IRun): Promise<void> {
    const path = `runs/${encodeURIComponent(run.run_id)}/stop`;
    const settings = this._services.serverSettings;
    await this._try(() => request(settings, path, { grace_seconds: null }));
  }

  /** Run an action and show its failure. */
  private async _try(action: () => Promise<unknown>): Promise<void> {
    try {
      await action();
    } catch (error) {
      await showErrorMessage(
        this._trans.__('The action failed'),
        error as Error
      );
    }
  }

  /** Whether a kernel has not changed since the question; shows why if it has. */
  private async _isStillThere(
    kernel: IKernelHolder,
    onlyIdle = false
  ): Promise<boolean> {
    const trans = this._trans;
    const refusal = this.holderRefusal(kernel.own);
    if (refusal !== null) {
      await this._sayItChanged(refusal);
      return false;
    }
    const holders = (this._model.inventory?.gpus ?? []).flatMap(
      gpu => gpu.holders ?? []
    );
    const now = holders.find(
      holder =>
        holder.kernel_id === kernel.kernel_id &&
        kernel.processes.some(process => isSameProcess(process, holder))
    );
    if (!now) {
      await this._sayItChanged(
        trans.__('The kernel has ended or was restarted.')
      );
      return false;
    }
    if (onlyIdle && (await this._works(kernel, now))) {
      await this._sayItChanged(trans.__('The kernel has become busy.'));
      return false;
    }
    return true;
  }

  /** Whether an idle kernel has become busy, by its server's newest answer. */
  private async _works(kernel: IKernelHolder, now: IHolder): Promise<boolean> {
    if (now.idle_since !== kernel.idle_since) {
      return true;
    }
    const { serverSettings } = this._services;
    const model = await KernelAPI.getKernelModel(
      kernel.kernel_id,
      serverSettings
    );
    return model?.execution_state === 'busy';
  }

  private async _sayItChanged(why: string): Promise<void> {
    await showDialog({
      title: this._trans.__('The state has changed'),
      body: this._trans.__('Action cancelled: %1', why),
      buttons: [Dialog.okButton({ label: this._trans.__('OK') })]
    });
  }

  private async _shutDown(kernelId: string): Promise<void> {
    const { kernels, sessions } = this._services;
    await sessions.refreshRunning();
    for (const session of sessions.running()) {
      if (session.kernel?.id === kernelId) {
        await sessions.shutdown(session.id);
        return;
      }
    }
    await kernels.shutdown(kernelId);
  }

  /** What a kernel is called in dialogs and on buttons. */
  kernelName(kernel: IKernelHolder): string {
    return kernel.path === null
      ? this._trans.__('the kernel %1', kernel.kernel_id.slice(0, 8))
      : this._trans.__('the kernel of %1', baseName(kernel.path));
  }

  private async _confirm(
    title: string,
    body: string,
    label: string
  ): Promise<boolean> {
    const result = await showDialog({
      title,
      body,
      buttons: [
        Dialog.cancelButton({ label: this._trans.__('Cancel') }),
        Dialog.warnButton({ label })
      ],
      // The way out is chosen unless a person chooses otherwise.
      defaultButton: 0
    });
    return result.button.accept;
  }
}

/** A path as a shell takes it for one word. */
function quoted(path: string): string {
  return /^[\w@%+=:,./-]+$/.test(path)
    ? path
    : `'${path.replace(/'/g, `'\\''`)}'`;
}
