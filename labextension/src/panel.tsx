import {
  caretDownIcon,
  caretRightIcon,
  ReactWidget,
  settingsIcon
} from '@jupyterlab/ui-components';
import { Message, MessageLoop } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';
import * as React from 'react';

import { Card, FEW_GPUS } from './card';
import { IPanelContext, PanelProvider, usePanel } from './context';
import { Empty, GpusUnavailable, NoConnection } from './empty';
import { Host } from './host';
import { IconButton } from './icon_button';
import { gpuIcon } from './icons';
import {
  commonModel,
  gpuKey,
  IGpu,
  IInventory,
  reading,
  slowdowns
} from './messages';
import { MonitorModel } from './model';
import { Runs } from './runs';
import { Section, useFold } from './section';
import { IChoices, Settings } from './settings';
import { Legend } from './sparkline';
import { baseName, duration, memoryOf, shortName, UNKNOWN } from './units';

const WATCHER = 'panel';

/** The sidebar. It watches while it is seen. */
export class MonitorPanel extends ReactWidget {
  constructor(
    private _context: Omit<IPanelContext, 'choices'>,
    private _settings: Settings
  ) {
    super();
    const { trans } = _context;
    this.id = 'nbkit-panel';
    this.addClass('nbk-panel');
    this.title.icon = gpuIcon;
    this.title.caption = trans.__('GPUs and runs');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', trans.__('GPUs and runs'));
    _context.model.changed.connect(this._redraw, this);
    _settings.changed.connect(this._choose, this);
  }

  override dispose(): void {
    this._rest();
    this._context.model.changed.disconnect(this._redraw, this);
    this._settings.changed.disconnect(this._choose, this);
    super.dispose();
  }

  override render(): JSX.Element {
    return (
      <PanelProvider
        value={{ ...this._context, choices: this._settings.choices }}
      >
        <Content />
      </PanelProvider>
    );
  }

  /** Focus the first control, once it is there. */
  async focus(): Promise<void> {
    MessageLoop.sendMessage(this, Widget.Msg.UpdateRequest);
    await this.renderPromise;
    this.node.querySelector('button')?.focus();
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this._watch();
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    if (this.isVisible) {
      this._watch();
    }
  }

  protected override onBeforeHide(message: Message): void {
    this._rest();
    super.onBeforeHide(message);
  }

  protected override onBeforeDetach(message: Message): void {
    this._rest();
    super.onBeforeDetach(message);
  }

  private _watch(): void {
    this._context.model.watch(WATCHER, this._settings.choices.intervalSeconds);
    // Between frames, what has an age grows older.
    window.clearInterval(this._clock);
    this._clock = window.setInterval(() => {
      if (!this._context.model.isCurrent) {
        this.update();
      }
    }, 1000);
    this.update();
  }

  private _rest(): void {
    window.clearInterval(this._clock);
    this._context.model.unwatch(WATCHER);
  }

  private _redraw(): void {
    if (this.isVisible) {
      this.update();
    }
  }

  private _choose(): void {
    if (this.isVisible) {
      this._watch();
    }
  }

  private _clock = 0;
}

function Content(): JSX.Element {
  const { trans, model, choices } = usePanel();
  const { inventory, connection, status } = model;
  const old = !model.isCurrent;
  return (
    <>
      <Header />
      <NoConnection />
      {status?.sampler === 'failed' && (
        <Empty
          kind="error"
          title={trans.__('The sampler has failed')}
          advice={status.message ?? trans.__('It restarts automatically.')}
        />
      )}
      <div className={old ? 'nbk-content nbk-mod-old' : 'nbk-content'}>
        {inventory ? (
          <Gpus inventory={inventory} />
        ) : (
          (model.isConnected || connection === 'connecting') && (
            <p className="nbk-note nbk-pad">
              {status?.sampler === 'failed'
                ? trans.__('No values yet.')
                : trans.__('Waiting for the first values…')}
            </p>
          )
        )}
        {choices.showRuns && (model.runs !== null || status?.runs_fault) && (
          <Runs />
        )}
        {choices.showHost && <Host />}
      </div>
    </>
  );
}

function Header(): JSX.Element {
  const { trans, model, actions } = usePanel();
  const { inventory, connection, status } = model;
  const sampler = status?.sampler ?? 'starting';
  const state =
    model.isConnected && sampler !== 'running' ? sampler : connection;
  return (
    <div className="nbk-header">
      <span
        className={`nbk-connection nbk-mod-${state}`}
        role="status"
        aria-live="polite"
      >
        {connectionWords()}
      </span>
      {/* Outside of the live region: screen readers must not read each second. */}
      {!model.isCurrent && model.ageSeconds !== null && (
        <span className="nbk-age">
          {trans.__('last values %1 ago', duration(model.ageSeconds, trans))}
        </span>
      )}
      {inventory?.source === 'replay' && (
        <span
          className="nbk-badge nbk-mod-replay"
          title={trans.__(
            'These values are replayed from a trace: %1',
            inventory.replay ?? UNKNOWN
          )}
        >
          {trans.__('replay: %1', baseName(inventory.replay ?? UNKNOWN))}
        </span>
      )}
      {status?.read_only && (
        <span
          className="nbk-badge"
          title={trans.__(
            'The administrator has disabled actions on this server'
          )}
        >
          {trans.__('read-only')}
        </span>
      )}
      {actions.canOpenSettings() && (
        <span className="nbk-gear">
          <IconButton
            icon={settingsIcon}
            label={trans.__('nbkit settings')}
            onClick={() => void actions.openSettings()}
          />
        </span>
      )}
    </div>
  );

  function connectionWords(): string {
    switch (state) {
      case 'starting':
        return trans.__('starting…');
      case 'failed':
        return trans.__('sampler failed');
      case 'live':
        return trans.__('live');
      case 'blocked':
        return trans.__('no WebSocket');
      case 'connecting':
        return trans.__('connecting…');
      case 'idle':
        return trans.__('paused');
      case 'missing':
        return trans.__('server extension missing');
      case 'forbidden':
        return trans.__('access denied');
      case 'disconnected':
        return trans.__('disconnected');
    }
  }
}

function Gpus({ inventory }: { inventory: IInventory }): JSX.Element {
  const { trans, model, choices } = usePanel();
  const why = inventory.gpus_unavailable;
  const { busy, usedMib, totalMib } = occupancy(model);
  const unit = choices.memoryUnit;
  const common = commonModel(inventory);
  const idle = idlePlaces(inventory, model, choices);
  const card = (gpu: IGpu, place: number) => (
    <Card key={gpuKey(gpu)} inventory={inventory} gpu={gpu} place={place} />
  );
  const notes = (
    <>
      {common !== null && (
        <span className="nbk-heading-note">
          {trans.__('%1 × %2', inventory.gpus.length, shortName(common.name))}
        </span>
      )}
      {inventory.gpus.length > 0 && why === null && (
        <span className="nbk-heading-note">
          {trans.__('%1 of %2 busy', busy, inventory.gpus.length)}
          {usedMib !== null && ` · ${memoryOf(usedMib, totalMib, unit, trans)}`}
        </span>
      )}
    </>
  );
  return (
    <Section id="gpus" title={trans.__('GPUs')} notes={notes}>
      {why && <GpusUnavailable why={why} />}
      {!why && !inventory.gpus.length && (
        <GpusUnavailable why={{ reason: 'no gpu', message: '', since: null }} />
      )}
      {choices.showSparklines && inventory.gpus.length > 0 && (
        <Legend of="gpus" area={trans.__('GPU')} marks={!!model.runs?.length} />
      )}
      <div className="nbk-cards">
        {inventory.gpus.map((gpu, place) =>
          idle.includes(place) ? null : card(gpu, place)
        )}
        {idle.length > 0 && (
          <IdleGpus gpus={idle.map(place => inventory.gpus[place]!)}>
            {idle.map(place => card(inventory.gpus[place]!, place))}
          </IdleGpus>
        )}
      </div>
    </Section>
  );
}

/** Idle GPUs in one line, which unfolds to their cards. */
function IdleGpus(props: {
  gpus: readonly IGpu[];
  children: React.ReactNode;
}): JSX.Element {
  const { trans } = usePanel();
  const [isOpen, toggle] = useFold('idle', false);
  const caret = isOpen ? caretDownIcon : caretRightIcon;
  const { gpus } = props;
  return (
    <>
      <button
        type="button"
        className="nbk-toggle nbk-idle-gpus"
        aria-expanded={isOpen}
        title={trans.__(
          'No known process, below 5% utilization, less than 1 GiB in use'
        )}
        onClick={toggle}
      >
        <caret.react tag="span" className="nbk-caret" aria-hidden="true" />
        <span className="nbk-index">
          {trans._n(
            'GPU %2',
            'GPUs %2',
            gpus.length,
            gpus.map(gpu => gpu.index).join(', ')
          )}
        </span>
        <span className="nbk-heading-note">{trans.__('idle')}</span>
      </button>
      {isOpen && props.children}
    </>
  );
}

/** A GPU whose holders are hidden may still hold memory. */
const IDLE_MIB = 1024;

/** Places of idle GPUs without a warning. */
function idlePlaces(
  inventory: IInventory,
  model: MonitorModel,
  choices: IChoices
): number[] {
  const { gpus } = inventory;
  const isShort =
    choices.cards === 'compact' ||
    (choices.cards === 'automatic' && gpus.length > FEW_GPUS);
  return gpus.flatMap((gpu, place) => {
    const row = model.gpuReadings(place);
    const isIdle =
      isShort &&
      row !== null &&
      gpu.error === null &&
      gpu.xid === null &&
      gpu.mig_instances === null &&
      !gpu.ecc_uncorrected_count &&
      !gpu.holders?.length &&
      (reading(row, 'utilization_percent') ?? 100) < BUSY_PERCENT &&
      (reading(row, 'memory_used_mib') ?? IDLE_MIB) < IDLE_MIB &&
      (reading(row, 'temperature_celsius') ?? 0) < choices.hotCelsius &&
      !slowdowns(inventory, row).length;
    return isIdle ? [place] : [];
  });
}

/** From this utilization on, a GPU counts as busy. */
const BUSY_PERCENT = 5;

/** How many GPUs are busy, and the memory of those that report what is in use. */
export function occupancy(model: MonitorModel): {
  busy: number;
  usedMib: number | null;
  totalMib: number | null;
} {
  let busy = 0;
  let usedMib: number | null = null;
  let totalMib: number | null = null;
  model.inventory?.gpus.forEach((gpu, place) => {
    const row = model.gpuReadings(place) ?? {};
    const share = reading(row, 'utilization_percent');
    // MIG reports no utilization; then a GPU that has a holder is busy.
    if (share === null ? !!gpu.holders?.length : share >= BUSY_PERCENT) {
      busy++;
    }
    const used = reading(row, 'memory_used_mib');
    if (used !== null && gpu.memory_total_mib !== null) {
      usedMib = (usedMib ?? 0) + used;
      totalMib = (totalMib ?? 0) + gpu.memory_total_mib;
    }
  });
  return { busy, usedMib, totalMib };
}
