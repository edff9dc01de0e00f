import {
  gpuKey,
  IHistory,
  IInventory,
  ISample,
  percent,
  readings
} from './messages';

const GAP = 255;

/** Percentages in slots of one length; the oldest make room for the newest. */
class Track {
  constructor(
    readonly intervalSeconds: number,
    count: number
  ) {
    this._slots = new Uint8Array(count).fill(GAP);
  }

  put(slot: number, value: number): void {
    const count = this._slots.length;
    if (slot <= this._newest - count) {
      return;
    }
    for (
      let skipped = Math.max(this._newest + 1, slot - count + 1);
      skipped < slot;
      skipped++
    ) {
      this._slots[skipped % count] = GAP;
    }
    this._newest = Math.max(this._newest, slot);
    this._slots[slot % count] = value;
  }

  /** Forget what is ahead of a clock that was set back. */
  setBack(t: number): void {
    const count = this._slots.length;
    const slot = Math.floor(t / this.intervalSeconds);
    for (
      let ahead = Math.max(slot + 1, this._newest - count + 1);
      ahead <= this._newest;
      ahead++
    ) {
      this._slots[ahead % count] = GAP;
    }
    this._newest = Math.min(this._newest, slot);
  }

  /** Put a value into the slots that hold [from, to), at least into the first. */
  fill(from: number, to: number, value: number): void {
    const first = Math.floor(from / this.intervalSeconds);
    const end = Math.max(first + 1, Math.floor(to / this.intervalSeconds));
    for (let slot = first; slot < end; slot++) {
      this.put(slot, value);
    }
  }

  /** Mean of the known slots that begin in [from, to), null without any. */
  mean(from: number, to: number): number | null {
    const count = this._slots.length;
    const first = Math.ceil(from / this.intervalSeconds);
    const end = Math.min(
      Math.ceil(to / this.intervalSeconds),
      this._newest + 1
    );
    let sum = 0;
    let known = 0;
    for (
      let slot = Math.max(first, this._newest - count + 1, 0);
      slot < end;
      slot++
    ) {
      const value = this._slots[slot % count]!;
      if (value !== GAP) {
        sum += value;
        known++;
      }
    }
    return known ? sum / known : null;
  }

  private _slots: Uint8Array;
  private _newest = -1;
}

/** A pause of so many intervals is a gap; a shorter one only a late sample. */
const LATE_INTERVALS = 2.5;
export const COARSE_SECONDS = 30;
/** Up to here the past is known by the second. */
export const FINE_SECONDS = 1800;

/** One quantity: half an hour by the second, and a day by half minutes. */
class Series {
  /** Take up values of which each holds for an interval; `finest` if none are finer. */
  load(
    intervalSeconds: number,
    t0: number,
    values: Uint8Array,
    finest: boolean
  ): void {
    const tracks = [
      ...(finest || intervalSeconds < COARSE_SECONDS ? [this._fine] : []),
      ...(intervalSeconds < COARSE_SECONDS ? [] : [this._coarse])
    ];
    values.forEach((value, place) => {
      if (value !== GAP) {
        const t = t0 + place * intervalSeconds;
        for (const track of tracks) {
          track.fill(t, t + intervalSeconds, value);
        }
        if (finest && t > (this._last?.t ?? 0)) {
          this._last = { t, value };
        }
      }
    });
  }

  /** Add a reading; what came at most two intervals before has held until now. */
  add(t: number, value: number, intervalSeconds: number): void {
    const rounded = Math.round(value);
    let from = t;
    if (this._last && t - this._last.t <= LATE_INTERVALS * intervalSeconds) {
      from = Math.min(t, this._last.t);
      const next = Math.floor(from) + 1;
      if (next < Math.floor(t)) {
        this._fine.fill(next, t, this._last.value);
      }
    }
    this._fine.fill(t, t + 1, rounded);
    this._last = { t, value: rounded };
    const end = Math.floor(t / COARSE_SECONDS);
    for (let half = Math.floor(from / COARSE_SECONDS); half <= end; half++) {
      const start = half * COARSE_SECONDS;
      const mean = this._fine.mean(start, start + COARSE_SECONDS);
      this._coarse.put(half, Math.round(mean ?? value));
    }
  }

  setBack(t: number): void {
    this._fine.setBack(t);
    this._coarse.setBack(t);
    this._last = null;
  }

  bins(end: number, count: number, binSeconds: number): (number | null)[] {
    const track =
      count * binSeconds <= FINE_SECONDS ? this._fine : this._coarse;
    return Array.from({ length: count }, (_, place) => {
      const from = end - (count - place) * binSeconds;
      return track.mean(from, from + binSeconds);
    });
  }

  private _fine = new Track(1, FINE_SECONDS);
  private _coarse = new Track(COARSE_SECONDS, 2880);
  private _last: { t: number; value: number } | null = null;
}

/** The past of every GPU, by its key, and of the host. */
export class History {
  /** Unix seconds of the oldest value of the host, or of the GPUs; null without. */
  since(of: 'gpus' | 'host'): number | null {
    return this._since[of];
  }

  /** Take up what the server kept, beside what is here already. */
  load(message: IHistory): void {
    const intervals = message.parts.map(part => part.interval_seconds);
    const finest = Math.min(...intervals);
    for (const part of message.parts) {
      const owners = { ...part.gpus, [HOST]: part.host };
      for (const [owner, quantities] of Object.entries(owners)) {
        for (const [quantity, text] of Object.entries(quantities)) {
          const values = decode(text);
          const first = values.findIndex(value => value !== GAP);
          const isFinest = part.interval_seconds === finest;
          if (first >= 0) {
            // The first value may be at the end of a longer interval.
            const slot = isFinest ? first : first + 1;
            this._reach(owner, part.t0 + slot * part.interval_seconds);
          }
          this._of(owner, quantity).load(
            part.interval_seconds,
            part.t0,
            values,
            isFinest
          );
        }
      }
    }
  }

  /** Add a sample; the next is expected `intervalSeconds` later. */
  add(inventory: IInventory, sample: ISample, intervalSeconds: number): void {
    const keep = (
      owner: string,
      quantity: string,
      value: number | null | undefined
    ) => {
      if (value !== null && value !== undefined) {
        const share = Math.min(100, Math.max(0, value));
        this._reach(owner, sample.t);
        this._of(owner, quantity).add(sample.t, share, intervalSeconds);
      }
    };
    inventory.gpus.forEach((gpu, place) => {
      const row = readings(inventory.gpu_columns, sample.gpus[place]);
      const used = percent(row.memory_used_mib ?? null, gpu.memory_total_mib);
      keep(gpuKey(gpu), 'utilization_percent', row.utilization_percent);
      keep(gpuKey(gpu), 'memory_used_percent', used);
    });
    const host = readings(inventory.host_columns, sample.host_values);
    const used = percent(
      host.memory_used_mib ?? null,
      inventory.memory_total_mib
    );
    keep(HOST, 'cpu_percent', host.cpu_percent);
    keep(HOST, 'memory_used_percent', used);
  }

  /**
   * The last stretch of time as means of equal bins, oldest first; null is a gap.
   *
   * `end` is in Unix seconds and belongs to the last bin.
   */
  bins(
    owner: string,
    quantity: string,
    end: number,
    count: number,
    binSeconds: number
  ): (number | null)[] {
    return this._of(owner, quantity).bins(end, count, binSeconds);
  }

  /** Forget what is ahead of a clock that was set back. */
  setBack(t: number): void {
    this._series.forEach(series => series.setBack(t));
  }

  clear(): void {
    this._series.clear();
    this._since = { gpus: null, host: null };
  }

  private _reach(owner: string, t: number): void {
    const of = owner === HOST ? 'host' : 'gpus';
    this._since[of] = Math.min(this._since[of] ?? t, t);
  }

  private _of(owner: string, quantity: string): Series {
    const key = `${owner} ${quantity}`;
    let series = this._series.get(key);
    if (!series) {
      series = new Series();
      this._series.set(key, series);
    }
    return series;
  }

  private _series = new Map<string, Series>();
  private _since: Record<'gpus' | 'host', number | null> = {
    gpus: null,
    host: null
  };
}

/** The owner of the host's quantities; no GPU has this key. */
export const HOST = 'host';

function decode(text: string): Uint8Array {
  return Uint8Array.from(atob(text), character => character.charCodeAt(0));
}
