import { TranslationBundle } from '@jupyterlab/translation';

import { Actions } from './actions';
import { MonitorModel } from './model';
import { ICurvesRun, oneRun } from './tensorboard';

/** What nbkit's widgets in notebooks send about the run that they show. */
interface IShownRun {
  run_id: string;
  name: string | null;
  folder_path: string;
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
  trans: TranslationBundle
): void {
  follow<{ trans?: TranslationBundle }>('nbkit:language', asked => {
    asked.trans = trans;
  });
  follow<IShownRun>('nbkit:tensorboard', shown => {
    const known = model.runs?.find(({ run_id }) => run_id === shown.run_id);
    void actions.openTensorBoard(oneRun(known ?? unlisted(shown), trans));
  });
  follow<IShownRun>('nbkit:run', run => actions.openRun(run));
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
