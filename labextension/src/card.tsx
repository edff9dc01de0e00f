import { caretDownIcon, caretRightIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import { usePanel } from './context';
import { CardDetails } from './card_details';
import { lostAdvice } from './empty';
import { Holders } from './holders';
import {
  commonModel,
  gpuKey,
  IGpu,
  IInventory,
  migLabels,
  percent,
  reading,
  Readings,
  slowdowns
} from './messages';
import { Meter } from './meter';
import { Sparkline } from './sparkline';
import {
  gigabytes,
  inPercent,
  memory,
  memoryOf,
  memoryOfWhole,
  memoryWithUnit,
  shortName,
  UNKNOWN,
  whole
} from './units';
import { translated } from './words';

/** So many cards are expanded where the user has not chosen. */
export const FEW_GPUS = 2;

interface ICardProps {
  inventory: IInventory;
  gpu: IGpu;
  /** Place of the GPU in the inventory. */
  place: number;
}

/** One GPU: its load and its holders. */
export function Card({ inventory, gpu, place }: ICardProps): JSX.Element {
  const { trans, model, choices } = usePanel();
  const [chosen, choose] = React.useState<boolean | null>(null);
  const expanded =
    chosen ??
    (choices.cards === 'automatic'
      ? inventory.gpus.length <= FEW_GPUS
      : choices.cards === 'expanded');
  const row = model.gpuReadings(place) ?? {};
  const title = trans.__('GPU %1, %2', gpu.index, gpu.name ?? UNKNOWN);
  const isAlike = choices.showSparklines && commonModel(inventory) !== null;
  const caret = expanded ? caretDownIcon : caretRightIcon;
  const uuids = [
    gpuKey(gpu),
    ...(gpu.mig_instances ?? []).map(mig => mig.uuid)
  ];
  const runs = (model.runs ?? []).filter(run =>
    run.devices.some(device => uuids.includes(device))
  );
  const past = choices.showSparklines && gpu.error === null && (
    <div className={expanded ? 'nbk-past nbk-mod-tall' : 'nbk-past'}>
      <Sparkline
        owner={gpuKey(gpu)}
        area="utilization_percent"
        areaName={trans.__('GPU')}
        line="memory_used_percent"
        name={trans.__('Utilization of GPU %1', gpu.index)}
        runs={runs}
        axes={expanded}
      />
    </div>
  );
  return (
    <div
      role="group"
      className={`nbk-card ${model.isFresh(place) ? '' : 'nbk-mod-old'}`}
      aria-label={title}
    >
      <h4 className="nbk-card-head">
        <button
          type="button"
          className="nbk-toggle"
          aria-expanded={expanded}
          title={`${title}\n${gpu.uuid ?? ''}`}
          onClick={() => choose(!expanded)}
        >
          <caret.react tag="span" className="nbk-caret" aria-hidden="true" />
          <span className="nbk-index">{trans.__('GPU %1', gpu.index)}</span>
          {(!isAlike || expanded) && (
            <span className="nbk-name">{shortName(gpu.name)}</span>
          )}
        </button>
        {!expanded && past}
        {gpu.error === null && <Draw row={row} />}
      </h4>
      <Badges inventory={inventory} gpu={gpu} row={row} />
      {gpu.error === null ? (
        <>
          <Meters gpu={gpu} row={row} isPlain={isAlike && !expanded} />
          {expanded && past}
          {gpu.mig_instances !== null && <Mig gpu={gpu} place={place} />}
          {choices.showHolders && (
            <Holders
              gpu={gpu}
              memoryMib={model.sample?.holders[place] ?? []}
              expanded={expanded}
            />
          )}
          {expanded && (
            <CardDetails inventory={inventory} gpu={gpu} row={row} />
          )}
        </>
      ) : (
        <>
          <p className="nbk-note">{lostAdvice(gpu.error, trans)}</p>
          {expanded && <p className="nbk-note nbk-uuid">{gpu.uuid}</p>}
        </>
      )}
    </div>
  );
}

function Draw({ row }: { row: Readings }): JSX.Element {
  const { trans } = usePanel();
  const watts = reading(row, 'power_watts');
  const celsius = reading(row, 'temperature_celsius');
  return (
    <span className="nbk-draw">
      <span title={trans.__('Power')}>
        {watts === null ? UNKNOWN : trans.__('%1 W', whole(watts))}
      </span>
      <span title={trans.__('Temperature')}>
        {celsius === null ? UNKNOWN : trans.__('%1 °C', whole(celsius))}
      </span>
    </span>
  );
}

interface IPartProps {
  gpu: IGpu;
  row: Readings;
}

interface IMetersProps extends IPartProps {
  /** The heading and the legend say what is the same for all GPUs. */
  isPlain: boolean;
}

function Meters({ gpu, row, isPlain }: IMetersProps): JSX.Element {
  const { trans, choices } = usePanel();
  const why = (column: string) => {
    const reason = gpu.unavailable[column];
    return reason && translated(reason, trans);
  };
  const unit = choices.memoryUnit;
  const busy = reading(row, 'utilization_percent');
  const used = reading(row, 'memory_used_mib');
  const reserved = reading(row, 'memory_reserved_mib');
  const total = gpu.memory_total_mib;
  return (
    <div className="nbk-meters">
      <Meter
        kind="utilization"
        label={isPlain ? null : trans.__('GPU')}
        name={trans.__('Utilization of GPU %1', gpu.index)}
        text={inPercent(busy, trans)}
        percent={busy}
        title={
          busy === null
            ? why('utilization_percent')
            : trans.__('Share of time in which at least one GPU kernel ran')
        }
      />
      <Meter
        kind="memory"
        label={isPlain ? null : trans.__('Mem')}
        name={trans.__('Memory of GPU %1', gpu.index)}
        text={
          isPlain
            ? memoryOfWhole(used, total, unit, trans)
            : memoryOf(used, total, unit, trans)
        }
        percent={percent(used, total)}
        secondPercent={percent(reserved, total)}
        title={
          used === null
            ? gpu.memory_unified
              ? trans.__('Shared with the host; see the host memory')
              : why('memory_used_mib')
            : trans.__(
                'Used %1 %4, reserved by the driver %2 %4, total %3 %4',
                memory(used, unit),
                memory(reserved, unit),
                memory(total, unit),
                unit
              )
        }
      />
    </div>
  );
}

interface IBadgesProps extends IPartProps {
  inventory: IInventory;
}

/** What is wrong or slow, in words; nothing where all is well. */
function Badges({ inventory, gpu, row }: IBadgesProps): JSX.Element | null {
  const { trans, model, choices } = usePanel();
  const celsius = reading(row, 'temperature_celsius');
  const used = reading(row, 'memory_used_mib') ?? 0;
  const unit = choices.memoryUnit;
  const badges: { kind: 'error' | 'warn'; text: string; title: string }[] = [];
  if (gpu.error !== null) {
    badges.push({
      kind: 'error',
      text: translated(gpu.error, trans),
      title: gpu.uuid ?? ''
    });
  }
  if (gpu.xid !== null) {
    badges.push({
      kind: 'error',
      text: trans.__('XID %1', gpu.xid.code),
      title: trans.__(
        'The driver reported error %1 at %2; see the NVIDIA list of XID errors',
        gpu.xid.code,
        new Date(gpu.xid.t * 1000).toLocaleString()
      )
    });
  }
  if (gpu.ecc_uncorrected_count) {
    badges.push({
      kind: 'error',
      text: trans.__('ECC %1', gpu.ecc_uncorrected_count),
      title: trans.__('Uncorrected memory errors')
    });
  }
  for (const word of slowdowns(inventory, row)) {
    badges.push({
      kind: 'warn',
      text: trans.__('slowed: %1', translated(word, trans)),
      title: trans.__('The GPU clocks are reduced for this reason')
    });
  }
  if (celsius !== null && celsius >= choices.hotCelsius) {
    badges.push({
      kind: 'warn',
      text: trans.__('hot: %1 °C', celsius),
      title: trans.__(
        'At or above %1 °C, the limit in the settings',
        choices.hotCelsius
      )
    });
  }
  const halfMinutes = model.history.bins(
    gpuKey(gpu),
    'utilization_percent',
    model.serverTime,
    Math.ceil(2 * choices.idleGpuMinutes),
    30
  );
  if (
    gigabytes(used, unit) >= choices.idleKernelGigabytes &&
    halfMinutes.every(mean => mean === 0)
  ) {
    badges.push({
      kind: 'warn',
      text: trans.__('idle: %1 held', memoryWithUnit(used, unit, trans)),
      title: trans.__(
        'Utilization has been 0% for %1 min, the limit in the settings',
        choices.idleGpuMinutes
      )
    });
  }
  return badges.length ? (
    <ul className="nbk-badges" aria-label={trans.__('Warnings')}>
      {badges.map(badge => (
        <li
          key={badge.text}
          className={`nbk-badge nbk-mod-${badge.kind}`}
          title={badge.title}
        >
          {badge.text}
          <span className="nbk-unseen"> {badge.title}</span>
        </li>
      ))}
    </ul>
  ) : null;
}

function Mig({ gpu, place }: { gpu: IGpu; place: number }): JSX.Element {
  const { trans, model, choices } = usePanel();
  const unit = choices.memoryUnit;
  const used = model.sample?.mig[place] ?? [];
  const labels = migLabels(gpu);
  if (!gpu.mig_instances?.length) {
    return (
      <p className="nbk-note">
        {trans.__('MIG is enabled, but no instance exists.')}
      </p>
    );
  }
  return (
    <ul
      className="nbk-mig"
      aria-label={trans.__('MIG instances of GPU %1', gpu.index)}
    >
      {gpu.mig_instances.map((instance, index) => {
        const value = used[index] ?? null;
        const total = instance.memory_total_mib;
        const label = labels.get(instance.uuid)!;
        return (
          <li key={instance.uuid} title={instance.uuid}>
            <Meter
              kind="memory"
              label={label}
              name={trans.__('Memory of MIG instance %1', label)}
              text={memoryOf(value, total, unit, trans)}
              percent={percent(value, total)}
            />
          </li>
        );
      })}
    </ul>
  );
}
