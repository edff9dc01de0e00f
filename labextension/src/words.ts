import { TranslationBundle } from '@jupyterlab/translation';

type Words = Record<string, string>;

/**
 * What the driver and the sampler say, in the reader's language.
 *
 * Unknown words are shown as they are.
 */
export function translated(word: string, trans: TranslationBundle): string {
  const known: Words = { ...reasons(trans), ...slowdowns(trans) };
  return known[word] ?? word;
}

/** Why a value, or a whole GPU, cannot be read. */
function reasons(trans: TranslationBundle): Words {
  return {
    'NVML not initialised': trans.__('NVML not initialised'),
    'not supported': trans.__('not supported'),
    'no permission': trans.__('no permission'),
    'driver not loaded': trans.__('driver not loaded'),
    timeout: trans.__('timeout'),
    'no library': trans.__('no library'),
    'driver too old': trans.__('driver too old'),
    'gpu lost': trans.__('GPU lost'),
    'gpu needs a reset': trans.__('GPU needs a reset'),
    'blocked by the system': trans.__('blocked by the system'),
    'version mismatch': trans.__('version mismatch'),
    'no longer supported': trans.__('no longer supported'),
    'no gpu': trans.__('no GPU'),
    'first reading': trans.__('first reading'),
    unknown: trans.__('unknown')
  };
}

/** What holds the clocks of a GPU down. */
function slowdowns(trans: TranslationBundle): Words {
  return {
    'power cap': trans.__('power cap'),
    'hardware slowdown': trans.__('hardware slowdown'),
    'thermal (software)': trans.__('thermal (software)'),
    'thermal (hardware)': trans.__('thermal (hardware)'),
    'power brake': trans.__('power brake'),
    'board limit': trans.__('board limit'),
    reliability: trans.__('reliability')
  };
}
