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
const MOST_RUNS_LISTED = 200;

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
            'Weight of the exponential moving average, as in TensorBoard; what it is the average of stays visible behind it'
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
          'The y axis reaches from the 5th to the 95th percentile, as in TensorBoard'
        )
      ),
      menu(this._summary, this._curves)
    );
  }

  /** Offer these curves, of which some are there already. */
  offer(names) {
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
    const ofRanks = this._names.filter(it => !OVER_TIME.has(it));
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
    // Else a click beside its parts would take the focus elsewhere, and close it.
    make('div', { class: 'nbkv-menu-box', tabindex: '-1' }, ...parts)
  );
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
      points: values?.series[name] ?? []
    }));
  }

  /** Show the legend, and what the configurations do not share. */
  show(values) {
    const all = [values, ...[...this.runs.values()].map(run => run.values)];
    const known = all.filter(it => it);
    const isAlone = this.runs.size === 0;
    this.legend.hidden = isAlone;
    this.differences.hidden = isAlone;
    if (isAlone) {
      return;
    }
    const names = known.map(({ head }) => head.name ?? head.run_id);
    const labels = known.map(({ head }, place) =>
      names.filter(name => name === names[place]).length > 1
        ? `${names[place]} (${head.run_id})`
        : names[place]
    );
    this.labels = new Map(known.map(({ head }, n) => [head.run_id, labels[n]]));
    const key = JSON.stringify([labels, known.map(({ head }) => head.state)]);
    if (key === this._key) {
      return;
    }
    this._key = key;
    const places = all.flatMap((it, place) => (it ? [place] : []));
    this.legend.replaceChildren(
      ...known.map(({ head }, n) =>
        make(
          'li',
          { class: `nbkv-run-${places[n]}`, title: head.run_id },
          swatch(),
          `${labels[n]} · ${STATES[head.state]}`,
          ...(n ? [this._remover(head.run_id, labels[n])] : [])
        )
      )
    );
    this._table.replaceChildren(differenceTable(labels, known));
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
      this._list.replaceChildren(make('p', {}, trans.__('No list of runs: %1', error.message)));
    }
  }

  _showRows() {
    const text = this._filter.value.trim().toLowerCase();
    const labels = this._rows
      .map(row => [row, `${row.name ?? ''} ${STATES[row.state]} ${row.run_id}`])
      .filter(([, words]) => words.toLowerCase().includes(text))
      .map(([{ run_id, name, state }]) => {
        const isFull = this.runs.size >= MOST_RUNS - 1 && !this.runs.has(run_id);
        const label = ticked(name ?? run_id, this.runs.has(run_id), isChosen =>
          this._choose(run_id, isChosen)
        );
        label.firstChild.disabled = isFull;
        label.firstChild.value = run_id;
        label.title = isFull
          ? trans.__('At most %1 runs are drawn together', MOST_RUNS)
          : run_id;
        const about = `${STATES[state]} · ${run_id}`;
        label.append(' ', make('span', { class: 'nbkv-about' }, about));
        return label;
      });
    const focused = this._list.contains(document.activeElement)
      ? document.activeElement.value
      : null;
    this._list.replaceChildren(
      ...(labels.length ? labels : [make('p', {}, trans.__('No other runs.'))])
    );
    labels.find(label => label.firstChild.value === focused)?.firstChild.focus();
  }

  _choose(id, isChosen) {
    this.message.textContent = '';
    if (isChosen) {
      const gone = why => {
        this._choose(id, false);
        this.message.textContent = why;
      };
      const model = this._model.other(id, gone);
      this.runs.set(id, new ComparedRun(model, () => this._onChange()));
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
  constructor(model, onChange) {
    this._model = model;
    this._onChange = onChange;
    this._feed = feedOf(model);
    this._feed.views.add(this);
    this._curves = [];
    this._id = `compared-${Math.random().toString(36).slice(2)}`;
    this.open();
  }

  get values() {
    return this._feed.values;
  }

  /** Ask for everything, and for more curves than it sends by itself. */
  open(curves = this._curves) {
    this._curves = curves;
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
    this._model.send({ kind, view: this._id, ...log, curves: this._curves });
  }
}

/** Fields whose values are not the same in all configurations. */
function differenceTable(labels, all) {
  const fields = all.map(
    ({ config }) => new Map([...config.changed, ...config.default])
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
