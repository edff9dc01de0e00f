import { stopIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import { usePanel } from './context';
import { IconButton } from './icon_button';
import { hasEnded, IRun } from './messages';

/** Ends a run; nothing where it has ended. */
export function StopRun({ run }: { run: IRun }): JSX.Element | null {
  const { trans, actions } = usePanel();
  if (hasEnded(run)) {
    return null;
  }
  return (
    <IconButton
      icon={stopIcon}
      label={trans.__('Stop the run %1', run.name ?? run.run_id)}
      refusal={
        run.state === 'stopping'
          ? trans.__('The run is already stopping')
          : actions.refusal(run.own)
      }
      onClick={() => void actions.stop(run)}
    />
  );
}
