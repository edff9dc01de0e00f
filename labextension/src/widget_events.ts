import { TranslationBundle } from '@jupyterlab/translation';

import { Actions } from './actions';
import { MonitorModel } from './model';
import { RunModel } from './run_model';
import { ICurvesRun, oneRun } from './tensorboard';

/** What nbkit's widgets in notebooks send about the run that they show. */
interface IShownRun {
  run_id: string;
  name: string | null;
  folder_path: string;
}

/** What a view asks of a run that it shows. */
interface IView {
  run_id: string;
  /** To be called where the server cannot show the run. */
  onGone: () => void;
  model: RunModel | null;
}

/**
 * Do what buttons of widgets ask for by events of the document, and let them speak the
 * language of Lab.
 *
 * An event that is taken is cancelled, so that the widget does nothing else.
 */
export function followWidgets(
  model: MonitorModel,
  actions: Actions,
  hasTabs: boolean,
  trans: TranslationBundle,
  feed: (runId: string) => RunModel
): void {
  follow<{ trans?: TranslationBundle }>('nbkit:language', asked => {
    asked.trans = trans;
  });
  follow<IShownRun>('nbkit:tensorboard', shown => {
    const known = model.runs?.find(({ run_id }) => run_id === shown.run_id);
    void actions.openTensorBoard(oneRun(known ?? unlisted(shown), trans));
  });
  follow<IShownRun>('nbkit:run', run => actions.openRun(run));
  if (hasTabs) {
    follow<{ runs: IShownRun[] }>('nbkit:compare', ({ runs }) => {
      const [run, ...others] = runs;
      if (run) {
        const ids = others.map(({ run_id }) => run_id);
        actions.openRun(run, ids);
      }
    });
  }
  follow<IView>('nbkit:view', view => {
    view.model = feed(view.run_id);
    view.model.onGone = view.onGone;
    view.model.connectionChanged.connect(({ connection }) => {
      if (['blocked', 'missing', 'forbidden'].includes(connection)) {
        view.onGone();
      }
    });
  });
  follow<{ study_id: string }>('nbkit:report', ({ study_id }) =>
    actions.showReport(study_id)
  );
}

/** Do what an event of a widget asks for. */
function follow<T>(name: string, open: (detail: T) => void): void {
  document.addEventListener(name, event => {
    event.preventDefault();
    open((event as CustomEvent<T>).detail);
  });
}

/** A run that is not among the newest that the server lists. */
function unlisted(run: IShownRun): ICurvesRun {
  return { ...run, folder: null };
}
