import {
  caretDownIcon,
  caretRightIcon,
  copyIcon,
  folderIcon
} from '@jupyterlab/ui-components';
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { usePanel } from './context';
import { IconButton } from './icon_button';
import { reportIcon, tensorBoardIcon } from './icons';
import { IRun, IStudyRow, StudyState } from './messages';
import { Meter } from './meter';
import { Run } from './runs';
import { ofStudy } from './tensorboard';
import { duration } from './units';

/** A study: how far it is, what it says so far, its report, and its newest runs. */
export function Study(props: {
  study: IStudyRow;
  runs: readonly IRun[];
}): JSX.Element {
  const { trans, actions, model } = usePanel();
  const [isOpen, open] = React.useState(false);
  const { study, runs } = props;
  const name = study.name ?? study.study_id;
  const caret = isOpen ? caretDownIcon : caretRightIcon;
  const { num_finished, num_starts } = study;
  const left = secondsLeft();
  const changed = study.changed === null ? null : Date.parse(study.changed);
  const ago =
    changed === null ? null : Math.max(0, model.serverTime - changed / 1000);
  const count = num_starts
    ? trans.__('%1 of %2 starts', num_finished, num_starts)
    : '';
  return (
    <li className="nbk-run nbk-study" aria-label={name}>
      <div className="nbk-row">
        <button
          type="button"
          className="nbk-toggle"
          aria-expanded={isOpen}
          title={`${name}\n${study.study_id}`}
          onClick={() => open(!isOpen)}
        >
          <caret.react tag="span" className="nbk-caret" aria-hidden="true" />
          <span className="nbk-name">{name}</span>
        </button>
        <span className={`nbk-word nbk-mod-${study.state}`}>
          {stateWord(study.state, trans)}
        </span>
        {study.num_finished > 0 && (
          <IconButton
            icon={reportIcon}
            label={trans.__('Open the report of %1', name)}
            onClick={() => actions.showReport(study.study_id)}
          />
        )}
        {runs.some(run => run.tensorboard) && (
          <IconButton
            icon={tensorBoardIcon}
            label={trans.__('Open TensorBoard for %1', name)}
            onClick={() => void actions.openTensorBoard(ofStudy(study, trans))}
          />
        )}
        {study.folder !== null && actions.canOpenFolder() ? (
          <IconButton
            icon={folderIcon}
            label={trans.__('Open the folder of %1', name)}
            onClick={() => void actions.openFolder(study.folder!)}
          />
        ) : (
          <IconButton
            icon={copyIcon}
            label={trans.__('Copy the path of %1', name)}
            onClick={() => void actions.copyPath(study.folder_path)}
          />
        )}
      </div>
      {study.state === 'running' ? (
        <Meter
          kind="progress"
          label={count}
          name={trans.__('Progress of %1', name)}
          text={
            left === null
              ? ''
              : left > 0
                ? trans.__('about %1 left', duration(left, trans))
                : trans.__('ends soon')
          }
          percent={num_starts ? (100 * num_finished) / num_starts : null}
        />
      ) : (
        <div className="nbk-note">
          {[count, ago !== null && trans.__('%1 ago', duration(ago, trans))]
            .filter(Boolean)
            .join(' · ')}
        </div>
      )}
      {study.state === 'incomplete' && study.command !== null && (
        <div className="nbk-row nbk-note">
          <span className="nbk-name">
            {trans.__('Continue: %1', study.command)}
          </span>
          <IconButton
            icon={copyIcon}
            label={trans.__('Copy the command that continues %1', name)}
            onClick={() => void actions.copyPath(study.command!)}
          />
        </div>
      )}
      {study.damage !== null && (
        <div className="nbk-note nbk-cause">{study.damage}</div>
      )}
      {study.answer !== null && (
        <div className="nbk-note nbk-answer" title={study.answer}>
          {study.answer}
        </div>
      )}
      {isOpen &&
        (runs.length ? (
          <ul className="nbk-runs nbk-mod-inner">
            {runs.map(run => (
              <Run key={run.run_id} run={run} />
            ))}
          </ul>
        ) : (
          <p className="nbk-note nbk-mod-inner">
            {trans.__('No runs of this study are among the newest runs.')}
          </p>
        ))}
    </li>
  );

  function secondsLeft(): number | null {
    return study.expected_end === null
      ? null
      : Date.parse(study.expected_end) / 1000 - model.serverTime;
  }
}

function stateWord(state: StudyState, trans: TranslationBundle): string {
  const words: Record<StudyState, string> = {
    planned: trans.__('planned'),
    running: trans.__('running'),
    incomplete: trans.__('incomplete'),
    finished: trans.__('finished')
  };
  return words[state];
}
