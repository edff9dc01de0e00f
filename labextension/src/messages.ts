/**
 * What the server sends, and how its columns are read.
 *
 * A sample is rows of numbers; the inventory that it names says what each place in a row
 * means. Unknown is null, never 0.
 */

/** The version of the messages that this file reads. */
export const SCHEMA = 1;

/** One row of a sample, by the names of the columns. */
export type Readings = Readonly<Record<string, number | null>>;

export interface IMigInstance {
  uuid: string;
  name: string | null;
  memory_total_mib: number | null;
}

/** Who has memory on a GPU. */
export interface IHolder {
  pid: number | null;
  start_ticks: number | null;
  user: string | null;
  command: string | null;
  /** Whether it runs as the same user as the server. */
  own: boolean;
  kind: 'kernel' | 'run' | 'outside';
  kernel_id: string | null;
  /** The notebook, relative to the server's root. */
  path: string | null;
  /** Unix seconds; null while the kernel is busy, and for other processes. */
  idle_since: number | null;
  run_id: string | null;
  name: string | null;
  mig_uuid: string | null;
  reported_by: 'driver' | 'run';
}

export interface IGpu {
  index: number;
  /** Null if the driver does not report it. */
  uuid: string | null;
  name: string | null;
  error: string | null;
  memory_total_mib: number | null;
  /** Whether the host's memory is the GPU's too. */
  memory_unified: boolean;
  power_limit_watts: number | null;
  sm_clock_max_mhz: number | null;
  memory_clock_max_mhz: number | null;
  mig_enabled: boolean | null;
  mig_instances: IMigInstance[] | null;
  ecc_uncorrected_count: number | null;
  xid: { code: number; t: number } | null;
  /** Reason of each column that is null. */
  unavailable: Record<string, string>;
  holders: IHolder[] | null;
}

export interface IUnavailable {
  reason: string;
  message: string;
  since: number | null;
}

interface INumbered {
  schema: number;
  seq: number;
  stream: string;
  t: number;
  host: string;
}

export interface IInventory extends INumbered {
  type: 'inventory';
  interval_seconds: number;
  source: 'nvml' | 'replay';
  replay: string | null;
  gpu_columns: string[];
  host_columns: string[];
  clock_event_words: string[];
  slowdown_words: string[];
  driver_version: string | null;
  cuda_driver_version: string | null;
  gpus_unavailable: IUnavailable | null;
  gpus: IGpu[];
  cpus: number | null;
  /** What this server may use of them; null where that is all. */
  usable_cpus: number | null;
  memory_total_mib: number | null;
  memory_limit_mib: number | null;
}

export interface ISample extends INumbered {
  type: 'sample';
  /** `seq` of the inventory whose order the rows follow. */
  inventory: number;
  gpus: ((number | null)[] | null)[];
  holders: (number | null)[][];
  mig: ((number | null)[] | null)[];
  cores: number[];
  host_values: (number | null)[];
}

export type RunState =
  | 'queued'
  | 'starting'
  | 'running'
  | 'stopping'
  | 'finished'
  | 'failed'
  | 'stopped'
  | 'lost'
  | 'unknown';

/** Where a run waits in the queue, and for what. */
export interface IQueue {
  /** Counted from 1; null where only Slurm knows. */
  position: number | null;
  length: number | null;
  reason: string;
  since: string;
}

export interface IRun {
  run_id: string;
  name: string | null;
  /** Null if the configuration cannot be read. */
  task: string | null;
  state: RunState;
  cause: string | null;
  started: string | null;
  ended: string | null;
  step: number | null;
  total_steps: number | null;
  images_per_second: number | null;
  loss: number | null;
  /** Where loss, gradients or weights stopped being finite, in words; null if not. */
  nonfinite: string | null;
  devices: string[];
  /** Null for a run that does not wait. */
  queue: IQueue | null;
  /** Of an active run: how many other hosts report samples. */
  num_nodes: number;
  /** The machine from which the run was brought; null for one of this. */
  imported_from: string | null;
  notebook: string | null;
  /** The study that has launched it, if one has. */
  study_id: string | null;
  /** Below the server's root; null where Lab does not show it. */
  folder: string | null;
  /** The same folder as the server's machine calls it. */
  folder_path: string;
  tensorboard: boolean;
  own: boolean;
}

export type StudyState = 'planned' | 'running' | 'incomplete' | 'finished';

/** A study by its file and its runs. */
export interface IStudyRow {
  study_id: string;
  /** Null if the study has no name. */
  name: string | null;
  state: StudyState;
  /** What could not be read; null if all could. */
  damage: string | null;
  num_finished: number;
  /** Number of planned starts. */
  num_starts: number;
  /** When all starts that fit its time limit will have ended, as expected. */
  expected_end: string | null;
  /** When something of it was written last. */
  changed: string | null;
  /** What its report says, or what it said after its last round. */
  answer: string | null;
  /** What completes it; null for a study of others. */
  command: string | null;
  folder: string | null;
  folder_path: string;
}

/** A GPU or MIG instance of a run on another host, by its newest sample. */
export interface INodeGpu {
  index: number;
  uuid: string | null;
  name: string | null;
  gpu_utilization_percent: number | null;
  memory_used_bytes: number | null;
  memory_total_bytes: number | null;
}

/** Another host of a run, by its newest sample; null is what it did not report. */
export interface INode {
  node: string;
  /** Unix seconds by its own clock. */
  t: number | null;
  cpu_percent: number | null;
  gpus: INodeGpu[];
  gpus_unavailable: string | null;
}

export interface INodes {
  nodes: INode[];
  num_more: number;
}

export interface IRuns extends INumbered {
  type: 'runs';
  runs: IRun[];
  /** The newest studies, newest first. */
  studies: IStudyRow[];
}

/** Base64 of one byte a slot: 0 to 100, or 255 for a gap. */
type Percentages = Record<string, string>;

export interface IHistoryPart {
  interval_seconds: number;
  t0: number;
  count: number;
  gpus: Record<string, Percentages>;
  host: Percentages;
}

export interface IHistory extends INumbered {
  type: 'history';
  since: number | null;
  parts: IHistoryPart[];
}

export interface IStatus extends INumbered {
  type: 'status';
  sampler: 'running' | 'starting' | 'failed';
  message: string | null;
  /** Why the list of runs is not updated; null while it is. */
  runs_fault: string | null;
  read_only: boolean;
  /** Folder of the runs; null where there can be none. */
  store: string | null;
  version: string;
}

export type Message = IInventory | ISample | IRuns | IHistory | IStatus;

/** Whether nothing of the run is left to happen. */
export function hasEnded(run: IRun): boolean {
  return ['finished', 'failed', 'stopped', 'lost'].includes(run.state);
}

/** The model of several GPUs that are alike; null where they are not. */
export function commonModel(inventory: IInventory): IGpu | null {
  const [first, ...others] = inventory.gpus;
  const alike =
    others.length > 0 &&
    others.every(
      gpu =>
        gpu.name === first!.name &&
        gpu.memory_total_mib === first!.memory_total_mib
    );
  return alike && first!.name !== null ? first! : null;
}

/** The key of a GPU, as in the server's history. */
export function gpuKey(gpu: IGpu): string {
  return gpu.uuid ?? String(gpu.index);
}

/** Whether two holders are one process, and not a later one with the same ID. */
export function isSameProcess(
  holder: Pick<IHolder, 'pid' | 'start_ticks'>,
  other: Pick<IHolder, 'pid' | 'start_ticks'>
): boolean {
  return holder.pid === other.pid && holder.start_ticks === other.start_ticks;
}

/** Profiles of the instances of a GPU by UUID, numbered where several are alike. */
export function migLabels(gpu: IGpu): Map<string, string> {
  const profiles = (gpu.mig_instances ?? []).map(
    ({ name, uuid }) => name?.replace(/^.*\bMIG\s+/, '') ?? uuid
  );
  return new Map(
    (gpu.mig_instances ?? []).map(({ uuid }, place) => {
      const profile = profiles[place]!;
      const alike = profiles.filter(other => other === profile).length;
      const before = profiles.slice(0, place + 1);
      const ordinal = before.filter(other => other === profile).length;
      return [uuid, alike > 1 ? `${profile} #${ordinal}` : profile];
    })
  );
}

/** A row by the names of its columns; what the row lacks is null. */
export function readings(
  columns: readonly string[],
  row: readonly (number | null)[] | null | undefined
): Readings {
  return Object.fromEntries(
    columns.map((name, place) => [name, row?.[place] ?? null])
  );
}

/**
 * A sample in the order of a newer inventory.
 *
 * What both know is kept until the next sample comes; the rest is unknown.
 */
export function reorder(
  sample: ISample,
  before: IInventory,
  after: IInventory
): ISample {
  const places = after.gpus.map(gpu =>
    before.gpus.findIndex(old => gpuKey(old) === gpuKey(gpu))
  );
  const identity = (holder: IHolder) =>
    [holder.pid, holder.start_ticks, holder.run_id, holder.mig_uuid].join();
  return {
    ...sample,
    inventory: after.seq,
    gpus: places.map(place => sample.gpus[place] ?? null),
    mig: places.map(place => sample.mig[place] ?? null),
    holders: after.gpus.map((gpu, index) => {
      const place = places[index]!;
      const old = before.gpus[place]?.holders?.map(identity) ?? [];
      return (gpu.holders ?? []).map(
        holder => sample.holders[place]?.[old.indexOf(identity(holder))] ?? null
      );
    })
  };
}

/**
 * A sample with the last known values of each GPU that has no new ones.
 *
 * So it is while a call into the driver hangs; a GPU with an error has none.
 */
export function keepKnown(
  sample: ISample,
  before: ISample | null,
  inventory: IInventory
): ISample {
  if (before?.inventory !== inventory.seq) {
    return sample;
  }
  const keep = sample.gpus.map(
    (row, place) => row === null && inventory.gpus[place]?.error === null
  );
  const pick = <T>(now: T[], then: T[]) =>
    now.map((value, place) => (keep[place] ? (then[place] ?? value) : value));
  return {
    ...sample,
    gpus: pick(sample.gpus, before.gpus),
    holders: pick(sample.holders, before.holders),
    mig: pick(sample.mig, before.mig)
  };
}

/** A reading; null if the column does not exist. */
export function reading(row: Readings, name: string): number | null {
  return row[name] ?? null;
}

/** The clock events of a reading that make the GPU slower, in the driver's words. */
export function slowdowns(inventory: IInventory, row: Readings): string[] {
  const events = reading(row, 'clock_events');
  if (events === null) {
    return [];
  }
  return inventory.clock_event_words.filter(
    (word, bit) =>
      Math.floor(events / 2 ** bit) % 2 === 1 &&
      inventory.slowdown_words.includes(word)
  );
}

/** Share of a whole in percent, null where one of them is unknown. */
export function percent(
  part: number | null,
  whole: number | null
): number | null {
  return part === null || !whole ? null : (100 * part) / whole;
}
