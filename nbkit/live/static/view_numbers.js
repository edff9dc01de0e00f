// Numbers as text: one rule for all of them.

/** A number in four figures; a dash where it is unknown. */
function figures(value) {
  if (value === null || value === undefined) {
    return '–';
  }
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e7)) {
    return value.toExponential(3).replace(/\.?0+e/, 'e');
  }
  const decimals = size === 0 ? 0 : Math.max(0, 3 - Math.floor(Math.log10(size)));
  const [whole, part] = value.toFixed(decimals).split('.');
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, ',');
  const kept = part?.replace(/0+$/, '');
  return kept ? `${grouped}.${kept}` : grouped;
}

function percent(part) {
  return part === null || part === undefined
    ? '–'
    : `${(100 * part).toFixed(1)}%`;
}

function gibibytes(bytes) {
  return bytes === null || bytes === undefined
    ? '–'
    : (bytes / 2 ** 30).toFixed(1);
}

/** A duration in its two largest units. */
function duration(seconds) {
  if (seconds === null || seconds === undefined) {
    return '–';
  }
  const whole = Math.max(0, Math.round(seconds));
  const parts = [
    [Math.floor(whole / 86400), 'd'],
    [Math.floor(whole / 3600) % 24, 'h'],
    [Math.floor(whole / 60) % 60, 'min'],
    [whole % 60, 's']
  ];
  const first = parts.findIndex(([count]) => count > 0);
  return first < 0
    ? '0 s'
    : parts
        .slice(first, first + 2)
        .filter(([count]) => count > 0)
        .map(([count, unit]) => `${count} ${unit}`)
        .join(' ');
}
