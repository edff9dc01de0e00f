// Numbers as text: one rule for all of them.

/** A number in four figures; a dash where it is unknown. */
function figures(value) {
  return value === null || value === undefined ? '–' : numberText(value);
}

/** A number in four figures, or in as many as tell it from those a step away. */
function numberText(value, step = Infinity) {
  if (value === 0) {
    return '0';
  }
  const size = Math.abs(value);
  const first = Math.floor(Math.log10(size));
  const last = Math.min(first - 3, Math.floor(Math.log10(step)));
  if (size < 1e-4 || size >= 1e7) {
    return value.toExponential(first - last).replace(/\.?0+e/, 'e');
  }
  const [whole, part] = value.toFixed(Math.max(0, -last)).split('.');
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

/** A duration in its two largest units, or more. */
function duration(seconds, mostUnits = 2) {
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
        .slice(first, first + mostUnits)
        .filter(([count]) => count > 0)
        .map(([count, unit]) => `${count} ${unit}`)
        .join(' ');
}
