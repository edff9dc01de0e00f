import {
  ILabShell,
  ILayoutRestorer,
  IRouter,
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette, MainAreaWidget } from '@jupyterlab/apputils';
import { IDefaultFileBrowser } from '@jupyterlab/filebrowser';
import { ILauncher } from '@jupyterlab/launcher';
import { IRunningSessionManagers } from '@jupyterlab/running';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { JSONObject, Token } from '@lumino/coreutils';
import { Widget } from '@lumino/widgets';

import { Actions, REPORT_COMMAND, RUN_COMMAND } from './actions';
import { gpuIcon, reportIcon, runIcon, tensorBoardIcon } from './icons';
import { addNotebooks, COPY_COMMAND } from './launcher';
import { MonitorModel } from './model';
import { PAGE_ADDRESS, Pages } from './pages';
import { MonitorPanel } from './panel';
import { ReportPage } from './report_page';
import { RunModel } from './run_model';
import { RunPage } from './run_page';
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
  'Provides data on GPUs, runs and the host from the server.'
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
    ILabShell,
    IRouter
  ],
  activate: (
    app: JupyterFrontEnd,
    translator: ITranslator | null,
    registry: ISettingRegistry | null,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null,
    labShell: ILabShell | null,
    router: IRouter | null
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
    const curves = {
      get: () => settings.choices.curves,
      set: (choices: JSONObject) => settings.keepCurves(choices)
    };
    followWidgets(model, actions, labShell !== null, trans, runId => {
      const isAllowed = () => null; // the server says what it refuses
      return new RunModel(
        serverSettings,
        runId,
        isAllowed,
        trans,
        curves,
        false
      );
    });
    const runs = new Pages(
      'run',
      labShell,
      runIcon,
      (id, tab: () => MainAreaWidget<RunPage>) =>
        new RunPage(id, serverSettings, actions, trans, curves, tab)
    );
    const reports = new Pages(
      'report',
      labShell,
      reportIcon,
      (id, tab: () => MainAreaWidget<ReportPage>) =>
        new ReportPage(id, serverSettings, actions, trans, tab)
    );
    app.commands.addCommand(RUN_COMMAND, {
      label: trans.__('Open Run'),
      execute: ({ id, label, others }) => {
        const page = runs.open(String(id), String(label ?? id));
        page?.compare((others ?? []) as string[]);
      }
    });
    app.commands.addCommand(REPORT_COMMAND, {
      label: trans.__('Open Report of Study'),
      execute: ({ id, label }) => {
        reports.open(String(id), String(label ?? id));
      }
    });
    bringBack(app, restorer, runs);
    bringBack(app, restorer, reports);
    if (router && labShell) {
      openAddressed(app, router);
    }
    app.commands.addCommand(OPEN_COMMAND, {
      label: trans.__('Show GPUs and Runs'),
      caption: trans.__('Show GPUs, their processes, and runs'),
      icon: gpuIcon,
      execute: () => {
        app.shell.activateById(widget.id);
        return widget.focus();
      }
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
    app.commands.addCommand('nbkit:report-study', {
      label: trans.__('Open Report of a Study…'),
      icon: reportIcon,
      execute: () => actions.openReportOfStudy()
    });
    for (const command of [
      OPEN_COMMAND,
      'nbkit:report-study',
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

/** Let Lab bring tabs back where it is loaded again. */
function bringBack<T extends Widget>(
  app: JupyterFrontEnd,
  restorer: ILayoutRestorer | null,
  pages: Pages<T>
): void {
  const command = `nbkit:${pages.what}-again`;
  app.commands.addCommand(command, {
    execute: args => pages.bringBack(args)
  });
  void restorer?.restore(pages.tabs, {
    command,
    args: tab => pages.argumentsOf(tab),
    name: tab => tab.id
  });
}

/** Open the page that Lab's address names, and take it out of the address. */
function openAddressed(app: JupyterFrontEnd, router: IRouter): void {
  const command = 'nbkit:open-addressed';
  app.commands.addCommand(command, {
    execute: async args => {
      const { path, hash, search } = args as unknown as IRouter.ILocation;
      const query = new URLSearchParams(search);
      if (query.has('reset')) {
        // Such as in a second tab of Lab: it loads the address again without it.
        return;
      }
      const wanted: [string, string | null][] = [
        [RUN_COMMAND, query.get('nbkit-run')],
        [REPORT_COMMAND, query.get('nbkit-report')]
      ];
      query.delete('nbkit-run');
      query.delete('nbkit-report');
      const rest = query.size ? `?${query}` : '';
      // What else Lab was left with comes first.
      await app.restored;
      router.navigate(`${path}${rest}${hash}`, { skipRouting: true });
      for (const [open, id] of wanted) {
        if (id) {
          await app.commands.execute(open, { id });
        }
      }
    }
  });
  router.register({ command, pattern: PAGE_ADDRESS });
}

const status: JupyterFrontEndPlugin<void> = {
  id: 'nbkit:status',
  description: 'Number of busy GPUs in the status bar.',
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
    _app: JupyterFrontEnd,
    monitor: IMonitor | null,
    managers: IRunningSessionManagers | null,
    translator: ITranslator | null
  ) => {
    if (!monitor) {
      return;
    }
    const { model, actions } = monitor;
    const trans = (translator ?? nullTranslator).load('nbkit');
    managers?.add(new RunningRuns(model, actions, trans));
  }
};

const launcher: JupyterFrontEndPlugin<void> = {
  id: 'nbkit:launcher',
  description: 'Launcher tiles that copy notebooks into the current folder.',
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
