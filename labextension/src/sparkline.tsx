import * as React from 'react';

import { usePanel } from './context';
import { COARSE_SECONDS, FINE_SECONDS, HOST } from './history';
import { IRun } from './messages';
import { duration, inPercent } from './units';

const MOST_BINS = 120;
const LEAST_BINS = 10;
const LATE_SECONDS = 60;
const HEIGHT = 100;
/** As far as a key leads that leaps. */
const LEAP_BINS = 10;
/** How far the lines reach back, and in which steps they move on. */
interface ISpan {
  seconds: number;
  binSeconds: number;
  /** Number of bins. */
  count: number;
}

/** What is known of the GPUs or the host, up to what was chosen. */
function useSpan(of: 'gpus' | 'host'): ISpan {
  const { model, choices } = usePanel();
  const first = model.history.since(of) ?? model.serverTime;
  // A run's first sample comes late on a busy machine: its start belongs to it.
  const starts = (model.runs ?? [])
    .map(run => Date.parse(run.started ?? '') / 1000)
    .filter(t => first - LATE_SECONDS < t && t < first);
  const known = model.serverTime - Math.min(first, ...starts);
  const most = 60 * choices.historyMinutes;
  const seconds = Math.min(most, Math.max(LEAST_BINS, Math.ceil(known)));
  // Whole slots of the history: else each second would shift what the bins hold.
  const slot = seconds > FINE_SECONDS ? COARSE_SECONDS : 1;
  const binSeconds = slot * Math.ceil(seconds / MOST_BINS / slot);
  const count = Math.ceil(seconds / binSeconds);
  return { seconds: count * binSeconds, binSeconds, count };
}

/** Says once, above the lines, what they are and how far they reach back. */
export function Legend(props: {
  of: 'gpus' | 'host';
  area: string;
  /** Whether beginnings and ends of runs are marked. */
  marks?: boolean;
}): JSX.Element {
  const { trans } = usePanel();
  return (
    <p className="nbk-legend">
      <span className="nbk-key nbk-mod-area">{props.area}</span>
      <span className="nbk-key nbk-mod-line">{trans.__('memory')}</span>
      {props.marks && (
        <span
          className="nbk-mod-run"
          title={trans.__('Solid lines mark starts of runs, dashed lines ends')}
        >
          {trans.__('run')}
        </span>
      )}
      <span className="nbk-span">
        {trans.__('last %1', duration(useSpan(props.of).seconds, trans))}
      </span>
    </p>
  );
}

interface ISparklineProps {
  /** Key of a GPU, or the host. */
  owner: string;
  /** The quantity that is drawn as an area. */
  area: string;
  /** What it is called in the legend. */
  areaName: string;
  /** The quantity that is drawn as a line above it: a share of memory. */
  line: string;
  /** What the area shows, for a screen reader. */
  name: string;
  /** Runs whose beginning and end are marked. */
  runs?: readonly IRun[];
  /** Whether the ends of both axes are labelled. */
  axes?: boolean;
}

/**
 * The past of a percentage; a gap in what is known is a gap in the drawing.
 *
 * A place in it is pointed at by the mouse, or by the arrow keys.
 */
export function Sparkline(props: ISparklineProps): JSX.Element {
  const { trans, model } = usePanel();
  // Where the mouse is, as a share of the width.
  const [pointed, point] = React.useState<number | null>(null);
  // What the keys chose, in Unix seconds: it moves on with the drawing.
  const [moment, choose] = React.useState<number | null>(null);
  const {
    seconds: spanSeconds,
    binSeconds,
    count
  } = useSpan(props.owner === HOST ? 'host' : 'gpus');
  // Whole bins, so that the drawing moves on in steps and does not shimmer.
  const end = (Math.floor(model.serverTime / binSeconds) + 1) * binSeconds;
  const bins = (quantity: string) =>
    model.history.bins(props.owner, quantity, end, count, binSeconds);
  const area = bins(props.area);
  const line = bins(props.line);
  const place = (iso: string) =>
    count - (end - Date.parse(iso) / 1000) / binSeconds;
  const marks = (props.runs ?? []).flatMap(run =>
    [
      { run, iso: run.started, kind: 'start' },
      { run, iso: run.ended, kind: 'end' }
    ].flatMap(({ iso, kind }) =>
      iso !== null && place(iso) >= 0 && place(iso) <= count
        ? [{ run, kind, x: place(iso) }]
        : []
    )
  );
  const bin = pointedBin();
  const span = duration(spanSeconds, trans);
  const plot = (
    <div
      className="nbk-plot"
      role="slider"
      tabIndex={0}
      aria-label={trans.__('%1, last %2', props.name, span)}
      aria-valuemin={Math.round(end - spanSeconds)}
      aria-valuemax={Math.round(end)}
      aria-valuenow={Math.round(middle(bin ?? count - 1))}
      aria-valuetext={bin === null ? summary() : tip(bin)}
      onMouseMove={event => {
        const box = event.currentTarget.getBoundingClientRect();
        point((event.clientX - box.left) / box.width);
      }}
      onMouseLeave={() => point(null)}
      onFocus={event => {
        if (event.currentTarget.matches(':focus-visible')) {
          choose(middle(count - 1));
        }
      }}
      onBlur={() => choose(null)}
      onKeyDown={event => {
        if (event.altKey || event.ctrlKey || event.metaKey) {
          return; // It belongs to the browser, or to Lab.
        }
        const next = nextBin(event.key, bin ?? count);
        if (next !== undefined) {
          event.preventDefault();
          point(null);
          choose(next === null ? null : middle(within(next)));
        }
      }}
    >
      <svg
        className="nbk-sparkline"
        viewBox={`0 0 ${count} ${HEIGHT}`}
        preserveAspectRatio="none"
        aria-hidden="true"
      >
        <path className="nbk-sparkline-area" d={areaPath(area)} />
        <path className="nbk-sparkline-edge" d={linePath(area)} />
        <path className="nbk-sparkline-line" d={linePath(line)} />
        {marks.map(({ run, kind, x }) => (
          <line
            key={`${run.run_id} ${kind}`}
            className={`nbk-sparkline-mark nbk-mod-${kind}`}
            x1={x}
            x2={x}
            y1={0}
            y2={HEIGHT}
          />
        ))}
        {bin !== null && (
          <line
            className="nbk-sparkline-cursor"
            x1={bin + 0.5}
            x2={bin + 0.5}
            y1={0}
            y2={HEIGHT}
          />
        )}
      </svg>
      {bin !== null && (
        <div
          className={`nbk-tip ${bin < count / 2 ? 'nbk-mod-left' : ''}`}
          aria-hidden="true"
        >
          {tip(bin)}
        </div>
      )}
    </div>
  );
  return props.axes ? (
    <div className="nbk-axes">
      <div className="nbk-axis nbk-mod-share" aria-hidden="true">
        <span>{inPercent(100, trans)}</span>
        <span>{inPercent(0, trans)}</span>
      </div>
      {plot}
      <div className="nbk-axis nbk-mod-time" aria-hidden="true">
        <span>{trans.__('%1 ago', span)}</span>
        <span>{trans.__('now')}</span>
      </div>
    </div>
  ) : (
    plot
  );

  function within(bin: number): number {
    return Math.min(count - 1, Math.max(0, bin));
  }

  /** The middle of a bin in Unix seconds. */
  function middle(bin: number): number {
    return end - (count - bin - 0.5) * binSeconds;
  }

  function pointedBin(): number | null {
    if (pointed !== null) {
      return within(Math.floor(pointed * count));
    }
    return moment === null
      ? null
      : within(Math.floor(count - (end - moment) / binSeconds));
  }

  /** Where a key leads to; null hides the values; undefined is another key. */
  function nextBin(key: string, from: number): number | null | undefined {
    switch (key) {
      case 'ArrowLeft':
      case 'ArrowDown':
        return from - 1;
      case 'ArrowRight':
      case 'ArrowUp':
        return from + 1;
      case 'PageDown':
        return from - LEAP_BINS;
      case 'PageUp':
        return from + LEAP_BINS;
      case 'Home':
        return 0;
      case 'End':
        return count - 1;
      case 'Escape':
        return null;
    }
  }

  /** Time and values of a bin, and the runs that began or ended in it. */
  function tip(bin: number): string {
    const time = new Date((end - (count - bin) * binSeconds) * 1000);
    const events = marks
      .filter(({ x }) => Math.abs(x - bin - 0.5) <= count / 100 + 0.5)
      .map(({ run, kind }) =>
        kind === 'start'
          ? trans.__('%1 started', run.name ?? run.run_id)
          : trans.__('%1 ended', run.name ?? run.run_id)
      );
    const share = area[bin] ?? null;
    const memory = line[bin] ?? null;
    const values =
      share === null && memory === null
        ? [trans.__('no data')]
        : [
            `${props.areaName} ${inPercent(share, trans)}`,
            trans.__('memory %1', inPercent(memory, trans))
          ];
    return [time.toLocaleTimeString(), ...values, ...events].join(' · ');
  }

  function summary(): string {
    const known = area.filter(value => value !== null);
    if (!known.length) {
      return trans.__('no data');
    }
    const mean = known.reduce((sum, value) => sum + value, 0) / known.length;
    return trans.__(
      'mean %1%, maximum %2%',
      Math.round(mean),
      Math.round(Math.max(...known))
    );
  }
}

type Bins = readonly (number | null)[];

/** Stretches without a gap, as points from left to right. */
function stretches(bins: Bins): [number, number][][] {
  const lines: [number, number][][] = [];
  let open: [number, number][] = [];
  bins.forEach((value, place) => {
    if (value === null) {
      open = [];
      return;
    }
    if (!open.length) {
      lines.push(open);
    }
    const y = Math.round(HEIGHT - value);
    open.push([place, y], [place + 1, y]);
  });
  return lines;
}

function linePath(bins: Bins): string {
  return stretches(bins)
    .map(points => `M${points.map(point => point.join(' ')).join('L')}`)
    .join('');
}

function areaPath(bins: Bins): string {
  return stretches(bins)
    .map(points => {
      const from = points[0]![0];
      const to = points[points.length - 1]![0];
      const top = points.map(point => point.join(' ')).join('L');
      return `M${from} ${HEIGHT}L${top}L${to} ${HEIGHT}Z`;
    })
    .join('');
}
