import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { usePanel } from './context';
import { IUnavailable } from './messages';
import { duration } from './units';
import { translated } from './words';

interface IEmptyProps {
  kind?: 'error' | 'plain';
  title: string;
  /** Why, and what to do now. */
  advice: string;
  /** Buttons. */
  children?: React.ReactNode;
}

/** Says why there is nothing to see, and what to do. */
export function Empty(props: IEmptyProps): JSX.Element {
  return (
    <div className={`nbk-empty nbk-mod-${props.kind ?? 'plain'}`} role="note">
      <strong>{props.title}</strong>
      <p>{props.advice}</p>
      {props.children}
    </div>
  );
}

/** Why the server's GPUs cannot be read. */
export function GpusUnavailable({ why }: { why: IUnavailable }): JSX.Element {
  const { trans, model } = usePanel();
  const [title, ...advice] = words(why, model.serverTime, trans);
  if (model.inventory?.gpus.length) {
    advice.push(trans.__('The values below are the last known ones.'));
  }
  return (
    <Empty
      kind={NO_FAULTS.includes(why.reason) ? 'plain' : 'error'}
      title={title}
      advice={advice.join(' ')}
    />
  );
}

/** Reasons that are not necessarily faults. */
const NO_FAULTS = ['no gpu', 'hidden'];

function words(
  why: IUnavailable,
  now: number,
  trans: TranslationBundle
): [string, string] {
  switch (why.reason) {
    case 'no library':
      return [
        trans.__('NVIDIA library not found'),
        trans.__(
          'libnvidia-ml.so.1 was not found. Install the NVIDIA driver, or start the container with access to the GPUs (--gpus all).'
        )
      ];
    case 'driver not loaded':
      return [
        trans.__('GPU driver not loaded'),
        trans.__(
          'The NVIDIA kernel module is not loaded. As root, run nvidia-smi or modprobe nvidia; the panel checks again automatically.'
        )
      ];
    case 'version mismatch':
      return [
        trans.__('Driver versions do not match'),
        trans.__(
          'The driver library and the kernel module have different versions, for example after an update. Reboot, or reload the kernel module.'
        )
      ];
    case 'no permission':
      return [
        trans.__('No permission to read GPUs'),
        trans.__(
          'This user has no permission to open /dev/nvidiactl. Ask the administrator for access to the GPUs.'
        )
      ];
    case 'no gpu':
      return [
        trans.__('No GPU'),
        trans.__(
          'This machine has no GPU, or none that the driver supports; check lspci and dmesg. For a demo with eight GPUs, start Jupyter with NBKIT_GPU_SOURCE=replay:eight-gpus.'
        )
      ];
    case 'hidden':
      return [
        trans.__('All GPUs are hidden'),
        trans.__(
          'CUDA_VISIBLE_DEVICES hides the GPUs of this machine from this server. Change or unset it, then restart Jupyter.'
        )
      ];
    case 'source cannot be used':
      return [trans.__('The GPU source cannot be used'), why.message];
    case 'gpu lost':
      return [trans.__('GPU lost'), lostAdvice('gpu lost', trans)];
    case 'driver too old':
      return [
        trans.__('Driver too old'),
        trans.__('Install an NVIDIA driver of release 450 or later.')
      ];
    case 'driver not answering':
      return [
        why.since === null
          ? trans.__('Driver not answering')
          : trans.__(
              'Driver not answering for %1',
              duration(Math.max(0, now - why.since), trans)
            ),
        trans.__(
          'A call to the NVIDIA driver does not return. If this continues, check dmesg for Xid messages.'
        )
      ];
    default:
      return [trans.__('GPUs cannot be read'), why.message];
  }
}

/** What to do about one GPU that does not answer. */
export function lostAdvice(error: string, trans: TranslationBundle): string {
  return error === 'gpu lost'
    ? trans.__(
        'The GPU has fallen off the bus. Check dmesg for an Xid message, then reset the GPU or reboot.'
      )
    : trans.__(
        'The GPU cannot be read (%1). Run nvidia-smi for details.',
        translated(error, trans)
      );
}

/** Why the server is not connected; null if it is. */
export function NoConnection(): JSX.Element | null {
  const { trans, model } = usePanel();
  const again = (
    <button type="button" className="nbk-button" onClick={() => model.retry()}>
      {trans.__('Try Now')}
    </button>
  );
  if (model.outdated) {
    return (
      <Empty
        kind="error"
        title={trans.__('Different nbkit version')}
        advice={trans.__(
          'The server and this page have different versions of nbkit. Reload the page. If this message remains, restart the Jupyter server.'
        )}
      />
    );
  }
  switch (model.connection) {
    case 'missing':
      return (
        <Empty
          kind="error"
          title={trans.__('Server extension missing')}
          advice={trans.__(
            'nbkit is not enabled on the Jupyter server. In the server’s environment, install nbkit’s wheel and run “jupyter server extension enable nbkit.server”, then restart the server.'
          )}
        >
          {again}
        </Empty>
      );
    case 'forbidden':
      return (
        <Empty
          kind="error"
          title={trans.__('Access denied')}
          advice={trans.__(
            'The server denied access to nbkit. Log in again, or ask the administrator for access.'
          )}
        >
          {again}
        </Empty>
      );
    case 'blocked':
      return (
        <Empty
          kind="error"
          title={trans.__('No WebSocket')}
          advice={trans.__(
            'A proxy in front of the Jupyter server blocks WebSockets. It must forward the headers Upgrade, Connection and Host; kernels need them, too.'
          )}
        >
          {again}
        </Empty>
      );
    case 'disconnected':
      return (
        <Empty
          kind="error"
          title={trans.__('Disconnected')}
          advice={
            model.inventory === null
              ? trans.__(
                  'The server does not answer. The panel retries automatically.'
                )
              : trans.__(
                  'The values below are the last known ones. The panel retries automatically.'
                )
          }
        >
          {again}
        </Empty>
      );
    default:
      return null;
  }
}
