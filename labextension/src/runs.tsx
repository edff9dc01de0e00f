import { copyIcon, folderIcon } from '@jupyterlab/ui-components';
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { usePanel } from './context';
import { IconButton } from './icon_button';
import { tensorBoardIcon } from './icons';
import { hasEnded, IRun, RunState } from './messages';
import { Meter } from './meter';
import { Nodes } from './nodes';
import { Section } from './section';
import { StopRun } from './stop_run';
import { Study } from './studies';
import { allRuns, oneRun } from './tensorboard';
import { duration, figures, UNKNOWN } from './units';

const FEW = 5;

const SIGNS: Record<RunState, string> = {
  queued: '◌',
  starting: '◔',
  running: '●',
  stopping: '◕',
  finished: '✓',
  failed: '✕',
  stopped: '□',
  lost: '?',
  unknown: '?'
};

const WARNING = '▲';

/** The newest runs and studies: active ones first, then those that ended last. */
export function Runs(): JSX.Element {
  const { trans, actions, model } = usePanel();
  const [all, setAll] = React.useState(false);
  const runs = model.runs ?? [];
  const fault = model.status?.runs_fault;
  const studies = new Map(
    model.studies.map(study => [
      study.study_id,
      runs.filter(run => run.study_id === study.study_id)
    ])
  );
  const rows = [
    ...model.studies.map(study => ({
      key: study.study_id,
      goes: study.state === 'running',
      last: study.changed === null ? 0 : Date.parse(study.changed),
      row: <Study study={study} runs={studies.get(study.study_id)!} />
    })),
    ...runs
      .filter(run => run.study_id === null || !studies.has(run.study_id))
      .map(run => ({
        key: run.run_id,
        goes: !hasEnded(run),
        last: lastMoment(run),
        row: <Run run={run} />
      }))
  ].sort((row, other) =>
    row.goes === other.goes
      ? row.goes
        ? 0
        : other.last - row.last
      : Number(other.goes) - Number(row.goes)
  );
  const going = runs.filter(run => !hasEnded(run)).length;
  const hasCurves = runs.some(run => run.tensorboard);
  React.useEffect(() => {
    if (hasCurves) {
      actions.prepareTensorBoard();
    }
  }, [hasCurves]);
  const few = Math.max(FEW, rows.filter(({ goes }) => goes).length);
  const notes = (
    <span className="nbk-heading-note nbk-heading-tools">
      {going > 0 && trans._n('%1 active', '%1 active', going)}
      {hasCurves && (
        <IconButton
          icon={tensorBoardIcon}
          label={trans.__('Open TensorBoard for all runs')}
          onClick={() => void actions.openTensorBoard(allRuns(trans))}
        />
      )}
    </span>
  );
  return (
    <Section id="runs" title={trans.__('Runs')} notes={notes}>
      {fault && (
        <p className="nbk-note">
          {model.runs === null
            ? trans.__('The runs cannot be read: %1', fault)
            : trans.__('The list is not updated: %1', fault)}
        </p>
      )}
      {!fault && !rows.length && (
        <p className="nbk-note">
          {trans.__(
            'No runs in %1. Start one with nbkit.launch(…) in a notebook. If the notebook uses another NBKIT_HOME, start Jupyter with that NBKIT_HOME.',
            model.status?.store ?? UNKNOWN
          )}
        </p>
      )}
      <ul className="nbk-runs">
        {rows.slice(0, all ? rows.length : few).map(({ key, row }) => (
          <React.Fragment key={key}>{row}</React.Fragment>
        ))}
      </ul>
      {rows.length > few && (
        <button
          type="button"
          className="nbk-link nbk-more"
          aria-expanded={all}
          onClick={() => setAll(!all)}
        >
          {all
            ? trans.__('Show fewer')
            : trans.__('%1 more', rows.length - few)}
        </button>
      )}
    </Section>
  );
}

/** When a run has ended, else began, in Unix milliseconds. */
function lastMoment(run: IRun): number {
  const moment = run.ended ?? run.started;
  return moment === null ? 0 : Date.parse(moment);
}

/** One run, with what it does or what became of it. */
export function Run({ run }: { run: IRun }): JSX.Element {
  const { trans, actions, model } = usePanel();
  const name = run.name ?? run.run_id;
  const word = stateWord(run.state, trans);
  const progress =
    run.step !== null && run.total_steps
      ? (100 * run.step) / run.total_steps
      : null;
  const began = run.started === null ? null : Date.parse(run.started) / 1000;
  const seconds = began === null ? 0 : model.serverTime - began;
  const age = seconds > 0 ? trans.__('for %1', duration(seconds, trans)) : null;
  return (
    <li className="nbk-run">
      <div className="nbk-row">
        <span
          className={`nbk-state nbk-mod-${warns(run) ? 'warn' : run.state}`}
          aria-hidden="true"
        >
          {warns(run) ? WARNING : SIGNS[run.state]}
        </span>
        <button
          type="button"
          className="nbk-name nbk-link"
          title={`${name}\n${run.run_id}`}
          onClick={() => actions.openRun(run)}
        >
          {name}
        </button>
        <span className={`nbk-word nbk-mod-${run.state}`}>{word}</span>
        <StopRun run={run} />
        {run.tensorboard && (
          <IconButton
            icon={tensorBoardIcon}
            label={trans.__('Open TensorBoard for %1', name)}
            onClick={() => void actions.openTensorBoard(oneRun(run, trans))}
          />
        )}
        {run.folder !== null && actions.canOpenFolder() ? (
          <IconButton
            icon={folderIcon}
            label={trans.__('Open the folder of %1', name)}
            onClick={() => void actions.openFolder(run.folder!)}
          />
        ) : (
          <IconButton
            icon={copyIcon}
            label={trans.__('Copy the path of %1', name)}
            onClick={() => void actions.copyPath(run.folder_path)}
          />
        )}
      </div>
      {run.nonfinite && !run.cause?.includes(run.nonfinite) && (
        <div className="nbk-note nbk-nonfinite">{run.nonfinite}</div>
      )}
      {hasEnded(run) ? (
        <div className="nbk-note" title={moment(run)}>
          {result(run, model.serverTime, trans)}
        </div>
      ) : run.state === 'queued' ? (
        <Queued run={run} />
      ) : (
        <>
          {progress !== null && (
            <Meter
              kind="progress"
              label={steps(run, trans)}
              name={trans.__('Progress of %1', name)}
              text={speed(run, trans)}
              percent={progress}
            />
          )}
          <div className="nbk-note">
            {joined(
              progress === null ? steps(run, trans) : null,
              progress === null ? speed(run, trans) : null,
              loss(run, trans),
              age
            )}
          </div>
        </>
      )}
      {run.num_nodes > 0 && <Nodes run={run} />}
      {run.cause !== null && run.cause !== '' && (
        <div className="nbk-note nbk-cause" title={run.cause}>
          {run.cause}
        </div>
      )}
    </li>
  );
}

/** Where a run waits, and for what. */
function Queued({ run }: { run: IRun }): JSX.Element | null {
  const { trans, model } = usePanel();
  if (run.queue === null) {
    return null;
  }
  const { position, length, reason, since } = run.queue;
  const seconds = model.serverTime - Date.parse(since) / 1000;
  return (
    <>
      <div className="nbk-note">
        {joined(
          position === null
            ? null
            : trans.__('position %1 of %2', position, length),
          seconds > 0 ? trans.__('for %1', duration(seconds, trans)) : null
        )}
      </div>
      <div className="nbk-note nbk-cause" title={reason}>
        {reason}
      </div>
    </>
  );
}

function steps(run: IRun, trans: TranslationBundle): string {
  if (run.step === null) {
    return trans.__('no step yet');
  }
  const step = figures(run.step);
  return run.total_steps
    ? trans.__('step %1/%2', step, figures(run.total_steps))
    : trans.__('step %1', step);
}

function speed(run: IRun, trans: TranslationBundle): string {
  return run.images_per_second === null
    ? ''
    : trans.__('%1 images/s', figures(run.images_per_second));
}

function loss(run: IRun, trans: TranslationBundle): string {
  return run.loss === null ? '' : trans.__('loss %1', figures(run.loss));
}

/** When a run has ended, in the visitor's own way. */
function moment(run: IRun): string {
  return run.ended === null ? '' : new Date(run.ended).toLocaleString();
}

function result(run: IRun, now: number, trans: TranslationBundle): string {
  const seconds =
    run.ended === null || !now
      ? null
      : Math.max(0, now - Date.parse(run.ended) / 1000);
  const ago =
    seconds === null ? null : trans.__('%1 ago', duration(seconds, trans));
  const isWhole = run.step !== null && run.step === run.total_steps;
  return joined(
    ago && run.state === 'lost' ? trans.__('last activity %1', ago) : ago,
    run.step === null || isWhole ? null : steps(run, trans),
    speed(run, trans),
    loss(run, trans),
    run.imported_from && trans.__('imported from %1', run.imported_from)
  );
}

function joined(...parts: (string | null)[]): string {
  return parts.filter(part => part).join(' · ');
}

/** Whether a run that has not failed trained values that are not finite. */
function warns(run: IRun): boolean {
  return !!run.nonfinite && !['failed', 'lost'].includes(run.state);
}

/** The state of a run, and where it stopped being finite. */
export function stateWords(run: IRun, trans: TranslationBundle): string {
  return joined(stateWord(run.state, trans), run.nonfinite);
}

/** The state of a run as a person says it. */
function stateWord(state: RunState, trans: TranslationBundle): string {
  const words: Record<RunState, string> = {
    queued: trans.__('queued'),
    starting: trans.__('starting'),
    running: trans.__('running'),
    stopping: trans.__('stopping'),
    finished: trans.__('finished'),
    failed: trans.__('failed'),
    stopped: trans.__('stopped'),
    lost: trans.__('lost'),
    unknown: trans.__('unknown')
  };
  return words[state];
}
