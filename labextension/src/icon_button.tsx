import { LabIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

interface IIconButtonProps {
  icon: LabIcon;
  /** What it does to what; also the tooltip. */
  label: string;
  /** Why it cannot be used; null if it can. */
  refusal?: string | null;
  onClick: () => void;
}

/** A button that can be focused and explains itself also where it is refused. */
export function IconButton(props: IIconButtonProps): JSX.Element {
  const refusal = props.refusal ?? null;
  const label = refusal === null ? props.label : `${props.label} – ${refusal}`;
  return (
    <button
      type="button"
      className="nbk-icon-button"
      aria-label={label}
      aria-disabled={refusal !== null}
      title={label}
      onClick={() => refusal === null && props.onClick()}
    >
      <props.icon.react tag="span" aria-hidden="true" />
    </button>
  );
}
