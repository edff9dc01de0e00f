import * as React from 'react';

import { usePanel } from './context';
import { HOST } from './history';
import { percent, reading } from './messages';
import { Meter } from './meter';
import { Section } from './section';
import { Legend, Sparkline } from './sparkline';
import { inPercent, memoryOf, memoryWithUnit, rate, UNKNOWN } from './units';

/** The machine around the GPUs. */
export function Host(): JSX.Element | null {
  const { trans, model, choices } = usePanel();
  const { inventory, sample } = model;
  const row = model.hostReadings();
  if (!inventory || !sample || !row) {
    return null;
  }
  const unit = choices.memoryUnit;
  const cpu = reading(row, 'cpu_percent');
  const used = reading(row, 'memory_used_mib');
  // A server that was not restarted after an update sends neither.
  const usable = inventory.usable_cpus ?? null;
  const limit = inventory.memory_limit_mib ?? null;
  const all = inventory.cpus === null ? UNKNOWN : `${inventory.cpus}`;
  const cpus = usable === null ? all : trans.__('%1 of %2', usable, all);
  const load = reading(row, 'load_average_1_minute');
  return (
    <Section
      id="host"
      title={trans.__('Host')}
      notes={<span className="nbk-heading-note">{inventory.host}</span>}
    >
      <div className="nbk-meters">
        <Meter
          kind="utilization"
          label={trans.__('CPU')}
          text={inPercent(cpu, trans)}
          percent={cpu}
        />
        <Meter
          kind="memory"
          label={trans.__('Mem')}
          name={trans.__('Memory of the host')}
          text={memoryOf(used, inventory.memory_total_mib, unit, trans)}
          percent={percent(used, inventory.memory_total_mib)}
        />
      </div>
      <Cores busy={sample.cores} />
      {choices.showSparklines && (
        <>
          <Legend of="host" area={trans.__('CPU')} />
          <div className="nbk-past">
            <Sparkline
              owner={HOST}
              area="cpu_percent"
              areaName={trans.__('CPU')}
              line="memory_used_percent"
              name={trans.__('CPU of the host')}
            />
          </div>
        </>
      )}
      <dl className="nbk-facts">
        <Fact
          name={trans.__('Load (1 min)')}
          value={load?.toFixed(1) ?? UNKNOWN}
        />
        <Fact
          name={trans.__('CPUs')}
          value={cpus}
          title={
            usable === null
              ? undefined
              : trans._n(
                  'This server and its kernels may use %1 CPU',
                  'This server and its kernels may use %1 CPUs',
                  usable
                )
          }
        />
        {limit !== null && (
          <Fact
            name={trans.__('Memory limit')}
            value={memoryWithUnit(limit, unit, trans)}
            title={trans.__('Limit for this server and its kernels together')}
          />
        )}
        <Fact
          name={trans.__('Disk read')}
          value={rate(reading(row, 'disk_read_mb_per_s'), trans)}
        />
        <Fact
          name={trans.__('Disk write')}
          value={rate(reading(row, 'disk_write_mb_per_s'), trans)}
        />
        <Fact
          name={trans.__('Net in')}
          value={rate(reading(row, 'net_rx_mb_per_s'), trans)}
        />
        <Fact
          name={trans.__('Net out')}
          value={rate(reading(row, 'net_tx_mb_per_s'), trans)}
        />
      </dl>
    </Section>
  );
}

interface IFactProps {
  name: string;
  value: string;
  title?: string | undefined;
}

/** A name and a value in a list of such. */
export function Fact({ name, value, title }: IFactProps): JSX.Element {
  return (
    <div className="nbk-fact" title={title}>
      <dt>{name}</dt>
      <dd>
        {value}
        {value === UNKNOWN && title && (
          <span className="nbk-unseen"> {title}</span>
        )}
      </dd>
    </div>
  );
}

const CORES_IN_A_ROW = 64;
/** So few are meters side by side: upright they would be blocks. */
const FEW_CORES = 8;
const WIDEST_CORE_PIXELS = 14;

/** One bar for each CPU; many of them in several rows. */
function Cores({ busy }: { busy: readonly number[] }): JSX.Element | null {
  const { trans } = usePanel();
  if (!busy.length) {
    return null;
  }
  const few = busy.length <= FEW_CORES;
  const rows = Math.ceil(busy.length / CORES_IN_A_ROW);
  const columns = Math.ceil(busy.length / rows);
  const full = busy.filter(value => value >= 90).length;
  return (
    <svg
      className="nbk-cores"
      style={
        few
          ? { height: 6 }
          : { height: 20 * rows, maxWidth: WIDEST_CORE_PIXELS * columns }
      }
      viewBox={`0 0 ${columns} ${rows}`}
      preserveAspectRatio="none"
      role="img"
      aria-label={trans._n(
        '%1 CPU, %2 at 90% or more',
        '%1 CPUs, %2 at 90% or more',
        busy.length,
        full
      )}
    >
      {busy.map((value, cpu) => {
        const share = Math.min(100, value) / 100;
        const x = (cpu % columns) + (few ? 0.02 : 0.1);
        const bottom = Math.floor(cpu / columns) + 1;
        const width = few ? 0.96 : 0.8;
        const height = few ? 0.9 : 0.9 * share;
        return (
          <g key={cpu}>
            <title>{trans.__('CPU %1: %2%', cpu, value)}</title>
            <rect
              className="nbk-cores-track"
              x={x}
              y={bottom - 0.9}
              width={width}
              height={0.9}
            />
            <rect
              className="nbk-cores-fill"
              x={x}
              y={bottom - height}
              width={few ? width * share : width}
              height={height}
            />
          </g>
        );
      })}
    </svg>
  );
}
