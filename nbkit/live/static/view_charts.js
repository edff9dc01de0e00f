// Small line charts, drawn as SVG: the mean as a line, lowest to highest as an area.

const SVG = 'http://www.w3.org/2000/svg';
const CHART_WIDTH = 300;
const CHART_HEIGHT = 96;
const CHART_LEFT = 44;
/** Of a digit, at most, in a label. */
const CHARACTER_WIDTH = 5.5;
const CHART_BOTTOM = 16;
const CHART_TOP = 6;

function makeSvg(tag, attributes = {}) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, value);
  }
  return element;
}

/**
 * A number in four figures; a dash where it is unknown.
 *
 * With `size`, the largest of several, it has as many decimals as that one has.
 */
function figures(value, size = null) {
  if (value === null || value === undefined) {
    return '–';
  }
  const most = Math.abs(size ?? value);
  if (most !== 0 && (most < 1e-3 || most >= 1e7)) {
    return value.toExponential(2);
  }
  const digits = most >= 1000 ? 0 : most >= 100 ? 1 : most >= 1 ? 2 : 4;
  const text = value.toFixed(digits);
  const [whole, part] = text.split('.');
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, ',');
  const kept = size === null ? part?.replace(/0+$/, '') : part;
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
        .map(([count, unit]) => `${count} ${unit}`)
        .join(' ');
}

/**
 * One line: its title, its newest value (or the `headline` that replaces it), and its
 * points [x, low, high, mean].
 */
class Chart {
  /** Over seconds, or over what `unit` says. */
  constructor(title, isOverTime, unit = 'step') {
    this._title = title;
    this._isOverTime = isOverTime;
    this._unit = unit;
    this._value = make('span', { class: 'nbkv-chart-value' });
    this._svg = makeSvg('svg', {
      viewBox: `0 0 ${CHART_WIDTH} ${CHART_HEIGHT}`,
      role: 'img'
    });
    this.node = make(
      'figure',
      { class: 'nbkv-chart' },
      make('figcaption', {}, make('span', {}, title), this._value),
      this._svg
    );
    this._svg.addEventListener('pointermove', event => this._point(event));
    this._svg.addEventListener('pointerleave', () => this._unpoint());
  }

  draw(points) {
    this.node.points = points;
    this._points = points.filter(point => point[3] !== null);
    const known = this._points;
    this._svg.replaceChildren();
    if (!known.length) {
      this._say('–', 'no values yet');
      return;
    }
    const xs = [known[0][0], known[known.length - 1][0]];
    let low = Infinity;
    let high = -Infinity;
    for (const point of known) {
      low = Math.min(low, point[1]);
      high = Math.max(high, point[2]);
    }
    const values = low === high ? [low] : [low, high];
    const sizes = [Math.abs(low), Math.abs(high)];
    const alike = Math.min(...sizes) * 100 > Math.max(...sizes);
    const size = alike ? Math.max(...sizes) : null;
    const labels = values.map(value => figures(value, size));
    const longest = Math.max(...labels.map(label => label.length));
    this._left = Math.max(CHART_LEFT, 6 + CHARACTER_WIDTH * longest);
    this._x = scale(xs[0], xs[1], this._left, CHART_WIDTH - 6);
    const margin = (high - low) * 0.05 || Math.abs(high) * 0.05 || 1;
    const bottom = low >= 0 ? Math.max(0, low - margin) : low - margin;
    this._y = scale(
      bottom,
      high + margin,
      CHART_HEIGHT - CHART_BOTTOM,
      CHART_TOP
    );
    this._drawAxes(xs, values, labels);
    this._drawLine(points);
    this._mark = makeSvg('line', {
      class: 'nbkv-chart-mark',
      y1: CHART_TOP,
      y2: CHART_HEIGHT - CHART_BOTTOM,
      visibility: 'hidden'
    });
    this._svg.append(this._mark);
    const range = `${figures(low)} to ${figures(high)}`;
    const newest = figures(known[known.length - 1][3]);
    this._say(this.headline ?? newest, `from ${range}`);
  }

  _say(value, words) {
    this._newest = value;
    this._value.textContent = value;
    this._svg.setAttribute('aria-label', `${this._title}: ${value}, ${words}`);
  }

  _drawAxes(xs, values, labels) {
    values.forEach((value, place) => {
      const y = this._y(value);
      this._svg.append(
        makeSvg('line', {
          class: 'nbkv-chart-grid',
          x1: this._left,
          x2: CHART_WIDTH - 6,
          y1: y,
          y2: y
        })
      );
      this._text(labels[place], this._left - 4, y + 3, 'end');
    });
    const y = CHART_HEIGHT - 4;
    const [first, last] = this._isOverTime
      ? ['0 s', duration(xs[1] - xs[0])]
      : [`${this._unit} ${figures(xs[0])}`, figures(xs[1])];
    this._text(first, this._left, y, 'start');
    if (xs[0] !== xs[1]) {
      this._text(last, CHART_WIDTH - 6, y, 'end');
    }
  }

  _text(words, x, y, anchor) {
    const text = makeSvg('text', { x, y, 'text-anchor': anchor });
    text.textContent = words;
    this._svg.append(text);
  }

  _drawLine(points) {
    // A gap where nothing is known.
    let line = '';
    let pen = 'M';
    for (const [x, , , mean] of points) {
      if (mean === null) {
        pen = 'M';
        continue;
      }
      line += `${pen}${this._x(x).toFixed(1)} ${this._y(mean).toFixed(1)}`;
      pen = 'L';
    }
    const known = this._points;
    if (known.some(([, low, high]) => low !== high)) {
      const edge = (point, value) =>
        `${this._x(point[0]).toFixed(1)} ${this._y(value).toFixed(1)}`;
      const upper = known.map(point => edge(point, point[2]));
      const lower = known.map(point => edge(point, point[1])).reverse();
      const d = `M${[...upper, ...lower].join('L')}Z`;
      this._svg.append(makeSvg('path', { class: 'nbkv-chart-band', d }));
    }
    this._svg.append(makeSvg('path', { class: 'nbkv-chart-line', d: line }));
    if (known.length === 1) {
      const [x, , , mean] = known[0];
      this._svg.append(
        makeSvg('circle', {
          class: 'nbkv-chart-dot',
          cx: this._x(x),
          cy: this._y(mean),
          r: 2.5
        })
      );
    }
  }

  _point(event) {
    const known = this._points;
    if (!known?.length || !this._x) {
      return;
    }
    const box = this._svg.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * CHART_WIDTH;
    let nearest = known[0];
    for (const point of known) {
      if (
        Math.abs(this._x(point[0]) - at) < Math.abs(this._x(nearest[0]) - at)
      ) {
        nearest = point;
      }
    }
    const [x, low, high, mean] = nearest;
    const where = this._isOverTime
      ? duration(x - known[0][0])
      : `${this._unit} ${figures(x)}`;
    const range = low === high ? '' : ` (${figures(low)} to ${figures(high)})`;
    this._value.textContent = `${where}: ${figures(mean)}${range}`;
    this._mark.setAttribute('x1', this._x(x));
    this._mark.setAttribute('x2', this._x(x));
    this._mark.setAttribute('visibility', 'visible');
  }

  _unpoint() {
    this._value.textContent = this._newest ?? '–';
    this._mark?.setAttribute('visibility', 'hidden');
  }
}

function scale(from, to, low, high) {
  const width = to - from || 1;
  return value => low + ((value - from) / width) * (high - low);
}
