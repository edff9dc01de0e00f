import { caretDownIcon, caretRightIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import { usePanel } from './context';
import { INode, INodeGpu, INodes, IRun, percent } from './messages';
import { Meter } from './meter';
import { request } from './requests';
import { duration, inPercent, memoryOf } from './units';
import { translated } from './words';

const LOOK_MILLISECONDS = 3000;
/** A node without a sample for longer shows the age of its values. */
const STALE_SECONDS = 15;

/** Load of a run's other hosts; polled while expanded and visible. */
export function Nodes({ run }: { run: IRun }): JSX.Element {
  const { trans } = usePanel();
  const [open, setOpen] = React.useState(false);
  const caret = open ? caretDownIcon : caretRightIcon;
  const count = run.num_nodes;
  return (
    <div className="nbk-nodes">
      <button
        type="button"
        className="nbk-toggle"
        aria-expanded={open}
        onClick={() => setOpen(!open)}
      >
        <caret.react tag="span" className="nbk-caret" aria-hidden="true" />
        <span className="nbk-name">
          {trans._n('GPUs of %1 node', 'GPUs of %1 nodes', count)}
        </span>
      </button>
      {open && <Unfolded run={run} />}
    </div>
  );
}

function Unfolded({ run }: { run: IRun }): JSX.Element {
  const { trans } = usePanel();
  const { load, fault } = useNodes(run.run_id);
  if (fault !== null) {
    return <p className="nbk-note">{fault}</p>;
  }
  if (load === null) {
    return <p className="nbk-note">{trans.__('Waiting for values…')}</p>;
  }
  return (
    <>
      <ul>
        {load.nodes.map(node => (
          <Node key={node.node} node={node} />
        ))}
      </ul>
      {load.num_more > 0 && (
        <p className="nbk-note">
          {trans._n('and %1 more node', 'and %1 more nodes', load.num_more)}
        </p>
      )}
    </>
  );
}

function Node({ node }: { node: INode }): JSX.Element {
  const { trans, model } = usePanel();
  const age = node.t === null ? 0 : model.serverTime - node.t;
  const parts = [
    node.cpu_percent === null
      ? null
      : trans.__('CPU %1', inPercent(node.cpu_percent, trans)),
    age > STALE_SECONDS
      ? trans.__('last values %1 ago', duration(age, trans))
      : null
  ];
  const why = node.gpus_unavailable;
  return (
    <li aria-label={node.node}>
      <div className="nbk-row">
        <span className="nbk-name">{node.node}</span>
        <span className="nbk-word">{parts.filter(Boolean).join(' · ')}</span>
      </div>
      {node.gpus.map(gpu => (
        <Gpu key={gpu.uuid ?? gpu.index} node={node.node} gpu={gpu} />
      ))}
      {!node.gpus.length && (
        <p className="nbk-note">
          {why === null
            ? trans.__('no GPU of the run')
            : translated(why, trans)}
        </p>
      )}
    </li>
  );
}

function Gpu({ node, gpu }: { node: string; gpu: INodeGpu }): JSX.Element {
  const { trans, choices } = usePanel();
  const used = mebibytes(gpu.memory_used_bytes);
  const total = mebibytes(gpu.memory_total_bytes);
  const { index, gpu_utilization_percent: busy } = gpu;
  return (
    <div className="nbk-meters">
      <Meter
        kind="utilization"
        label={trans.__('GPU %1', index)}
        name={trans.__('Utilization of GPU %1 of %2', index, node)}
        text={inPercent(busy, trans)}
        percent={busy}
        title={gpu.name ?? undefined}
      />
      <Meter
        kind="memory"
        label={trans.__('Mem')}
        name={trans.__('Memory of GPU %1 of %2', index, node)}
        text={memoryOf(used, total, choices.memoryUnit, trans)}
        percent={percent(used, total)}
      />
    </div>
  );
}

/** Poll while the page is visible. */
function useNodes(runId: string): {
  load: INodes | null;
  fault: string | null;
} {
  const { model } = usePanel();
  const [load, setLoad] = React.useState<INodes | null>(null);
  const [fault, setFault] = React.useState<string | null>(null);
  React.useEffect(() => {
    let isGone = false;
    let isAsking = false;
    const look = async () => {
      if (isAsking || document.hidden || !model.isConnected) {
        return;
      }
      isAsking = true;
      try {
        const path = `runs/${runId}/nodes`;
        const nodes = await request<INodes>(model.serverSettings, path);
        if (!isGone) {
          setLoad(nodes);
          setFault(null);
        }
      } catch (error) {
        if (!isGone) {
          setFault(error instanceof Error ? error.message : String(error));
        }
      } finally {
        isAsking = false;
      }
    };
    void look();
    const timer = window.setInterval(() => void look(), LOOK_MILLISECONDS);
    return () => {
      isGone = true;
      window.clearInterval(timer);
    };
  }, [model, runId]);
  return { load, fault };
}

function mebibytes(bytes: number | null): number | null {
  return bytes === null ? null : bytes / 1024 ** 2;
}
