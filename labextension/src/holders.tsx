import {
  closeIcon,
  LabIcon,
  notebookIcon,
  stopIcon,
  userIcon
} from '@jupyterlab/ui-components';
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { usePanel } from './context';
import { IconButton } from './icon_button';
import { runIcon } from './icons';
import { IGpu, IHolder, migLabels } from './messages';
import { StopRun } from './stop_run';
import {
  baseName,
  duration,
  gigabytes,
  memoryWithUnit,
  UNKNOWN
} from './units';
import { translated } from './words';

/** Processes of one run, one kernel, or one stranger. */
interface IGroup {
  key: string;
  holders: IHolder[];
  /** Sum over the processes; null where one of them is unknown. */
  memoryMib: number | null;
}

interface IHoldersProps {
  gpu: IGpu;
  memoryMib: readonly (number | null)[];
  /** Without it, only the first few and no details. */
  expanded: boolean;
}

const FEW = 3;

/** Who has memory on a GPU, and what can be done about it. */
export function Holders(props: IHoldersProps): JSX.Element | null {
  const { trans } = usePanel();
  const [all, setAll] = React.useState(false);
  const { gpu } = props;
  if (gpu.holders === null) {
    const reason = gpu.unavailable.processes;
    return (
      <p className="nbk-note">
        {reason
          ? trans.__(
              'GPU processes are unknown (%1).',
              translated(reason, trans)
            )
          : trans.__('GPU processes are unknown.')}
      </p>
    );
  }
  const groups = group(gpu.holders, props.memoryMib);
  if (!groups.length) {
    return props.expanded ? (
      <p className="nbk-note">{trans.__('No processes on this GPU.')}</p>
    ) : null;
  }
  const shown = props.expanded || all ? groups : groups.slice(0, FEW);
  const rest = groups.length - shown.length;
  return (
    <>
      <ul
        className="nbk-holders"
        aria-label={trans.__('Processes on GPU %1', gpu.index)}
      >
        {shown.map(item => (
          <Holder key={item.key} group={item} {...props} />
        ))}
      </ul>
      {rest > 0 && (
        <button
          type="button"
          className="nbk-link nbk-more"
          onClick={() => setAll(true)}
        >
          {trans._n('%1 more', '%1 more', rest)}
        </button>
      )}
    </>
  );
}

interface IHolderProps {
  gpu: IGpu;
  group: IGroup;
  expanded: boolean;
}

function Holder({ gpu, group, expanded }: IHolderProps): JSX.Element {
  const { trans, model, actions, choices } = usePanel();
  const holder = group.holders[0]!;
  const unit = choices.memoryUnit;
  const held =
    group.memoryMib === null
      ? null
      : memoryWithUnit(group.memoryMib, unit, trans);
  const name = label(holder, trans);
  const details = describe(group, trans);
  const instance =
    holder.mig_uuid === null
      ? null
      : (migLabels(gpu).get(holder.mig_uuid) ?? holder.mig_uuid);
  const refusal = actions.holderRefusal(holder.own);
  const run = model.runs?.find(({ run_id }) => run_id === holder.run_id);
  const isRecorded =
    model.inventory?.source === 'replay' &&
    !run &&
    !actions.hasKernel(holder.kernel_id);
  const kernel =
    holder.kind === 'kernel' &&
    holder.kernel_id !== null &&
    // What belongs to others is refused with the reason.
    !(isRecorded && holder.own)
      ? {
          kernel_id: holder.kernel_id,
          path: holder.path,
          own: holder.own,
          processes: group.holders,
          idle_since: holder.idle_since,
          holds: trans.__('%1 on GPU %2', held ?? trans.__('memory'), gpu.index)
        }
      : null;
  const idleSeconds = idle();
  return (
    <li className="nbk-holder">
      <div className="nbk-row">
        <HolderIcon kind={holder.kind} />
        {holder.path === null || isRecorded ? (
          <span
            className="nbk-name"
            title={`${isRecorded ? trans.__('Recorded: %1', name) : name}\n${details}`}
          >
            {name}
          </span>
        ) : (
          <button
            type="button"
            className="nbk-name nbk-link"
            title={`${trans.__('Open %1', holder.path)}\n${details}`}
            onClick={() => void actions.openNotebook(holder.path!)}
          >
            {name}
          </button>
        )}
        {instance !== null && <span className="nbk-word">{instance}</span>}
        <span className="nbk-number">{held ?? UNKNOWN}</span>
        {kernel && (
          <>
            <IconButton
              icon={stopIcon}
              label={trans.__('Interrupt %1', actions.kernelName(kernel))}
              refusal={refusal}
              onClick={() => void actions.interrupt(kernel)}
            />
            <IconButton
              icon={closeIcon}
              label={trans.__('Shut down %1', actions.kernelName(kernel))}
              refusal={refusal}
              onClick={() => void actions.shutDown(kernel)}
            />
          </>
        )}
        {run && <StopRun run={run} />}
      </div>
      {expanded && <div className="nbk-note nbk-details">{details}</div>}
      {idleSeconds !== null && (
        <div className="nbk-idle">
          <span>
            {trans.__(
              'Idle kernel holds %1 (idle for %2).',
              held ?? UNKNOWN,
              duration(idleSeconds, trans)
            )}
          </span>
          {kernel && (
            <button
              type="button"
              className="nbk-button"
              aria-disabled={refusal !== null}
              title={
                refusal ??
                trans.__(
                  'Shut down %1 after confirmation',
                  actions.kernelName(kernel)
                )
              }
              onClick={() =>
                refusal === null && void actions.shutDown(kernel, true)
              }
            >
              {trans.__('Free')}
            </button>
          )}
        </div>
      )}
    </li>
  );

  /** How long an idle kernel has held more than it may; null if it does not. */
  function idle(): number | null {
    const since = holder.idle_since;
    if (
      since === null ||
      holder.kind !== 'kernel' ||
      group.memoryMib === null
    ) {
      return null;
    }
    const seconds = model.serverTime - since;
    return seconds >= choices.idleKernelMinutes * 60 &&
      gigabytes(group.memoryMib, unit) >= choices.idleKernelGigabytes
      ? seconds
      : null;
  }
}

const ICONS: Record<IHolder['kind'], LabIcon> = {
  kernel: notebookIcon,
  run: runIcon,
  outside: userIcon
};

function HolderIcon({ kind }: { kind: IHolder['kind'] }): JSX.Element {
  const icon = ICONS[kind];
  return <icon.react tag="span" className="nbk-kind" aria-hidden="true" />;
}

function group(
  holders: readonly IHolder[],
  memoryMib: readonly (number | null)[]
): IGroup[] {
  const groups = new Map<string, IGroup>();
  holders.forEach((holder, place) => {
    const owner = holder.run_id ?? holder.kernel_id ?? `pid ${holder.pid}`;
    const key = `${holder.kind} ${owner} ${holder.mig_uuid ?? ''}`;
    const value = memoryMib[place] ?? null;
    const known = groups.get(key);
    if (known) {
      known.holders.push(holder);
      known.memoryMib =
        known.memoryMib === null || value === null
          ? null
          : known.memoryMib + value;
    } else {
      groups.set(key, { key, holders: [holder], memoryMib: value });
    }
  });
  return [...groups.values()];
}

function label(holder: IHolder, trans: TranslationBundle): string {
  if (holder.kind === 'run') {
    return holder.name ?? holder.run_id ?? trans.__('a run');
  }
  if (holder.kind === 'kernel') {
    return holder.path === null
      ? trans.__('a kernel without a notebook')
      : baseName(holder.path);
  }
  return holder.user === null
    ? trans.__('outside this server')
    : trans.__('%1 · outside', holder.user);
}

function describe(group: IGroup, trans: TranslationBundle): string {
  const holder = group.holders[0]!;
  const pids = group.holders.flatMap(({ pid }) => (pid === null ? [] : [pid]));
  const parts = [
    holder.kind === 'run' && holder.path !== null
      ? trans.__('from %1', holder.path)
      : null,
    holder.kind === 'kernel' ? holder.path : null,
    pids.length
      ? trans._n('process %2', 'processes %2', pids.length, pids.join(', '))
      : holder.kind === 'outside'
        ? trans.__('process ID hidden by the driver')
        : trans.__('reported by the run, not by the driver'),
    holder.user,
    holder.mig_uuid,
    holder.command
  ];
  return parts.filter(part => part !== null && part !== '').join(' · ');
}
