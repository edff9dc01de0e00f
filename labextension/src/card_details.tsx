import * as React from 'react';

import { usePanel } from './context';
import { Fact } from './host';
import { IGpu, IInventory, percent, reading, Readings } from './messages';
import { Meter } from './meter';
import { inPercent, rate, UNKNOWN, whole } from './units';
import { translated } from './words';

interface ICardDetailsProps {
  inventory: IInventory;
  gpu: IGpu;
  row: Readings;
}

/** What explains a slow training: power, clocks, links and units in use. */
export function CardDetails(props: ICardDetailsProps): JSX.Element {
  const { trans } = usePanel();
  const { inventory, gpu, row } = props;
  const watts = reading(row, 'power_watts');
  const limit = gpu.power_limit_watts;
  const joules = reading(row, 'energy_joules');
  return (
    <>
      <Meter
        kind="power"
        label={trans.__('Power')}
        name={trans.__('Power of GPU %1', gpu.index)}
        text={trans.__('%1 W', `${whole(watts)} / ${whole(limit)}`)}
        percent={percent(watts, limit)}
        title={why('power_watts')}
      />
      <dl className="nbk-facts">
        {fact('sm_clock_mhz', trans.__('SM clock'), value =>
          megahertz(value, gpu.sm_clock_max_mhz)
        )}
        {fact('sm_activity_percent', trans.__('SM activity'), share)}
        {fact('tensor_activity_percent', trans.__('Tensor activity'), share)}
      </dl>
      <details className="nbk-fold">
        <summary>{trans.__('Details')}</summary>
        <dl className="nbk-facts">
          {fact('memory_clock_mhz', trans.__('Memory clock'), value =>
            megahertz(value, gpu.memory_clock_max_mhz)
          )}
          {fact('pcie_rx_mb_per_s', trans.__('PCIe in'), speed)}
          {fact('pcie_tx_mb_per_s', trans.__('PCIe out'), speed)}
          {fact('nvlink_rx_mb_per_s', trans.__('NVLink in'), speed)}
          {fact('nvlink_tx_mb_per_s', trans.__('NVLink out'), speed)}
          <Fact
            name={trans.__('Energy')}
            value={
              joules === null
                ? UNKNOWN
                : trans.__('%1 kWh', (joules / 3.6e6).toFixed(2))
            }
            title={
              why('energy_joules') ?? trans.__('Since the driver was loaded')
            }
          />
          <Fact
            name={trans.__('ECC errors')}
            value={whole(gpu.ecc_uncorrected_count)}
            title={
              why('ecc_uncorrected_count') ??
              trans.__('Uncorrected errors only')
            }
          />
          <Fact
            name={trans.__('Driver')}
            value={inventory.driver_version ?? UNKNOWN}
          />
          <Fact
            name={trans.__('CUDA version')}
            value={inventory.cuda_driver_version ?? UNKNOWN}
          />
        </dl>
        <div className="nbk-note nbk-uuid">{gpu.uuid ?? UNKNOWN}</div>
      </details>
    </>
  );

  function share(value: number): string {
    return inPercent(value, trans);
  }

  function speed(value: number): string {
    return rate(value, trans);
  }

  function megahertz(value: number, most: number | null): string {
    return trans.__('%1 MHz', `${whole(value)} / ${whole(most)}`);
  }

  function why(column: string): string | undefined {
    const reason = gpu.unavailable[column];
    return reason && translated(reason, trans);
  }

  function fact(
    column: string,
    name: string,
    text: (value: number) => string
  ): JSX.Element {
    const value = reading(row, column);
    return (
      <Fact
        name={name}
        value={value === null ? UNKNOWN : text(value)}
        title={why(column)}
      />
    );
  }
}
