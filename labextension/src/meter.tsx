import * as React from 'react';

interface IMeterProps {
  /** What is measured, for the eye; null where the bar's colour says it. */
  label: string | null;
  /** What is measured, for a screen reader; `label` if omitted. */
  name?: string;
  /** The value with its unit. */
  text: string;
  /** 0 to 100; null where it is unknown. */
  percent: number | null;
  /** A second part after the first, such as memory reserved by the driver. */
  secondPercent?: number | null;
  kind: 'utilization' | 'memory' | 'power' | 'progress';
  /** More about the value, such as why it is unknown. */
  title?: string | undefined;
}

/** A value in words above a bar. */
export function Meter(props: IMeterProps): JSX.Element {
  const width = (value: number | null | undefined) => ({
    width: `${Math.min(100, Math.max(0, value ?? 0)).toFixed(1)}%`
  });
  const known = props.percent !== null;
  const name = props.name ?? props.label;
  // A tooltip alone would be for users of a mouse only.
  const why = known || !props.title ? '' : ` (${props.title})`;
  return (
    <div
      className={`nbk-meter nbk-mod-${props.kind} ${props.label === null ? 'nbk-mod-plain' : ''}`}
      role={known ? 'meter' : 'group'}
      aria-label={`${name}: ${props.text}${why}`}
      {...(known && {
        'aria-valuemin': 0,
        'aria-valuemax': 100,
        'aria-valuenow': Math.round(Math.min(100, props.percent!)),
        'aria-valuetext': props.text
      })}
      title={props.title}
    >
      {props.label !== null && (
        <span className="nbk-meter-label">{props.label}</span>
      )}
      <span className="nbk-meter-text">{props.text}</span>
      <span className="nbk-meter-bar">
        <span className="nbk-meter-fill" style={width(props.percent)} />
        {!!props.secondPercent && (
          <span
            className="nbk-meter-second"
            style={width(props.secondPercent)}
          />
        )}
      </span>
    </div>
  );
}
