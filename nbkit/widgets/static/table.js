// A table of runs: filtered, sorted and turned over in the page.

const PAGE_ROWS = 20;
const ASKED_ROWS = 200;
const REPLY_MILLISECONDS = 2_000;
const NUMBERS_AGAIN_MILLISECONDS = 30_000;
// The first question may be put before Lab has a way around a busy kernel.
const OPEN_AGAIN_MILLISECONDS = [500, 1500, 4000];
const UNANSWERED_MILLISECONDS = 6_000;
const FOLLOW_MILLISECONDS = 5_000;
/** Of a table without runs under way, so many turns for one look. */
const TURNS_AT_REST = 6;
/** Between two questions about a run under way that the server does not list. */
const MISSING_SECONDS = 30;
const FINAL = new Set(['finished', 'failed', 'stopped', 'lost', 'removed']);

/** Of each column: key, name, text, and what it means. */
const COLUMNS = [
  ['name', trans.__('Name'), row => row.name ?? '–'],
  ['state', trans.__('State'), row => stateWords(row)],
  [
    'gpus',
    trans.__('Ranks'),
    row => figures(row.gpus),
    trans.__('processes on all nodes')
  ],
  ['started_at', trans.__('Started'), row => moment(row.started_at)],
  [
    'duration_seconds',
    trans.__('Duration'),
    row => duration(row.duration_seconds),
    RUNNING_TIME
  ],
  [
    'images_per_second',
    trans.__('Images/s'),
    row => figures(row.images_per_second),
    IMAGES_PER_SECOND
  ],
  ['loss', trans.__('Loss'), row => figures(row.loss)]
];
/** Columns of which the kernel has to look into each run. */
const ASKED = [
  'gpus',
  'duration_seconds',
  'images_per_second',
  'loss',
  'nonfinite',
  'imported_from'
];
const BUSY = trans.__(
  'The kernel does not respond. It is running a cell (wait, or interrupt it), or it has ended.'
);
const RESTARTED = trans.__(
  'The kernel of this table was restarted. Run its cell again.'
);

/** The state, and what is wrong with the run or its files, or where it came from. */
function stateWords({ state, nonfinite, damage, imported_from: host }) {
  const origin = host && trans.__('imported from %1', host);
  return [STATES[state], nonfinite, damage, origin].filter(Boolean).join(', ');
}

/** What shows a state at a glance; a warning takes the place of its sign. */
function stateLooks({ state, nonfinite, damage }) {
  return {
    'data-state': state,
    class: nonfinite || damage ? 'nbkv-warning' : 'nbkv-sign'
  };
}

function moment(seconds) {
  return seconds === null
    ? '–'
    : new Date(1000 * seconds).toLocaleString([], {
        dateStyle: 'short',
        timeStyle: 'short'
      });
}

/** Let nbkit's part of Lab draw the curves of runs; return whether there is one. */
function compareRuns(runs) {
  const options = { detail: { runs }, cancelable: true };
  return !document.dispatchEvent(new CustomEvent('nbkit:compare', options));
}

/** Ask nbkit's part of the Jupyter server for its runs; null where there is none. */
async function serverRuns() {
  const config = document.getElementById('jupyter-config-data')?.textContent;
  if (!config) {
    return null;
  }
  const { baseUrl, token } = JSON.parse(config);
  const headers = token ? { Authorization: `token ${token}` } : {};
  try {
    const answer = await fetch(`${baseUrl}nbkit/api/runs`, { headers });
    return answer.ok ? (await answer.json()).runs : null;
  } catch {
    return null; // the next time, maybe
  }
}

class Table {
  constructor(model) {
    this._model = model;
    this._rows = null;
    this._page = 0;
    this._sortedBy = 'run_id'; // which begins with the time of the launch
    this._descending = true;
    this._asked = new Set();
    this._numNewer = 0;
    this._followed = 0;
    this._canCompare = compareRuns([]);
    /** Ids of the ticked runs. */
    this._ticked = new Set();
    this._build();
    this._onMessage = message => this._take(message);
    model.on('msg:custom', this._onMessage);
    const open = () => this._rows || this._send({ kind: 'open', runs: [] });
    this._timers = [
      ...OPEN_AGAIN_MILLISECONDS.map(time => setTimeout(open, time)),
      setTimeout(() => this._sayUnanswered(), UNANSWERED_MILLISECONDS)
    ];
    this._following = setInterval(() => this._follow(), FOLLOW_MILLISECONDS);
    open();
  }

  dispose() {
    this._timers.forEach(clearTimeout);
    clearInterval(this._following);
    clearTimeout(this._unanswered);
    clearTimeout(this._waiting);
    this._model.off('msg:custom', this._onMessage);
  }

  _sayUnanswered() {
    if (!this._rows) {
      this._status.textContent = trans.__(
        'not live: its kernel is busy or has ended (if it has ended, run the cell again)'
      );
    }
  }

  _build() {
    this._filter = make('input', {
      type: 'search',
      placeholder: trans.__('Filter by name, state or id'),
      'aria-label': trans.__('Filter the runs'),
      oninput: () => {
        this._page = 0;
        this._show();
      }
    });
    this._status = make('span', { class: 'nbkv-log-status', role: 'status' });
    this._message = make('p', { class: 'nbkv-message', role: 'alert' });
    this._refresh = make(
      'button',
      { type: 'button', onclick: () => this._askAgain() },
      trans.__('Refresh')
    );
    this._compare = make(
      'button',
      {
        type: 'button',
        hidden: !this._canCompare,
        onclick: () => compareRuns(this._tickedRows)
      },
      trans.__('Compare curves')
    );
    this._heads = new Map(
      COLUMNS.map(([key, label, , hint]) => [
        key,
        make(
          'th',
          { scope: 'col', title: hint },
          make(
            'button',
            { type: 'button', onclick: () => this._sort(key) },
            label
          )
        )
      ])
    );
    this._body = make('tbody');
    const turn = (label, by) =>
      make('button', { type: 'button', onclick: () => this._turn(by) }, label);
    this._back = turn(trans.__('Previous'), -1);
    this._on = turn(trans.__('Next'), 1);
    this._turns = make('div', { class: 'nbkv-log-choice' }, this._back, this._on);
    this.node = make(
      'section',
      {
        class: 'nbkv nbkv-runs nbkv-waits',
        'aria-label': trans.__('Runs')
      },
      make('header', {}, this._filter, this._refresh, this._compare, this._status),
      this._message,
      make(
        'div',
        { class: 'nbkv-wide' },
        make(
          'table',
          {},
          make('thead', {}, make('tr', {}, ...this._boxed(), ...this._heads.values())),
          this._body
        )
      ),
      this._turns
    );
    this._status.textContent = trans.__('connecting to kernel…');
  }

  _take(message) {
    if (message.kind === 'rows') {
      clearTimeout(this._waiting);
      this._message.textContent = '';
      this._at = message.at;
      this._numNewer = 0;
      const unknown = Object.fromEntries(ASKED.map(key => [key, null]));
      this._rows = message.rows.map(row => ({ ...row, ...unknown, at: message.at }));
      this._byId = new Map(this._rows.map(row => [row.run_id, row]));
      this._asked.clear();
      this._takeNumbers(message.numbers);
    } else if (message.kind === 'numbers') {
      this._takeNumbers(message.numbers);
    } else if (message.kind === 'heard') {
      // The kernel responds, and may read for a while until it answers.
      clearTimeout(this._waiting);
      this._message.textContent = '';
      this._status.textContent = trans.__('reading…');
    } else if (message.kind === 'shown') {
      clearTimeout(this._waiting);
      this._message.textContent = '';
    } else if (message.kind === 'refused') {
      clearTimeout(this._waiting);
      this._show();
      this._message.textContent = message.why;
    }
  }

  /** Take what was read of some runs, state and numbers of one moment. */
  _takeNumbers(numbersById) {
    const seen = Date.now() / 1000;
    for (const [id, numbers] of Object.entries(numbersById)) {
      const row = this._byId.get(id);
      if (row && (!numbers || numbers.at >= row.at)) {
        Object.assign(row, numbers ?? { state: 'removed' }, { seen });
        this._asked.add(id);
      } else {
        // What was read before the newest rows comes too late.
        this._asked.delete(id);
      }
    }
    clearTimeout(this._unanswered);
    this._numAsked = 0;
    this._show();
  }

  /**
   * Take what the server knows of runs under way and of newer ones, while it is in sight.
   *
   * A message to the kernel would keep it from being idle, and a busy one has to wait.
   */
  async _follow() {
    const { top, bottom, height } = this.node.getBoundingClientRect();
    const isInSight = height > 0 && bottom > 0 && top < window.innerHeight;
    const going = (this._rows ?? []).filter(row => !FINAL.has(row.state));
    const isAtRest = !going.length && ++this._followed % TURNS_AT_REST > 0;
    const isLooking = this._rows && isInSight && !document.hidden && !isAtRest;
    const listed = isLooking && (await serverRuns());
    if (!listed) {
      return;
    }
    const runs = new Map(listed.map(run => [run.run_id, run]));
    const isSameStore = listed.some(run => this._byId.has(run.run_id));
    const numBefore = this._numNewer;
    this._numNewer = this._newerOf(listed).length;
    const now = Date.now() / 1000;
    for (const row of going) {
      const run = runs.get(row.run_id);
      if (!run) {
        // It has ended behind newer runs, or was removed: the kernel knows.
        const before = row.missedAt ?? row.seen ?? now;
        if (isSameStore && now - before > MISSING_SECONDS) {
          this._asked.delete(row.run_id);
          row.missedAt = now;
        }
        continue;
      }
      if (run.state !== row.state) {
        this._asked.delete(row.run_id); // the kernel has the numbers of its new state
      } else if (run.state === 'running' && row.duration_seconds !== null) {
        row.duration_seconds += now - row.seen;
      }
      const { state, images_per_second, loss, nonfinite } = run;
      Object.assign(row, { state, images_per_second, loss, nonfinite, seen: now });
    }
    if (this._numNewer !== numBefore || going.some(row => [row.seen, row.missedAt].includes(now))) {
      this._show();
    }
  }

  /** The runs that were launched since the kernel listed its own. */
  _newerOf(listed) {
    const isKnown = ({ run_id }) => this._byId.has(run_id);
    // As an id begins: 20260131-235959999.
    const at = new Date(1000 * this._at).toISOString();
    const since = at.replace(/[-:.Z]/g, '').replace('T', '-');
    const newer = listed.filter(run => run.run_id > since && !isKnown(run));
    // The server may have another store than the kernel.
    return listed.some(isKnown) ? newer : [];
  }

  /** Ask for the runs of now, and for the numbers of those in sight. */
  _askAgain() {
    clearTimeout(this._waiting);
    this._message.textContent = '';
    const runs = (this._shown ?? []).map(row => row.run_id);
    if (this._send({ kind: 'refresh', runs })) {
      const say = () => (this._message.textContent = BUSY);
      this._waiting = setTimeout(say, REPLY_MILLISECONDS);
    } else {
      this._message.textContent = RESTARTED;
    }
  }

  _sort(key) {
    this._descending = this._sortedBy === key ? !this._descending : true;
    this._sortedBy = key;
    this._page = 0;
    this._show();
  }

  _turn(by) {
    this._page += by;
    this._show();
  }

  _show() {
    if (!this._rows) {
      return;
    }
    this.node.classList.remove('nbkv-waits');
    const text = this._filter.value.trim().toLowerCase();
    const rows = this._rows.filter(row =>
      `${row.name} ${stateWords(row)} ${row.run_id}`.toLowerCase().includes(text)
    );
    this._order(rows);
    const pages = Math.max(1, Math.ceil(rows.length / PAGE_ROWS));
    this._page = Math.min(this._page, pages - 1);
    const first = this._page * PAGE_ROWS;
    const shown = rows.slice(first, first + PAGE_ROWS);
    this._shown = shown;
    const unread = ASKED.includes(this._sortedBy) ? rows : shown;
    const left = this._ask(unread);
    this._turns.hidden = pages === 1;
    this._back.disabled = this._page === 0;
    this._on.disabled = this._page >= pages - 1;
    const last = first + shown.length;
    const range = rows.length
      ? trans.__('%1 to %2 of %3', first + 1, last, figures(rows.length))
      : trans.__('none');
    const reading = left ? trans.__('reading %1…', figures(left)) : '';
    const times = shown.map(row => (FINAL.has(row.state) ? 0 : (row.seen ?? row.at)));
    const at = new Date(1000 * (Math.max(...times) || Math.min(...shown.map(({ at }) => at))));
    const of = shown.length ? trans.__('as of %1', at.toLocaleTimeString()) : '';
    const newer = this._numNewer
      ? trans._n('%1 newer run', '%1 newer runs', this._numNewer)
      : '';
    this._status.textContent = [range, of, newer, reading].filter(Boolean).join(' · ');
    for (const [key, head] of this._heads) {
      const way = this._descending ? 'descending' : 'ascending';
      head.setAttribute('aria-sort', key === this._sortedBy ? way : 'none');
    }
    this._showTicked();
    const focused = this._body.querySelector(':focus');
    const run = focused?.closest('tr').dataset.run;
    this._body.replaceChildren(...shown.map(row => this._line(row)));
    const line = [...this._body.children].find(row => row.dataset.run === run);
    line?.querySelector(focused.tagName).focus();
  }

  /** The ticked runs that are still there, in the order of their ticks. */
  get _tickedRows() {
    const rows = [...this._ticked].map(id => this._byId.get(id));
    return rows.filter(row => row).map(({ run_id, name }) => ({ run_id, name }));
  }

  _showTicked() {
    const isTooFew = this._tickedRows.length < 2;
    this._compare.disabled = isTooFew;
    this._compare.title = isTooFew ? trans.__('Tick two or more runs') : '';
  }

  /** The cell of a row's tick box, where Lab can draw curves. */
  _boxed(...box) {
    return this._canCompare ? [make('td', {}, ...box)] : [];
  }

  _box({ run_id, name }) {
    return make('input', {
      type: 'checkbox',
      checked: this._ticked.has(run_id),
      'aria-label': trans.__('Compare %1, %2', name ?? run_id, run_id),
      onchange: ({ target }) => {
        this._ticked[target.checked ? 'add' : 'delete'](run_id);
        this._showTicked();
      }
    });
  }

  /** Ask for numbers that are not known yet, some at a time; return how many. */
  _ask(rows) {
    const unread = rows.filter(row => !this._asked.has(row.run_id));
    if (unread.length && !this._numAsked) {
      const ids = unread.slice(0, ASKED_ROWS).map(row => row.run_id);
      this._numAsked = ids.length;
      ids.forEach(id => this._asked.add(id));
      this._send({ kind: 'numbers', runs: ids });
      // An answer may be lost, with a kernel or on the way: it is asked for again.
      this._unanswered = setTimeout(() => {
        ids.forEach(id => this._asked.delete(id));
        this._numAsked = 0;
        this._show();
      }, NUMBERS_AGAIN_MILLISECONDS);
    }
    return unread.length + this._numAsked;
  }

  /** Sort; unknown values come last, in both directions. */
  _order(rows) {
    const key = this._sortedBy;
    const sign = this._descending ? -1 : 1;
    rows.sort((a, b) => {
      if (a[key] === null || b[key] === null) {
        return (a[key] === null) - (b[key] === null);
      }
      return a[key] < b[key] ? -sign : a[key] > b[key] ? sign : 0;
    });
  }

  _line(row) {
    return make(
      'tr',
      { 'data-run': row.run_id },
      ...this._boxed(this._box(row)),
      ...COLUMNS.map(([key, , text]) =>
        key === 'name'
          ? make(
              'th',
              { scope: 'row' },
              make(
                'button',
                {
                  type: 'button',
                  title: `${text(row)}\n${row.run_id}`,
                  'aria-label': trans.__('Show %1, %2', row.name ?? row.run_id, row.run_id),
                  onclick: () => this._open(row)
                },
                text(row)
              )
            )
          : make('td', key === 'state' ? stateLooks(row) : {}, text(row))
      )
    );
  }

  _open(row) {
    clearTimeout(this._waiting);
    this._message.textContent = '';
    const detail = { run_id: row.run_id, name: row.name };
    const options = { detail, cancelable: true };
    if (!document.dispatchEvent(new CustomEvent('nbkit:run', options))) {
      return; // Lab shows its page.
    }
    const sayInstead = () => {
      this._message.textContent = trans.__(
        'The kernel does not respond. To show this run in another cell or kernel: %1',
        `nbkit.attach("${row.run_id}")`
      );
    };
    if (this._send({ kind: 'show', run: row.run_id })) {
      this._waiting = setTimeout(sayInstead, REPLY_MILLISECONDS);
    } else {
      sayInstead();
    }
  }

  /** Send a message; return false if its kernel was restarted. */
  _send(message) {
    try {
      this._model.send(message);
    } catch {
      return false;
    }
    return true;
  }
}

export default {
  render({ model, el }) {
    const table = new Table(model);
    el.append(table.node);
    return () => table.dispose();
  }
};
