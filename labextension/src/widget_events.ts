import { TranslationBundle } from '@jupyterlab/translation';

import { Actions } from './actions';
import { IRun } from './messages';
import { MonitorModel } from './model';
import { oneRun } from './tensorboard';

/** What nbkit's widgets in notebooks tell of the run that they show. */
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

/** A run that is not among the newest that the server tells of. */
function unlisted({ run_id, name, folder_path }: IShownRun): IRun {
  return {
    run_id,
    name,
    state: 'lost',
    cause: null,
    started: null,
    ended: null,
    step: null,
    total_steps: null,
    images_per_second: null,
    loss: null,
    devices: [],
    queue: null,
    imported_from: null,
    notebook: null,
    folder: null,
    folder_path,
    tensorboard: true,
    own: false
  };
}
