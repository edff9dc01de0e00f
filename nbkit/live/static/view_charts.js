// Line charts, drawn as SVG: a point is [x, lowest, highest, mean, seconds].

const SVG = 'http://www.w3.org/2000/svg';
const CHART_TOP = 6;
const CHART_BOTTOM = 18;
const CHART_RIGHT = 8;
/** Of a digit, at most, in a label. */
const CHARACTER_WIDTH = 7;
/** Of this many points of a line, each may be more than one value. */
const FEWEST_MERGED = 1000;
const MOST_RUNS = 8;
/** A zoom that stays for so long asks for what is between its ends. */
const ZOOM_MILLISECONDS = 200;
const TIME_STEPS = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600,
  43200, 86400
];

function makeSvg(tag, attributes = {}) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, value);
  }
  return element;
}

/**
 * The exponential moving average of TensorBoard: the average begins at 0, which is
 * divided out again (https://arxiv.org/abs/1412.6980, section 3).
 */
function smoothed(values, weight) {
  let average = 0;
  let count = 0;
  return values.map(value => {
    if (value === null) {
      return null;
    }
    average = weight * average + (1 - weight) * value;
    count += 1;
    return average / (1 - weight ** count);
  });
}

/** About so many round numbers between two others, at least two; of time, in its units. */
function ticksBetween(low, high, count, isTime = false, least = 0) {
  const rough = Math.max(least, (high - low) / Math.max(1, count));
  const power = 10 ** Math.floor(Math.log10(rough));
  let step = power * [1, 2, 5, 10].find(factor => factor * power >= rough * 0.999);
  if (isTime && rough > 1) {
    const days = 86400 * Math.ceil(rough / 86400);
    step = TIME_STEPS.find(size => size >= rough) ?? days;
  }
  const ticks = [];
  const first = Math.ceil(low / step - 1e-9);
  // Above 2 ** 53, `first++` would change nothing.
  for (let n = 0; (first + n) * step <= high + step * 1e-9; n++) {
    ticks.push(Number(((first + n) * step).toPrecision(12)));
  }
  // A round step is at most 2.5 times the wanted one: of eight, there are two.
  return ticks.length > 1 || count >= 8
    ? ticks
    : ticksBetween(low, high, 2 * count, isTime, least);
}

/** The smallest distance between two of them. */
function stepOf(ticks) {
  return least(ticks.slice(1).map((tick, n) => tick - ticks[n]));
}

/** Powers of ten between two numbers; where they are few, others between them. */
function logTicks(low, high, count) {
  const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const every = Math.max(1, Math.ceil((last - first) / count));
  const parts = last - first > 3 ? [1] : last - first > 1 ? [1, 3] : [1, 2, 5];
  const ticks = [];
  for (let power = first; power <= last; power += every) {
    ticks.push(...parts.map(part => part * 10 ** power));
  }
  const inside = ticks.filter(tick => tick >= low && tick <= high);
  return inside.length > 1 ? inside : ticksBetween(low, high, count);
}

/** The ends of values, at most 1.5 interquartile ranges beyond the quartiles. */
function withoutOutliers(values) {
  values.sort((a, b) => a - b);
  const at = part => values[Math.round(part * (values.length - 1))];
  const reach = 1.5 * (at(0.75) - at(0.25));
  return [Math.max(at(0), at(0.25) - reach), Math.min(at(1), at(0.75) + reach)];
}

/**
 * One number of one or more runs: a title, the newest value (or the `headline` that
 * replaces it), and a line for each run.
 */
class Chart {
  /**
   * Over seconds (`isOverTime`), or over what `unit` says. `onZoom(run, first, last, signal)`
   * gives every point of a run between two x; `onCsv()` is the button's.
   */
  constructor({ name, label, isOverTime, unit, onZoom, onCsv }) {
    this.name = name;
    this._label = label;
    this._isOverTime = isOverTime;
    this._unit = unit;
    this._onZoom = onZoom;
    this._lines = [];
    this._zoom = null;
    /** By run, its points between the ends of the zoom. */
    this._near = new Map();
    this._value = make('span', { class: 'nbkv-chart-value' });
    this._svg = makeSvg('svg', { role: 'img' });
    this._tip = make('div', { class: 'nbkv-tip', hidden: true });
    // Said when keys have moved the cursor: the value beside the title changes all the time.
    this._spoken = make('span', { class: 'nbkv-spoken', 'aria-live': 'polite' });
    const keys = trans.__(
      'Show values: ← →. Zoom: drag, or + −; then move: ← →. Reset: double-click, or Esc.'
    );
    this._plot = make(
      'div',
      {
        class: 'nbkv-plot',
        tabindex: '0',
        role: 'group',
        'aria-label': `${label}: ${keys}`,
        'data-lm-suppress-shortcuts': 'true',
        onpointerdown: event => this._grab(event),
        onpointermove: event => this._move(event),
        onpointerup: event => this._release(event),
        onpointerleave: () => this._unpoint(),
        onblur: () => this._unpoint(),
        ondblclick: () => this._zoomTo(null),
        onkeydown: event => this._press(event)
      },
      this._svg,
      this._tip,
      this._spoken
    );
    const button = (words, what, onclick) =>
      make(
        'button',
        { type: 'button', title: what, 'aria-label': `${label}: ${what}`, onclick },
        words
      );
    this._reset = button(trans.__('Reset zoom'), trans.__('reset the zoom'), () =>
      this._zoomTo(null)
    );
    this._reset.hidden = true;
    this.node = make(
      'figure',
      { class: 'nbkv-chart' },
      make(
        'figcaption',
        {},
        make('span', { class: 'nbkv-chart-title', title: label }, label),
        make(
          'span',
          { class: 'nbkv-chart-buttons' },
          this._reset,
          button('PNG', trans.__('download as PNG'), () => void this._downloadPng()),
          button('CSV', trans.__('download the values as CSV'), onCsv)
        ),
        this._value
      ),
      this._plot
    );
    this._observer = new ResizeObserver(() => this._render());
    this._observer.observe(this._plot);
  }

  remove() {
    this._askNothing();
    this._observer.disconnect();
    this.node.remove();
  }

  /** Draw lines `{ run, label, points, resumed }`; the first is the page's own run. */
  draw(lines, choices) {
    if (this._choices && this._choices.axis !== choices.axis) {
      this._askNothing();
      this._zoom = null;
      this._near.clear();
    }
    this._lines = lines;
    this._choices = { ...choices };
    this.node.points = lines[0]?.points ?? [];
    this._width = 0;
    this._render();
  }

  /** Take what was asked for of a run's line between two x. */
  showNear(run, points) {
    if (this._zoom) {
      this._near.set(run, points);
      this._width = 0;
      this._render();
    }
  }

  /** Of a download, without its suffix. */
  get fileName() {
    return `${this._lines[0].label}-${this.name}`;
  }

  /** The drawn points of all runs, as CSV. */
  drawnCsv() {
    const rows = [`run_id,seconds,lowest,highest,mean_${this.name.replace(OF_DEVICES, '')}`];
    for (const { run, points } of this._lines) {
      for (const [x, low, high, mean] of points) {
        const values = [low, high, mean].map(value => value ?? '');
        rows.push([run, (x - points[0][0]).toFixed(2), ...values].join(','));
      }
    }
    return `${rows.join('\n')}\n`;
  }

  get _isByTime() {
    return (
      !this._isOverTime &&
      !(this.name in UNITS) &&
      this._choices.axis === 'time' &&
      this._lines.every(({ points }) => points.every(point => point.length > 4))
    );
  }

  _render() {
    const { clientWidth: width, clientHeight: height } = this._plot;
    if (!width || width === this._width || !this._choices) {
      return;
    }
    this._width = width;
    this._svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
    this._svg.replaceChildren();
    this._reset.hidden = !this._zoom;
    const isTime = this._isOverTime || this._isByTime;
    const curves = (this._curves = this._lines.map(line => this._curve(line)));
    const known = curves.flatMap(({ xs, ys }) => xs.filter((_, n) => ys[n] !== null));
    const xRange = this._zoom ?? [least(known), most(known)];
    this._xRange = xRange;
    const yRange = this._yRange(curves, xRange);
    if (!yRange) {
      const isLog = this._choices.log && known.length > 0;
      this._say('–', isLog ? trans.__('no values above 0') : trans.__('no values'));
      this._xRange = null;
      return;
    }
    const { log } = this._choices;
    const plotHeight = height - CHART_TOP - CHART_BOTTOM;
    const count = Math.max(2, Math.floor(plotHeight / 36));
    const ticks = (log ? logTicks : ticksBetween)(...yRange, count);
    const labels = ticks.map(tick => numberText(tick, stepOf(ticks)));
    const longest = Math.max(0, ...labels.map(label => label.length));
    this._left = 12 + CHARACTER_WIDTH * longest;
    const plotWidth = (this._plotWidth = Math.max(
      20,
      width - this._left - CHART_RIGHT
    ));
    const bend = log ? Math.log10 : value => value;
    this._x = scale(...xRange, 0, plotWidth);
    const y = scale(...yRange.map(bend), plotHeight, 0);
    // What has no logarithm is far below the plot.
    this._y = value => (log && value <= 0 ? 2 * plotHeight : y(bend(value)));
    ticks.forEach((tick, place) => {
      const at = CHART_TOP + this._y(tick);
      this._rule(this._left, width - CHART_RIGHT, at);
      this._text(labels[place], this._left - 5, at + 3.5, 'end');
    });
    this._drawXTicks(xRange, isTime, height);
    // It cuts off what is outside of it.
    this._area = makeSvg('svg', {
      x: this._left,
      y: CHART_TOP,
      width: plotWidth,
      height: plotHeight
    });
    // The page's own run is on top.
    curves.forEach((curve, place) => this._area.prepend(this._drawn(curve, place)));
    this._mark = makeSvg('line', {
      class: 'nbkv-chart-mark',
      y1: 0,
      y2: plotHeight,
      visibility: 'hidden'
    });
    this._box = makeSvg('rect', { class: 'nbkv-chart-box', y: 0, width: 0 });
    this._box.setAttribute('height', plotHeight);
    this._area.append(this._mark, this._box);
    this._svg.append(this._area);
    this._sayRange(curves);
    if (this._pointed !== undefined) {
      this._point(this._pointed);
    }
  }

  /** What is drawn of a line: x, and the values at each. */
  _curve({ run, label, points: all, resumed }) {
    let points = all;
    const near = this._zoom && this._near.get(run);
    if (near?.length) {
      const [first, last] = [near[0][0], near[near.length - 1][0]];
      points = [
        ...all.filter(point => point[0] < first),
        ...near,
        ...all.filter(point => point[0] > last)
      ];
    }
    const begin = this._isOverTime ? points[0]?.[0] : 0;
    const place = this._isByTime ? 4 : 0;
    const usable = value => (this._choices.log && value <= 0 ? null : value);
    const ys = points.map(([, , , mean]) => (mean === null ? null : usable(mean)));
    const { smoothing } = this._choices;
    return {
      run,
      label,
      points,
      xs: points.map(point => point[place] - begin),
      ys: smoothing ? smoothed(ys, smoothing) : ys,
      raw: ys,
      // On an axis of time, nothing ran between two attempts.
      resumed: this._isByTime ? resumed : []
    };
  }

  /** Between which values the plot reaches; null without any. */
  _yRange(curves, [from, to]) {
    const { log, outliers } = this._choices;
    const values = [];
    for (const { xs, ys, points } of curves) {
      xs.forEach((x, n) => {
        if (x >= from && x <= to && ys[n] !== null) {
          const [, low, high] = points[n];
          values.push(log && low <= 0 ? ys[n] : low, high);
        }
      });
    }
    if (!values.length) {
      return null;
    }
    let [low, high] = [least(values), most(values)];
    if (outliers && log) {
      [low, high] = withoutOutliers(values.map(Math.log10)).map(power => 10 ** power);
    } else if (outliers) {
      [low, high] = withoutOutliers(values);
    }
    if (log) {
      const margin = (high / low) ** 0.05 || 1;
      return low === high ? [low / 2, high * 2] : [low / margin, high * margin];
    }
    const margin = (high - low) * 0.05 || Math.abs(high) * 0.05 || 1;
    return [low >= 0 ? Math.max(0, low - margin) : low - margin, high + margin];
  }

  _drawXTicks([from, to], isTime, height) {
    const count = Math.max(1, Math.floor(this._plotWidth / 95));
    const smallest = isTime || to - from < 1 ? 0 : 1;
    const ticks = to > from ? ticksBetween(from, to, count, isTime, smallest) : [from];
    let end = 0;
    ticks.forEach((tick, place) => {
      const isLong = isTime && to - from >= 5;
      const number = isLong ? duration(tick, 4) : numberText(tick, stepOf(ticks));
      const unit = isTime && !isLong ? ' s' : '';
      const name = !isTime && place === 0 ? `${this._unit} ` : '';
      const words = `${name}${number}${unit}`;
      const half = (CHARACTER_WIDTH * words.length) / 2;
      const middle = this._left + this._x(tick);
      const at = Math.min(
        Math.max(middle, this._left + half - 4),
        this._width - half
      );
      if (at - half >= end) {
        this._text(words, at, height - 4, 'middle');
        end = at + half + 6;
      }
    });
  }

  _rule(x1, x2, y) {
    this._svg.append(
      makeSvg('line', { class: 'nbkv-chart-grid', x1, x2, y1: y, y2: y })
    );
  }

  _text(words, x, y, anchor) {
    const text = makeSvg('text', { x, y, 'text-anchor': anchor });
    text.textContent = words;
    this._svg.append(text);
  }

  /** The line of a run, and what it is the mean of. */
  _drawn(curve, place) {
    const { xs, ys, raw, points, resumed } = curve;
    const isGap = (n, next) => resumed.some(at => xs[n] < at && at <= xs[next]);
    const group = makeSvg('g', { class: `nbkv-run-${place}` });
    const visible = this._visible(xs);
    if (visible.some(n => ys[n] !== null && points[n][1] !== points[n][2])) {
      let d = '';
      // A gap where nothing is known.
      for (const stretch of stretches(visible, ys, isGap)) {
        const [upper, lower] = [[], []];
        for (const [x, ns] of this._columns(stretch, xs)) {
          upper.push(corner(x, this._y(most(ns.map(n => points[n][2])))));
          lower.push(corner(x, this._y(least(ns.map(n => points[n][1])))));
        }
        d += `M${[...upper, ...lower.reverse()].join('L')}Z`;
      }
      group.append(makeSvg('path', { class: 'nbkv-chart-band', d }));
    }
    const add = (values, name) => {
      let d = '';
      for (const stretch of stretches(visible, values, isGap)) {
        const at = this._columns(stretch, xs).flatMap(([x, ns]) => {
          const heights = ns.map(n => values[n]);
          const ends = ns.length > 1 ? [least(heights), most(heights)] : heights;
          return ends.map(value => corner(x, this._y(value)));
        });
        // A point alone has no line, but a round end.
        d += `M${at.join('L')}${at.length === 1 ? 'h.01' : ''}`;
      }
      group.append(makeSvg('path', { class: name, d }));
    };
    if (raw !== ys) {
      add(raw, 'nbkv-chart-raw');
    }
    const isDot = visible.filter(n => ys[n] !== null).length === 1;
    add(ys, `nbkv-chart-line${isDot ? ' nbkv-chart-dot' : ''}`);
    return group;
  }

  /** Points that share a pixel of the x axis, with its place. */
  _columns(stretch, xs) {
    const columns = [];
    let pixel = null;
    for (const n of stretch) {
      const x = this._x(xs[n]);
      if (Math.round(x) === pixel) {
        columns[columns.length - 1][1].push(n);
      } else {
        pixel = Math.round(x);
        columns.push([x, [n]]);
      }
    }
    return columns;
  }

  /** Which points are within the plot, and one more at either end. */
  _visible(xs) {
    const [from, to] = this._xRange;
    let first = 0;
    while (first < xs.length && xs[first] < from) {
      first += 1;
    }
    let last = xs.length - 1;
    while (last >= 0 && xs[last] > to) {
      last -= 1;
    }
    first = Math.max(0, first - 1);
    last = Math.min(xs.length - 1, last + 1);
    return Array.from({ length: Math.max(0, last - first + 1) }, (_, n) => first + n);
  }

  _say(value, words) {
    this._newest = value;
    this._value.textContent = value;
    this._svg.setAttribute('aria-label', `${this._label}: ${value}, ${words}`);
  }

  _sayRange(curves) {
    const described = curves.map(({ label, ys, points }) => {
      const known = points.filter(point => point[3] !== null);
      const range = known.length
        ? trans.__(
            'from %1 to %2',
            figures(least(known.map(point => point[1]))),
            figures(most(known.map(point => point[2])))
          )
        : trans.__('no values');
      const value = figures(ys.findLast(value => value !== null));
      const newest = this._choices.smoothing ? trans.__('%1 (smoothed)', value) : value;
      return { newest, words: curves.length > 1 ? `${label} ${newest}, ${range}` : range };
    });
    const isPlain = curves.length === 1;
    const newest = isPlain ? (this.headline ?? described[0].newest) : '';
    this._say(newest, described.map(({ words }) => words).join('; '));
  }

  // Pointing

  _at(event) {
    const box = this._svg.getBoundingClientRect();
    const at = event.clientX - box.left - this._left;
    return Math.min(Math.max(0, at), this._plotWidth);
  }

  _xAt(at) {
    const [from, to] = this._xRange;
    return from + (at / this._plotWidth) * (to - from);
  }

  _grab(event) {
    if (event.button === 0 && this._xRange) {
      this._grabbed = this._at(event);
      this._plot.setPointerCapture(event.pointerId);
    }
  }

  _move(event) {
    if (!this._xRange) {
      return;
    }
    const at = this._at(event);
    if (this._grabbed !== undefined) {
      this._box.setAttribute('x', Math.min(at, this._grabbed));
      this._box.setAttribute('width', Math.abs(at - this._grabbed));
    }
    this._pointed = at;
    this._point(at);
  }

  _release(event) {
    const from = this._grabbed;
    this._grabbed = undefined;
    if (from === undefined || !this._xRange) {
      return;
    }
    const at = this._at(event);
    this._box.setAttribute('width', 0);
    if (Math.abs(at - from) > 4) {
      this._zoomTo([this._xAt(Math.min(at, from)), this._xAt(Math.max(at, from))]);
    }
  }

  _press(event) {
    const { key, altKey, ctrlKey, metaKey } = event;
    if (altKey || ctrlKey || metaKey || !this._xRange || event.target !== this._plot) {
      return;
    }
    const [from, to] = this._xRange;
    const part = (to - from) / 4;
    const ranges = {
      '+': [from + part, to - part],
      '=': [from + part, to - part],
      '-': [from - 2 * part, to + 2 * part],
      ArrowLeft: [from - part, to - part],
      ArrowRight: [from + part, to + part],
      Escape: null
    };
    const isCursor = !this._zoom && (key.startsWith('Arrow') || key === 'Escape');
    const isPointed = key !== 'Escape' || this._pointed !== undefined;
    if (!(key in ranges) || (!this._zoom && key === '-') || (isCursor && !isPointed)) {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
    if (!isCursor) {
      this._zoomTo(ranges[key]);
    } else if (key === 'Escape') {
      this._unpoint();
    } else {
      this._moveCursor(key === 'ArrowLeft' ? -1 : 1);
    }
  }

  /** Point at the next known value, of many at every hundredth, and say it. */
  _moveCursor(way) {
    const curve = this._curves.find(({ ys }) => ys.some(y => y !== null));
    const known = [...curve.xs.keys()].filter(n => curve.ys[n] !== null);
    let place = way > 0 ? 0 : known.length - 1;
    if (this._pointed !== undefined) {
      const here = known.indexOf(nearest(curve, this._xAt(this._pointed)));
      const there = here + way * Math.ceil(known.length / 100);
      place = Math.min(Math.max(0, there), known.length - 1);
    }
    this._pointed = this._x(curve.xs[known[place]]);
    this._spoken.textContent = this._point(this._pointed);
  }

  /** Show what is between two x, or all of it. */
  _zoomTo(range) {
    this._askNothing();
    this._near.clear();
    this._zoom = null;
    this._width = 0;
    if (range) {
      const xs = this._curves.flatMap(curve => curve.xs);
      const [from, to] = [Math.max(range[0], least(xs)), Math.min(range[1], most(xs))];
      const isAll = from <= least(xs) && to >= most(xs);
      this._zoom = isAll || from >= to ? null : [from, to];
    }
    this._unpoint();
    this._render();
    if (this._zoom && !this._isOverTime) {
      this._asking = setTimeout(() => this._askNear(), ZOOM_MILLISECONDS);
    }
  }

  _askNear() {
    const [from, to] = this._zoom;
    const { signal } = this._request;
    for (const { run, xs, points } of this._curves) {
      if (points.length >= FEWEST_MERGED) {
        // A point stands for the values up to the next one.
        const first = points.findLast((_, n) => xs[n] <= from) ?? points[0];
        const last = points.find((_, n) => xs[n] >= to) ?? points.at(-1);
        void this._onZoom(run, first[0], last[0], signal).then(near => {
          if (near && !signal.aborted) {
            this.showNear(run, near);
          }
        });
      }
    }
  }

  /** Forget what the zoom before has asked for. */
  _askNothing() {
    clearTimeout(this._asking);
    this._request?.abort();
    this._request = new AbortController();
  }

  /** Show the values nearest to a place; return them in words. */
  _point(at) {
    const x = this._xAt(at);
    const nearby = this._curves.flatMap((curve, place) => {
      const n = nearest(curve, x);
      return n === null ? [] : [{ ...curve, place, n }];
    });
    if (!nearby.length) {
      return '';
    }
    const at0 = nearby[0].xs[nearby[0].n];
    const isTime = this._isOverTime || this._isByTime;
    const where = isTime ? duration(at0) : `${this._unit} ${numberText(at0, 1)}`;
    const words = ({ n, points, ys }) => {
      const [, low, high] = points[n];
      const numbers = [ys[n], low, high].map(figures);
      return low === high ? numbers[0] : trans.__('%1 (%2 to %3)', ...numbers);
    };
    this._mark.setAttribute('x1', this._x(at0));
    this._mark.setAttribute('x2', this._x(at0));
    this._mark.setAttribute('visibility', 'visible');
    if (this._curves.length === 1) {
      return (this._value.textContent = `${where}: ${words(nearby[0])}`);
    }
    this._tip.replaceChildren(
      make('div', {}, where),
      ...nearby.map(run =>
        make('div', { class: `nbkv-run-${run.place}` }, swatch(), `${words(run)}  ${run.label}`)
      )
    );
    this._tip.hidden = false;
    this._tip.dataset.side = at > this._plotWidth / 2 ? 'left' : 'right';
    return [where, ...nearby.map(curve => `${curve.label} ${words(curve)}`)].join('; ');
  }

  _unpoint() {
    this._pointed = undefined;
    this._spoken.textContent = '';
    this._value.textContent = this._newest ?? '–';
    this._mark?.setAttribute('visibility', 'hidden');
    this._tip.hidden = true;
  }

  // A picture

  async _downloadPng() {
    const { clientWidth: width, clientHeight: height } = this._plot;
    const head = 24 + (this._curves.length > 1 ? 16 * this._curves.length : 0);
    const styles = getComputedStyle(this.node);
    const ink = styles.color;
    const image = makeSvg('svg', { width, height: height + head, xmlns: SVG });
    image.append(
      makeSvg('rect', { width: '100%', height: '100%', fill: ground(this.node) })
    );
    const write = (words, x, y, attributes) => {
      const text = makeSvg('text', { x, y, fill: ink, ...attributes });
      text.setAttribute('font-family', styles.fontFamily);
      text.textContent = words;
      image.append(text);
    };
    const run = this._curves.length > 1 ? '' : ` · ${this._curves[0].label}`;
    write(this._label + run, 8, 16, { 'font-size': 13, 'font-weight': 600 });
    if (this._curves.length > 1) {
      this._curves.forEach(({ label }, place) => {
        const line = this._area.querySelector(`.nbkv-run-${place} .nbkv-chart-line`);
        const y = 30 + 16 * place;
        const key = makeSvg('line', { x1: 8, x2: 28, y1: y - 4, y2: y - 4 });
        copyStyle(line, key);
        image.append(key);
        write(label, 34, y, { 'font-size': 11 });
      });
    }
    const copy = this._svg.cloneNode(true);
    const parts = [...this._svg.querySelectorAll('*')];
    [...copy.querySelectorAll('*')].forEach((part, n) => copyStyle(parts[n], part));
    for (const [name, value] of Object.entries({ y: head, width, height })) {
      copy.setAttribute(name, value);
    }
    image.append(copy);
    const text = new XMLSerializer().serializeToString(image);
    const picture = new Image();
    picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
    await picture.decode();
    const canvas = make('canvas', { width: 2 * width, height: 2 * (height + head) });
    canvas.getContext('2d').drawImage(picture, 0, 0, canvas.width, canvas.height);
    canvas.toBlob(blob => download(blob, `${this.fileName}.png`));
  }
}

/** What a page's style sheet says of a part, on the part itself. */
function copyStyle(from, to) {
  const styles = getComputedStyle(from);
  for (const name of [
    'fill',
    'stroke',
    'stroke-width',
    'stroke-dasharray',
    'stroke-linecap',
    'opacity',
    'font-size',
    'font-family',
    'visibility'
  ]) {
    to.style.setProperty(name, styles.getPropertyValue(name));
  }
}

/** The colour behind an element. */
function ground(element) {
  for (let part = element; part; part = part.parentElement) {
    const { backgroundColor } = getComputedStyle(part);
    if (!/^(transparent|rgba\(.*, 0\))$/.test(backgroundColor)) {
      return backgroundColor;
    }
  }
  return 'white';
}

function download(blob, name) {
  const url = URL.createObjectURL(blob);
  const link = make('a', { href: url, download: name.replace(/[^\p{L}\p{N}_.-]+/gu, '_') });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** The key of a run's line. */
function swatch() {
  const svg = makeSvg('svg', { class: 'nbkv-swatch', 'aria-hidden': 'true' });
  svg.append(makeSvg('line', { class: 'nbkv-chart-line', x2: 20, y1: 5, y2: 5 }));
  return svg;
}

/** Which known point of a curve is nearest to an x; null without one. */
function nearest({ xs, ys }, x) {
  let best = null;
  xs.forEach((value, n) => {
    if (ys[n] === null) {
      return;
    }
    if (best === null || Math.abs(value - x) < Math.abs(xs[best] - x)) {
      best = n;
    }
  });
  return best;
}

/** Parts of a list of places without a gap in the values. */
function stretches(places, values, isGap) {
  const parts = [];
  let open = null;
  for (const n of places) {
    if (values[n] === null) {
      open = null;
    } else if (open && !isGap(open.at(-1), n)) {
      open.push(n);
    } else {
      parts.push((open = [n]));
    }
  }
  return parts;
}

// Not Math.min(...values): a call has a limit of arguments.
function least(values) {
  return values.reduce((low, value) => Math.min(low, value), Infinity);
}

function most(values) {
  return values.reduce((high, value) => Math.max(high, value), -Infinity);
}

function corner(x, y) {
  return `${x.toFixed(1)} ${y.toFixed(1)}`;
}

function scale(from, to, low, high) {
  const width = to - from || 1;
  return value => low + ((value - from) / width) * (high - low);
}
