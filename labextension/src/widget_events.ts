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
 * Do what buttons of widgets ask for by events of the document.
 *
 * An event that is taken is cancelled, so that the widget does nothing else.
 */
export function followWidgets(
  model: MonitorModel,
  actions: Actions,
  trans: TranslationBundle
): void {
  document.addEventListener('nbkit:tensorboard', event => {
    const shown = (event as CustomEvent<IShownRun>).detail;
    const known = model.runs?.find(({ run_id }) => run_id === shown.run_id);
    event.preventDefault();
    void actions.openTensorBoard(oneRun(known ?? unlisted(shown), trans));
  });
}

/** A run that is not among the newest that the server lists. */
function unlisted(run: IShownRun): ICurvesRun {
  return { ...run, folder: null };
}
