import {
  ILabShell,
  ILayoutRestorer,
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { IDefaultFileBrowser } from '@jupyterlab/filebrowser';
import { ILauncher } from '@jupyterlab/launcher';
import { IRunningSessionManagers } from '@jupyterlab/running';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { Token } from '@lumino/coreutils';

import { Actions } from './actions';
import { gpuIcon, tensorBoardIcon } from './icons';
import { addNotebooks, COPY_COMMAND } from './launcher';
import { MonitorModel } from './model';
import { MonitorPanel } from './panel';
import { RunningRuns } from './running';
import { Settings } from './settings';
import { MonitorStatus } from './status';
import { allRuns, TensorBoards } from './tensorboard';
import { followWidgets } from './widget_events';

const PANEL_PLUGIN = 'nbkit:plugin';
const OPEN_COMMAND = 'nbkit:open-panel';
const TAB_COMMAND = 'nbkit:tensorboard-tab';
const CATEGORY = 'nbkit';

/** What the parts share: one model, and so one stream, for the whole page. */
interface IMonitor {
  model: MonitorModel;
  settings: Settings;
  actions: Actions;
}

const IMonitor = new Token<IMonitor>(
  'nbkit:IMonitor',
  'GPUs, runs and host, from the server.'
);

const panel: JupyterFrontEndPlugin<IMonitor> = {
  id: PANEL_PLUGIN,
  description: 'A sidebar with GPUs, their processes, and runs.',
  autoStart: true,
  provides: IMonitor,
  optional: [
    ITranslator,
    ISettingRegistry,
    ILayoutRestorer,
    ICommandPalette,
    ILabShell
  ],
  activate: (
    app: JupyterFrontEnd,
    translator: ITranslator | null,
    registry: ISettingRegistry | null,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null,
    labShell: ILabShell | null
  ): IMonitor => {
    const trans = (translator ?? nullTranslator).load('nbkit');
    const settings = new Settings();
    const { serverSettings } = app.serviceManager;
    const model = new MonitorModel(serverSettings);
    const tensorBoards = new TensorBoards(labShell, serverSettings, trans);
    const actions = new Actions(
      app.commands,
      app.serviceManager,
      model,
      tensorBoards,
      trans
    );
    followWidgets(model, actions, trans);
    const widget = new MonitorPanel({ trans, model, actions }, settings);
    app.shell.add(widget, 'left', { rank: 600, type: 'nbkit' });
    restorer?.add(widget, widget.id);
    app.commands.addCommand(TAB_COMMAND, {
      label: trans.__('Open TensorBoard Again'),
      execute: args => tensorBoards.bringBack(args)
    });
    void restorer?.restore(tensorBoards.tabs, {
      command: TAB_COMMAND,
      args: tab => tensorBoards.argumentsOf(tab),
      name: tab => tab.id
    });
    app.commands.addCommand(OPEN_COMMAND, {
      label: trans.__('Show GPUs and Runs'),
      caption: trans.__('Show GPUs, their processes, and runs'),
      icon: gpuIcon,
      execute: () => app.shell.activateById(widget.id)
    });
    app.commands.addCommand('nbkit:reconnect', {
      label: trans.__('Reconnect to the GPU Monitor'),
      isEnabled: () => !['live', 'idle'].includes(model.connection),
      execute: () => model.retry()
    });
    app.commands.addCommand('nbkit:tensorboard-all-runs', {
      label: trans.__('Open TensorBoard for All Runs'),
      icon: tensorBoardIcon,
      execute: () => actions.openTensorBoard(allRuns(trans))
    });
    app.commands.addCommand('nbkit:tensorboard-study', {
      label: trans.__('Open TensorBoard for a Study…'),
      icon: tensorBoardIcon,
      execute: () => actions.openTensorBoardOfStudy()
    });
    for (const command of [
      OPEN_COMMAND,
      'nbkit:reconnect',
      'nbkit:tensorboard-all-runs',
      'nbkit:tensorboard-study'
    ]) {
      palette?.addItem({ command, category: CATEGORY });
    }
    if (registry) {
      settings.follow(registry, PANEL_PLUGIN).catch(error => {
        console.error('nbkit: the settings cannot be read', error);
      });
    }
    return { model, settings, actions };
  }
};

const status: JupyterFrontEndPlugin<void> = {
  id: 'nbkit:status',
  description: 'How many GPUs are busy, in the status bar.',
  autoStart: true,
  // Without the panel, which a user may disable, there is nothing to show.
  optional: [IMonitor, IStatusBar, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    monitor: IMonitor | null,
    statusBar: IStatusBar | null,
    translator: ITranslator | null
  ) => {
    if (!monitor || !statusBar) {
      return; // Notebook 7 has no status bar.
    }
    const { model, settings } = monitor;
    const trans = (translator ?? nullTranslator).load('nbkit');
    const item = new MonitorStatus(
      model,
      settings,
      trans,
      () => void app.commands.execute(OPEN_COMMAND)
    );
    statusBar.registerStatusItem('nbkit:status', {
      item,
      align: 'left',
      rank: 90,
      isActive: () => item.isActive,
      activeStateChanged: item.activeChanged
    });
  }
};

const running: JupyterFrontEndPlugin<void> = {
  id: 'nbkit:running',
  description: 'Runs in the Running Terminals and Kernels panel.',
  autoStart: true,
  optional: [IMonitor, IRunningSessionManagers, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    monitor: IMonitor | null,
    managers: IRunningSessionManagers | null,
    translator: ITranslator | null
  ) => {
    if (!monitor) {
      return;
    }
    const { model, actions } = monitor;
    const trans = (translator ?? nullTranslator).load('nbkit');
    managers?.add(
      new RunningRuns(
        model,
        actions,
        trans,
        () => void app.commands.execute(OPEN_COMMAND)
      )
    );
  }
};

const launcher: JupyterFrontEndPlugin<void> = {
  id: 'nbkit:launcher',
  description: 'Tiles that copy a canonical notebook into the current folder.',
  autoStart: true,
  optional: [ILauncher, ICommandPalette, IDefaultFileBrowser, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    tiles: ILauncher | null,
    palette: ICommandPalette | null,
    browser: IDefaultFileBrowser | null,
    translator: ITranslator | null
  ): void => {
    const addAll = async () => {
      const notebooks = await addNotebooks(
        app.commands,
        tiles,
        app.serviceManager,
        () => browser?.model.path ?? '',
        (translator ?? nullTranslator).load('nbkit')
      );
      for (const { name } of notebooks) {
        palette?.addItem({
          command: COPY_COMMAND,
          category: CATEGORY,
          args: { name, isPalette: true }
        });
      }
    };
    // Not awaited: JupyterLab would not start before the server answers.
    void addAll();
  }
};

export default [panel, status, running, launcher];
