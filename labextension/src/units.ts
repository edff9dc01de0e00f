import { TranslationBundle } from '@jupyterlab/translation';

export type MemoryUnit = 'GB' | 'GiB';

/** Shown for an unknown value. */
export const UNKNOWN = '–';

/** MiB as a number in the unit, without its name; large numbers without decimals. */
export function memory(mib: number | null, unit: MemoryUnit): string {
  if (mib === null) {
    return UNKNOWN;
  }
  const value = gigabytes(mib, unit);
  return value.toFixed(value < 99.95 ? 1 : 0);
}

/** "66.0 / 80.0 GiB" */
export function memoryOf(
  used: number | null,
  total: number | null,
  unit: MemoryUnit,
  trans: TranslationBundle
): string {
  const numbers = `${memory(used, unit)} / ${memory(total, unit)}`;
  return unit === 'GiB'
    ? trans.__('%1 GiB', numbers)
    : trans.__('%1 GB', numbers);
}

/** "66.0 / 80 GiB", where there is little room. */
export function memoryOfWhole(
  used: number | null,
  total: number | null,
  unit: MemoryUnit,
  trans: TranslationBundle
): string {
  const all = total === null ? UNKNOWN : whole(gigabytes(total, unit));
  const numbers = `${memory(used, unit)} / ${all}`;
  return unit === 'GiB'
    ? trans.__('%1 GiB', numbers)
    : trans.__('%1 GB', numbers);
}

/** "12.3 GiB" */
export function memoryWithUnit(
  mib: number,
  unit: MemoryUnit,
  trans: TranslationBundle
): string {
  const number = memory(mib, unit);
  return unit === 'GiB'
    ? trans.__('%1 GiB', number)
    : trans.__('%1 GB', number);
}

export function gigabytes(mib: number, unit: MemoryUnit): number {
  return unit === 'GiB' ? mib / 1024 : (mib * 1.048576) / 1000;
}

export function whole(value: number | null): string {
  return value === null ? UNKNOWN : value.toFixed(0);
}

export function inPercent(
  value: number | null,
  trans: TranslationBundle
): string {
  return value === null ? UNKNOWN : trans.__('%1%', whole(value));
}

/** MB/s, or GB/s where that is shorter. */
export function rate(
  megabytesPerSecond: number | null,
  trans: TranslationBundle
): string {
  if (megabytesPerSecond === null) {
    return UNKNOWN;
  }
  return megabytesPerSecond < 999.5
    ? trans.__('%1 MB/s', significant(megabytesPerSecond))
    : trans.__('%1 GB/s', (megabytesPerSecond / 1000).toFixed(1));
}

/** A number in four figures, as charts and tables have it. */
export function figures(value: number): string {
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e7)) {
    return value.toExponential(3).replace(/\.?0+e/, 'e');
  }
  const decimals =
    size === 0 ? 0 : Math.max(0, 3 - Math.floor(Math.log10(size)));
  const [whole = '', part = ''] = value.toFixed(decimals).split('.');
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, ',');
  const kept = part.replace(/0+$/, '');
  return kept ? `${grouped}.${kept}` : grouped;
}

/** A number of which small ones keep a decimal: 1234, 12, 4.2, 0.4. */
export function significant(value: number): string {
  if (value > 0 && value < 0.095) {
    return value.toPrecision(1);
  }
  return value.toFixed(value > 0 && value < 9.95 ? 1 : 0);
}

/** A span of time: "12 s", "45 min", "1 h 30 min", "2 d 3 h". */
export function duration(seconds: number, trans: TranslationBundle): string {
  if (seconds < 100) {
    return trans.__('%1 s', Math.floor(seconds));
  }
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) {
    return trans.__('%1 min', minutes);
  }
  const hours = Math.floor(minutes / 60);
  if (hours < 24) {
    return minutes % 60
      ? trans.__('%1 h %2 min', hours, minutes % 60)
      : trans.__('%1 h', hours);
  }
  return hours % 24
    ? trans.__('%1 d %2 h', Math.floor(hours / 24), hours % 24)
    : trans.__('%1 d', Math.floor(hours / 24));
}

/** "NVIDIA H100 80GB HBM3" without the maker that all of them have. */
export function shortName(name: string | null): string {
  return name === null ? UNKNOWN : name.replace(/^NVIDIA\s+/, '');
}

/** The last part of a path. */
export function baseName(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1);
}
