// What a reader chooses of the charts: axes, smoothing, curves, and runs beside this one.

const DEFAULT_CHOICES = {
  axis: 'step',
  log: false,
  smoothing: 0,
  outliers: false,
  /** By name, whether a curve is shown: of those that were ever ticked or cleared. */
  curves: {}
};
const AXES = { step: trans.__('step'), time: trans.__('time') };
/** So many curves of the ranks are sent and drawn unless a reader chooses. */
const FIRST_CURVES = 12;

/** Of a run's curves, those that are shown and sent only if they are asked for. */
function moreCurves(curves, isShown) {
  const ofRanks = curves.filter(name => !OF_DEVICES.test(name));
  return ofRanks.slice(FIRST_CURVES).filter(isShown);
}

const MOST_RUNS_LISTED = 200;
const FULL = trans.__('At most %1 runs are drawn together', MOST_RUNS);

/** The controls above the charts. */
class ChoicesPanel {
  /** `onChange()` follows each choice; `onKeep()` those that are worth keeping. */
  constructor(choices, { onChange, onKeep }) {
    this.choices = choices;
    this._onChange = onChange;
    this._onKeep = onKeep;
    const smoothing = `${choices.smoothing}`;
    this._weight = make('output', { class: 'nbkv-weight' }, smoothing);
    this._curves = make('div', { class: 'nbkv-menu-list' });
    this._omitted = make('p');
    this._summary = make('summary', {}, trans.__('Curves'));
    this._names = [];
    this.node = make(
      'div',
      { class: 'nbkv-choices', role: 'group', 'aria-label': trans.__('Charts') },
      make(
        'label',
        {},
        trans.__('x axis'),
        make(
          'select',
          { onchange: ({ target }) => this._set({ axis: target.value }) },
          ...Object.entries(AXES).map(([axis, name]) =>
            make('option', { value: axis, selected: axis === choices.axis }, name)
          )
        )
      ),
      this._tick(
        trans.__('Log scale'),
        'log',
        trans.__('Logarithmic y axis; only values above 0')
      ),
      make(
        'label',
        {
          title: trans.__(
            'Weight of the exponential moving average, as in TensorBoard; the values without smoothing stay visible'
          )
        },
        trans.__('Smoothing'),
        make('input', {
          type: 'range',
          min: '0',
          max: '0.99',
          step: '0.01',
          value: smoothing,
          oninput: ({ target }) => this._smooth(Number(target.value)),
          onchange: () => this._onKeep()
        }),
        this._weight
      ),
      this._tick(
        trans.__('Ignore outliers'),
        'outliers',
        trans.__(
          'The y axis leaves out values more than 1.5 interquartile ranges beyond the quartiles'
        )
      ),
      menu(this._summary, this._curves, this._omitted)
    );
  }

  /** Whether the charts are not drawn as they are for everybody at first. */
  get isScaleChosen() {
    return ['axis', 'log', 'smoothing', 'outliers'].some(
      name => this.choices[name] !== DEFAULT_CHOICES[name]
    );
  }

  /** Offer these curves, and say how many logged names are not among them. */
  offer(names, numOmitted) {
    this._omitted.textContent = numOmitted
      ? trans._n(
          '%1 further logged name is not shown (limit: 100)',
          '%1 further logged names are not shown (limit: 100)',
          numOmitted
        )
      : '';
    if (names.join('\n') !== this._names.join('\n')) {
      this._names = names;
      this._curves.replaceChildren(...names.map(name => this._curve(name)));
    }
    const shown = names.filter(name => this.isShown(name));
    this._summary.textContent = trans.__(
      'Curves (%1 of %2)',
      shown.length,
      names.length
    );
  }

  isShown(name) {
    const ofRanks = this._names.filter(other => !OF_DEVICES.test(other));
    const isFirst = ofRanks.indexOf(name) < FIRST_CURVES;
    return this.choices.curves[name] ?? isFirst;
  }

  _curve(name) {
    return ticked(title(name), this.isShown(name), isShown => {
      this._set({ curves: { ...this.choices.curves, [name]: isShown } });
    });
  }

  _tick(words, choice, hint) {
    const label = ticked(words, this.choices[choice], value =>
      this._set({ [choice]: value })
    );
    label.title = hint;
    return label;
  }

  _smooth(smoothing) {
    this._weight.textContent = `${smoothing}`;
    Object.assign(this.choices, { smoothing });
    this._onChange();
  }

  _set(values) {
    Object.assign(this.choices, values);
    this._onChange();
    this._onKeep();
  }
}

/** A tick box with its words. */
function ticked(words, checked, onTick) {
  const box = make('input', {
    type: 'checkbox',
    checked,
    onchange: () => onTick(box.checked)
  });
  return make('label', {}, box, words);
}

/** A list that opens below a button, and closes when something else is chosen. */
function menu(summary, ...parts) {
  // Else a click beside its parts would take the focus elsewhere, and close it.
  const box = make('div', { class: 'nbkv-menu-box', tabindex: '-1' }, ...parts);
  const node = make(
    'details',
    {
      class: 'nbkv-menu',
      onkeydown: event => {
        if (event.key === 'Escape' && node.open) {
          event.stopPropagation();
          node.open = false;
          summary.focus();
        }
      },
      onfocusout: ({ relatedTarget }) => {
        if (relatedTarget && !node.contains(relatedTarget)) {
          node.open = false;
        }
      }
    },
    summary,
    box
  );
  // Once it is open, and when it is filled: within the view, which may be narrow.
  new ResizeObserver(() => {
    const view = node.closest('.nbkv').getBoundingClientRect();
    box.style.maxWidth = `min(440px, ${view.width}px)`;
    box.style.left = '0';
    box.style.left = `${Math.min(0, view.right - box.getBoundingClientRect().right)}px`;
  }).observe(box);
  return node;
}

/** Runs beside the page's own: chosen from a list, drawn in the same charts. */
class Comparison {
  constructor(model, onChange) {
    this._model = model;
    this._onChange = onChange;
    /** By id, what feeds each of them. */
    this.runs = new Map();
    this._list = make('div', { class: 'nbkv-menu-list' });
    this._filter = make('input', {
      type: 'search',
      placeholder: trans.__('Only runs with…'),
      'aria-label': trans.__('Only runs with this text'),
      oninput: () => this._showRows()
    });
    this.menu = menu(
      make('summary', {}, trans.__('Compare with…')),
      this._filter,
      this._list
    );
    this.menu.addEventListener('toggle', () => this.menu.open && void this._load());
    this._rows = [];
    this.labels = new Map();
    this.legend = make('ul', { class: 'nbkv-legend', 'aria-label': trans.__('Runs') });
    this._table = make('div', { class: 'nbkv-wide', tabindex: '0', role: 'region' });
    const differences = trans.__('Configuration differences');
    this._table.setAttribute('aria-label', differences);
    this.differences = make(
      'details',
      { class: 'nbkv-differences', open: true },
      make('summary', {}, heading(differences, true)),
      this._table
    );
    this.message = make('p', { class: 'nbkv-message', role: 'alert' });
    this.differences.hidden = true;
  }

  dispose() {
    this.runs.forEach(run => run.dispose());
    this.runs.clear();
  }

  /** Keep what the server sends coming: see `View._tick`. */
  sayHere() {
    this.runs.forEach(run => run.sayHere());
  }

  /** The lines of a curve, in the order of the legend. */
  lines(name) {
    return [...this.runs].map(([run, { values }]) => ({
      run,
      label: this.labels.get(run) ?? run,
      points: values?.series[name] ?? [],
      resumed: values?.numbers.resumed_seconds ?? []
    }));
  }

  /** Show the legend, and what the configurations do not share. */
  show(values) {
    const all = [[this._model.get('run_id'), values]];
    this.runs.forEach((run, id) => all.push([id, run.values]));
    const isAlone = this.runs.size === 0;
    this.legend.hidden = isAlone;
    this.differences.hidden = isAlone;
    if (isAlone) {
      return;
    }
    const names = all.map(([id, run]) => (run ? run.head.name : this._nameOf(id)) ?? id);
    const labels = all.map(([id], place) =>
      names.filter(name => name === names[place]).length > 1
        ? `${names[place]} (${id})`
        : names[place]
    );
    this.labels = new Map(all.map(([id], place) => [id, labels[place]]));
    const states = all.map(([, run]) =>
      run ? STATES[run.head.state] : trans.__('loading…')
    );
    const key = JSON.stringify([labels, states]);
    if (key === this._key) {
      return;
    }
    this._key = key;
    this.legend.replaceChildren(
      ...all.map(([id], place) =>
        make(
          'li',
          { class: `nbkv-run-${place}`, title: id },
          swatch(),
          `${labels[place]} · ${states[place]}`,
          ...(place ? [this._remover(id, labels[place])] : [])
        )
      )
    );
    const known = all.flatMap(([id, run]) => (run ? [[this.labels.get(id), run]] : []));
    this._table.replaceChildren(...(known.length > 1 ? [differenceTable(known)] : []));
  }

  /** Draw these runs too, as far as there is room. */
  add(ids) {
    const others = ids.filter(id => id !== this._model.get('run_id'));
    others.filter(id => !this.runs.has(id)).forEach(id => this._choose(id, true));
  }

  /** The name of a listed run. */
  _nameOf(id) {
    return this._rows.find(row => row.run_id === id)?.name;
  }

  get _isFull() {
    return this.runs.size >= MOST_RUNS - 1;
  }

  _remover(id, label) {
    const what = trans.__('Remove %1 from the charts', label);
    const onclick = () => this._choose(id, false);
    return make('button', { type: 'button', title: what, 'aria-label': what, onclick }, '×');
  }

  async _load() {
    try {
      const rows = await this._model.runs(MOST_RUNS_LISTED);
      this._rows = rows.filter(row => row.run_id !== this._model.get('run_id'));
      this._showRows();
    } catch (error) {
      const words = trans.__('Runs cannot be listed: %1', error.message);
      this._list.replaceChildren(make('p', {}, words));
    }
  }

  _showRows() {
    const text = this._filter.value.trim().toLowerCase();
    const labels = this._rows
      .map(row => [row, `${row.name ?? ''} ${STATES[row.state]} ${row.run_id}`])
      .filter(([, words]) => words.toLowerCase().includes(text))
      .map(([{ run_id, name, state }]) => {
        const isFull = this._isFull && !this.runs.has(run_id);
        const label = ticked(name ?? run_id, this.runs.has(run_id), isChosen =>
          this._choose(run_id, isChosen)
        );
        label.firstChild.disabled = isFull;
        label.firstChild.value = run_id;
        label.title = isFull ? FULL : run_id;
        const about = `${STATES[state]} · ${run_id}`;
        label.append(' ', make('span', { class: 'nbkv-about' }, about));
        return label;
      });
    const focused = this._list.contains(document.activeElement)
      ? document.activeElement.value
      : null;
    const none = text ? trans.__('No matching runs.') : trans.__('No other runs.');
    this._list.replaceChildren(...(labels.length ? labels : [make('p', {}, none)]));
    labels.find(label => label.firstChild.value === focused)?.firstChild.focus();
  }

  _choose(id, isChosen) {
    this.message.textContent = '';
    if (isChosen && this._isFull) {
      this.message.textContent = `${FULL}.`;
    } else if (isChosen) {
      const gone = why => {
        this._choose(id, false);
        this.message.textContent = `${this._nameOf(id) ?? id}: ${why}`;
      };
      const model = this._model.other(id, gone);
      const run = new ComparedRun(model, () => this._onChange(), gone);
      this.runs.set(id, run);
    } else {
      this.runs.get(id)?.dispose();
      this.runs.delete(id);
    }
    this._key = null;
    this._showRows();
    this._onChange();
  }
}

/** What a page knows of a run that it compares. */
class ComparedRun {
  /** `onGone(why)` says why there is nothing to draw. */
  constructor(model, onChange, onGone) {
    this._model = model;
    this._onChange = onChange;
    this._feed = feedOf(model);
    this._feed.views.add(this);
    model.on('msg:custom', ({ kind, message }) => kind === 'failed' && onGone(message));
    this.moreCurves = [];
    this._id = `compared-${Math.random().toString(36).slice(2)}`;
    this.open();
  }

  get values() {
    return this._feed.values;
  }

  /** Ask for everything, and for more curves than it sends by itself. */
  open() {
    this._send('open');
  }

  show() {
    this._onChange();
  }

  showAll() {
    this._onChange();
  }

  sayHere() {
    if (this.values && !this.values.head.is_final) {
      this._send('here');
    }
  }

  dispose() {
    this._send('close');
    this._feed.dispose();
    this._model.dispose();
  }

  _send(kind) {
    const log = { rank: 0, stream: 'stderr', text: '', lines: 1 };
    this._model.send({ kind, view: this._id, ...log, curves: this.moreCurves });
  }
}

/** Fields whose values are not the same in all configurations. */
function differenceTable(all) {
  const labels = all.map(([label]) => label);
  const fields = all.map(
    ([, { config }]) => new Map([...config.changed, ...config.default])
  );
  const names = [...new Set(fields.flatMap(field => [...field.keys()]))].filter(
    name => name !== 'name' && new Set(fields.map(field => field.get(name))).size > 1
  );
  if (!names.length) {
    return make('p', {}, trans.__('The configurations are equal.'));
  }
  const head = [trans.__('Field'), ...labels].map(label => make('th', { scope: 'col' }, label));
  const rows = names.map(name =>
    make(
      'tr',
      {},
      make('th', { scope: 'row' }, name),
      ...fields.map(field => make('td', {}, field.get(name) ?? '–'))
    )
  );
  return make(
    'table',
    {},
    make('thead', {}, make('tr', {}, ...head)),
    make('tbody', {}, ...rows)
  );
}
