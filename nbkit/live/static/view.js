// The live view of a run.

// The first question may be put before Lab has a way around a busy kernel; the next one
// finds it.
const ASK_AGAIN_MILLISECONDS = [500, 1500, 4000];
const STILL_HERE_MILLISECONDS = 10_000;
const SILENCE_MILLISECONDS = 10_000;
const UNANSWERED_MILLISECONDS = 6_000;
const ANSWER_MILLISECONDS = 2_000;
// Of a view until the kernel has answered: its first line above the picture.
const WAITS = 'nbkv-waits';
const NEVER = { kind: 'never' };
// Of a view whose messages come from a kernel; a page of Lab brings its own words.
const KERNEL_WORDS = {
  connecting: trans.__('connecting to kernel…'),
  unanswered: trans.__(
    'not live: its kernel is busy or has ended (if it has ended, run the cell again)'
  ),
  restarted: trans.__(
    "Action cancelled: the kernel of this view was restarted. Run the cell again, or open the run in nbkit's sidebar."
  ),
  silence: (since, runId) =>
    trans.__(
      'No message from the kernel since %1. To show the run again: %2',
      since,
      `nbkit.attach("${runId}")`
    ),
  busy: action => {
    const instead =
      action === 'stop'
        ? trans.__("Stop the run in nbkit's sidebar, or here after the cell has ended.")
        : trans.__('Try again after the cell has ended.');
    return trans.__(
      'The kernel does not respond: it is running a cell, or was restarted elsewhere (in that case, run this cell again). %1',
      instead
    );
  }
};
/** What Lab's server feeds instead of the kernel; null outside of Lab. */
function servedModel(run_id, onGone) {
  const detail = { run_id, onGone, model: null };
  document.dispatchEvent(new CustomEvent('nbkit:view', { detail, cancelable: true }));
  return detail.model;
}

/** What is asked before an action, and what is done by a yes. */
const QUESTIONS = {
  stop: [trans.__('Stop the run?'), trans.__('Stop the run')],
  resume: [
    trans.__('Resume the run from its newest checkpoint?'),
    trans.__('Resume the run')
  ]
};

class View {
  constructor(model) {
    this._model = model;
    this._isPage = model.get('is_page') === true;
    this._hostWords = model.get('words') ?? KERNEL_WORDS;
    this._id = `view-${Math.random().toString(36).slice(2)}`;
    this._feed = feedOf(model);
    this._charts = new Map();
    /** Names of curves that are sent only if they are asked for. */
    this.moreCurves = [];
    this._isHeard = false;
    this._isSeen = true;
    this._waiting = new Map();
    this._build();
    this._onMessage = message => this._take(message);
    model.on('msg:custom', this._onMessage);
    this._feed.views.add(this);
    this._timers = [
      ...ASK_AGAIN_MILLISECONDS.map(time =>
        setTimeout(() => this._isHeard || this.open(), time)
      ),
      setTimeout(() => this._sayUnanswered(), UNANSWERED_MILLISECONDS),
      setInterval(() => this._tick(), 1000)
    ];
    this.open();
    this._visible = new ResizeObserver(() => this._look());
    this._visible.observe(this.node);
    if (this._feed.values) {
      this.showAll();
    }
    this._compared?.add(this._model.get('compared'));
  }

  /** Ask for everything. */
  open() {
    this._send('open');
  }

  dispose() {
    this._send('close');
    this._charts.forEach(chart => chart.remove());
    this._compared?.dispose();
    this._visible.disconnect();
    this._model.follow?.(false);
    this._feed.views.delete(this);
    this._timers.forEach(clearInterval);
    this._model.off('msg:custom', this._onMessage);
  }

  _build() {
    const isPage = this._isPage;
    this._name = make(isPage ? 'h1' : 'strong', { class: 'nbkv-name' });
    this._state = make('span', { class: 'nbkv-state', role: 'status' });
    this._nonfinite = make('span', { class: 'nbkv-warning', role: 'status' });
    this._about = make('span', { class: 'nbkv-about' });
    this._stop = this._button(trans.__('Stop'), () => this._ask('stop'));
    this._resume = this._button(trans.__('Resume'), () => this._ask('resume'));
    this._curves = this._button('TensorBoard', () => {
      this._say('');
      void openCurves(this._feed.values.head, words => this._say(words));
    });
    this._report = this._button(trans.__('Report'), () => {
      this._say('');
      openReport(this._feed.values.head, words => this._say(words));
    });
    this._question = make('span', {
      class: 'nbkv-question',
      role: 'group',
      hidden: true
    });
    this._message = make('p', { class: 'nbkv-message', role: 'alert' });
    this._silence = make('p', { class: 'nbkv-message', role: 'status' });
    this._queue = make('p', { class: 'nbkv-queue', role: 'status' });
    this._bar = make('progress', { 'aria-label': trans.__('Progress'), max: '1' });
    this._words = make('p', { class: 'nbkv-words', title: RUNNING_TIME });
    this._facts = new Facts();
    const ended = trans.__('Why it ended');
    this._cause = make('section', { class: 'nbkv-cause', 'aria-label': ended });
    this._grid = make('div', { class: 'nbkv-charts' });
    const kept = this._model.get('choices') ?? {};
    this._choices = new ChoicesPanel(
      { ...DEFAULT_CHOICES, ...kept, curves: { ...kept.curves } },
      {
        onChange: () => this._drawAll(),
        onKeep: () => this._model.keep?.(this._choices.choices)
      }
    );
    this._compared = isPage
      ? new Comparison(this._model, () => this._drawAll())
      : null;
    this._choices.node.append(...(this._compared ? [this._compared.menu] : []));
    this._controls = isPage
      ? this._choices.node
      : make(
          'details',
          { open: this._choices.isScaleChosen },
          make('summary', {}, trans.__('Chart options')),
          this._choices.node
        );
    this._chartsPart = make(
      'section',
      { class: 'nbkv-charts-part', 'aria-label': trans.__('Curves'), hidden: true },
      this._controls,
      ...(this._compared
        ? [this._compared.message, this._compared.legend, this._compared.differences]
        : []),
      this._grid
    );
    this._devices = make('div', { class: 'nbkv-wide' });
    this._devicesPart = make(
      'details',
      { class: 'nbkv-devices', open: isPage },
      make('summary', {}, heading(trans.__('GPUs of this run'), isPage)),
      this._devices
    );
    this._logged = new Facts();
    this._loggedPart = make(
      'details',
      { class: 'nbkv-logged', open: true },
      make('summary', {}, heading(trans.__('Logged values'), isPage)),
      this._logged.node
    );
    this._config = make('div');
    this._configPart = make(
      'details',
      { class: 'nbkv-config', open: isPage },
      make('summary', {}, heading(trans.__('Configuration'), isPage)),
      this._config
    );
    this._log = new LogPanel(
      this._model.get('run_id'),
      () => this._send('log'),
      isPage
    );
    this.node = make(
      'section',
      {
        class: `nbkv ${WAITS}${isPage ? ' nbkv-page' : ''}`,
        'aria-label': trans.__('Run %1', this._model.get('run_id')),
        onpointerenter: () => this._sayHere()
      },
      make(
        'header',
        {},
        this._name,
        this._state,
        this._nonfinite,
        this._about,
        make(
          'span',
          { class: 'nbkv-buttons' },
          this._question,
          this._stop,
          this._resume,
          this._curves,
          this._report
        )
      ),
      this._message,
      this._silence,
      this._queue,
      this._bar,
      this._words,
      this._cause,
      this._facts.node,
      this._chartsPart,
      this._loggedPart,
      this._devicesPart,
      this._configPart,
      this._log.node
    );
    this._name.textContent = this._model.get('run_id');
    this._state.textContent = this._hostWords.connecting;
    for (const part of [
      this._stop,
      this._resume,
      this._curves,
      this._report,
      this._bar,
      this._loggedPart,
      this._devicesPart,
      this._configPart
    ]) {
      part.hidden = true;
    }
  }

  _button(label, onclick) {
    return make('button', { type: 'button', onclick }, label);
  }

  // Messages

  _send(kind, values = {}) {
    this._sentAt = Date.now();
    // After a gap in the connection, the last of these is sent again as `open`.
    const choice = ['open', 'log', 'here'].includes(kind)
      ? { ...this._log.choice, curves: this.moreCurves }
      : {};
    try {
      this._model.send({ kind, view: this._id, ...choice, ...values });
    } catch {
      return false; // of a kernel before its restart: it can never be sent
    }
    return true;
  }

  _take(message) {
    this._silence.textContent = '';
    if (message.kind === 'failed') {
      this._hasFailed = true;
      this._say(trans.__('This view has stopped: %1', message.message));
    } else if (message.kind === 'compare') {
      this._compared?.add(message.runs);
    } else if (message.kind === 'all' && this._hasFailed) {
      this._hasFailed = false;
      this._say('');
    }
    const isMine = message.to === this._id;
    // Until the kernel has heard this view, it shows the log that all views get.
    const isLog = isMine || (message.to === undefined && !this._isHeard);
    if (isLog && message.kind === 'log') {
      this._log.replace(message);
    } else if (isLog && message.kind === 'more_log') {
      this._log.append(message);
    } else if (isMine) {
      const { head } = (!this._isHeard && message.values) || {};
      this._isHeard ||= message.kind === 'all';
      if (head?.state === 'failed') {
        this._log.showRank(head.cause?.rank ?? 0, this._log.node.open);
      }
      this._waiting.get(message.request)?.(message);
    }
  }

  // Showing

  showAll() {
    this.node.classList.remove(WAITS);
    this.show(Object.keys(this._feed.values.series));
    this._drawAll();
  }

  /** Show what the feed has; of its lines, these have changed. */
  show(changedSeries) {
    const { head, numbers, devices, more_devices, config } = this._feed.values;
    this._name.textContent = head.name ?? head.run_id;
    // A screen reader would say an equal text again.
    if (this._state.dataset.state !== head.state) {
      this._state.textContent = STATES[head.state];
      this._state.dataset.state = head.state;
    }
    this._about.textContent = aboutWords(head);
    this._queue.textContent = queueWords(head.queue);
    this._nonfinite.textContent = head.nonfinite ?? '';
    this._showButtons(head);
    this._showTime();
    const key = JSON.stringify([head.state, head.cause]);
    if (key !== this._causeKey) {
      this._causeKey = key;
      const toLog = rank => this._log.showRank(rank);
      this._cause.replaceChildren(...causeParts(head, toLog));
    }
    this._facts.show(keyFacts(head, numbers));
    const logged = loggedFacts(numbers);
    this._loggedPart.hidden = !logged.length;
    this._logged.show(logged);
    this._devicesPart.hidden = !devices.length;
    if (devices.length) {
      this._devices.replaceChildren(deviceTable(devices, more_devices));
    }
    this._configPart.hidden = !config.changed.length && !config.default.length;
    if (!this._config.hasChildNodes()) {
      this._config.append(...configParts(config));
    }
    this._log.setRanks(head.num_ranks);
    this._log.setEnded(head.is_final);
    this._chartsPart.hidden = head.is_final && !this._feed.values.curves.length;
    this._compared?.show(this._feed.values);
    this._drawSoon([...changedSeries, 'images_per_second']);
  }

  _showButtons(head) {
    const can = {
      stop: !head.is_final && head.state !== 'stopping',
      resume: head.can_resume
    };
    if (!can[this._asked]) {
      this._closeQuestion();
    }
    this._stop.hidden = !can.stop || this._asked === 'stop';
    this._resume.hidden = !can.resume || this._asked === 'resume';
    this._curves.hidden = !head.has_curves;
    this._report.hidden = !head.study_id;
  }

  /** Notice whether the view is seen: a server sends only to those that are. */
  _look() {
    const wasSeen = this._isSeen;
    this._isSeen = !document.hidden && this.node.checkVisibility();
    this._model.follow?.(this._isSeen);
    if (this._isSeen && !wasSeen) {
      this._feed.heardAt = Date.now();
      this._sayHere();
    }
  }

  /**
   * Say that the view is looked at.
   *
   * A message keeps an idle kernel from being ended by its server: none is sent to it of
   * a run that has ended. One that goes on, and that Lab's server does not know, has only
   * its kernel to follow it.
   */
  _sayHere() {
    const isOver = this._feed.values?.head.is_final && !this._hasFailed;
    if (this._model.follow || !isOver) {
      this._send('here');
    }
  }

  /** Show what changes by the clock; say that the view is looked at. */
  _tick() {
    this._look();
    const { head } = this._feed.values ?? {};
    const goesOn = head && !head.is_final && !this._hasFailed;
    const isDue = goesOn && Date.now() - this._sentAt >= STILL_HERE_MILLISECONDS;
    if (this._isSeen && isDue) {
      this._sayHere();
    }
    if (this._isSeen && Date.now() - (this._comparedAt ?? 0) >= STILL_HERE_MILLISECONDS) {
      this._comparedAt = Date.now();
      this._compared?.sayHere();
    }
    this._showTime();
  }

  _sayUnanswered() {
    if (!this._feed.values) {
      this._state.textContent = this._hostWords.unanswered;
    }
  }

  /** What changes by the clock alone. */
  _showTime() {
    if (!this._feed.values) {
      return;
    }
    const { head, numbers } = this._feed.values;
    this._words.textContent = progressWords(head, numbers, this._feed.now);
    const total = numbers.total_steps;
    this._bar.hidden = total === null || head.state === 'queued';
    this._bar.value = total ? Math.min(1, (numbers.step ?? 0) / total) : 0;
    const silent = Date.now() - this._feed.heardAt > SILENCE_MILLISECONDS;
    if (silent && this._isSeen && !head.is_final) {
      const since = new Date(this._feed.heardAt).toLocaleTimeString();
      this._silence.textContent = this._hostWords.silence(since, head.run_id);
    }
  }

  /** Draw what was chosen; ask for what is not there yet. */
  _drawAll() {
    if (!this._feed.values) {
      return;
    }
    this._compared?.show(this._feed.values);
    const names = this._names();
    this._choices.offer(names, this._feed.values.num_omitted);
    for (const run of [this, ...(this._compared?.runs.values() ?? [])]) {
      const { curves = [], series } = (run === this ? this._feed : run).values ?? {};
      run.moreCurves = moreCurves(curves, name => this._choices.isShown(name));
      const lacks = run.moreCurves.filter(name => !series[name]);
      const key = lacks.join('\n');
      if (lacks.length && run.asked !== key) {
        run.asked = key;
        run.open();
      }
    }
    this._drawSoon(names);
  }

  /** Names of the curves of all runs, this one's first. */
  _names() {
    const others = [...(this._compared?.runs.values() ?? [])].map(run => run.values);
    const all = [this._feed.values, ...others].flatMap(values => values?.curves ?? []);
    return [...new Set(all)];
  }

  /** Draw before the page is painted next, however many changes come till then. */
  _drawSoon(names) {
    this._toDraw = new Set([...(this._toDraw ?? []), ...names]);
    this._frame ??= requestAnimationFrame(() => {
      this._frame = null;
      const toDraw = this._toDraw;
      this._toDraw = null;
      const names = this._names();
      this._choices.offer(names, this._feed.values.num_omitted);
      this._controls.hidden = !names.length;
      const { series } = this._feed.values;
      for (const name of [...this._charts.keys(), ...names]) {
        if (toDraw.has(name) || !names.includes(name)) {
          this._draw(name, this._choices.isShown(name) ? series[name] ?? [] : null);
        }
      }
    });
  }

  _draw(name, points) {
    let chart = this._charts.get(name);
    if (!points) {
      chart?.remove();
      this._charts.delete(name);
      return;
    }
    chart ??= this._addChart(name);
    if (name === 'images_per_second') {
      chart.headline = rateHeadline(this._feed.values.numbers);
    }
    const { head, numbers } = this._feed.values;
    const label = this._compared?.labels.get(head.run_id) ?? head.name ?? head.run_id;
    const own = { run: head.run_id, label, points, resumed: numbers.resumed_seconds };
    const others = this._compared?.lines(name) ?? [];
    chart.draw([own, ...others], this._choices.choices);
  }

  _addChart(name) {
    const isOverTime = OF_DEVICES.test(name);
    const chart = new Chart({
      name,
      label: title(name),
      isOverTime,
      unit: unit(name),
      onZoom: (run, first, last, signal) => pointsNear(run, name, first, last, signal),
      onCsv: () => void this._downloadCsv(name)
    });
    if (isOverTime) {
      chart.node.title = trans.__("Mean and range over the run's GPUs");
    }
    this._charts.set(name, chart);
    const order = this._names();
    const after = [...this._charts.values()].find(
      other => order.indexOf(other.name) > order.indexOf(name)
    );
    this._grid.insertBefore(chart.node, after?.node ?? null);
    const drawn = order.filter(other => this._charts.has(other));
    this._charts = new Map(drawn.map(other => [other, this._charts.get(other)]));
    return chart;
  }

  /** Every stored value of a curve; of what GPUs do, what is drawn. */
  async _downloadCsv(name) {
    this._say('');
    const { fileName } = this._charts.get(name);
    try {
      const runs = [this._feed, ...(this._compared?.runs.values() ?? [])];
      const having = runs.filter(({ values }) => values?.curves.includes(name));
      const ids = having.map(({ values }) => values.head.run_id);
      const text = OF_DEVICES.test(name)
        ? this._charts.get(name).drawnCsv()
        : await storedCsv(ids, name);
      download(new Blob([text], { type: 'text/csv' }), `${fileName}.csv`);
    } catch (error) {
      this._say(trans.__('The CSV was not written: %1', error.message));
    }
  }

  // Deeds

  _say(words) {
    this._message.textContent = words;
  }

  /** Ask before an action, unless the page says why it may not be done here. */
  _ask(action) {
    this._closeQuestion();
    this._say(this._model.get('refusal') ?? '');
    if (this._message.textContent) {
      return;
    }
    const [question, yes] = QUESTIONS[action];
    const button = action === 'stop' ? this._stop : this._resume;
    const keep = this._button(trans.__('Cancel'), () => {
      this._closeQuestion();
      button.hidden = false;
      button.focus();
    });
    const go = this._button(yes, () => {
      this._closeQuestion();
      this._do(action);
    });
    go.className = 'nbkv-warn';
    this._asked = action;
    this._question.setAttribute('aria-label', question);
    this._question.replaceChildren(question, go, keep);
    this._question.onkeydown = event => {
      if (event.key === 'Escape') {
        event.stopPropagation();
        keep.click();
      }
    };
    this._question.hidden = false;
    this._showButtons(this._feed.values.head);
    keep.focus();
  }

  _closeQuestion() {
    this._asked = null;
    this._question.hidden = true;
    this._question.replaceChildren();
  }

  /** Do something if the kernel responds; show a message if it does not. */
  async _do(action) {
    this._say('');
    const heard = await this._request('ask', {}, ANSWER_MILLISECONDS);
    if (heard === NEVER) {
      this._say(this._hostWords.restarted);
    } else if (heard === null) {
      this._say(this._hostWords.busy(action));
    } else {
      // Heard: it is being done, however long that takes.
      const answer = await this._request('do', { action });
      if (answer.kind === 'refused') {
        this._say(answer.why);
      }
    }
    if (this._feed.values) {
      this._showButtons(this._feed.values.head);
    }
  }

  _request(kind, values, limitMilliseconds = null) {
    const request = Math.random().toString(36).slice(2);
    return new Promise(resolve => {
      const finish = answer => {
        clearTimeout(timer);
        this._waiting.delete(request);
        resolve(answer);
      };
      const timer =
        limitMilliseconds && setTimeout(() => finish(null), limitMilliseconds);
      this._waiting.set(request, finish);
      if (!this._send(kind, { request, ...values })) {
        finish(NEVER);
      }
    });
  }
}

/** Tell the kernel that no page waits for what it sends unasked. */
function endAnnouncing(model) {
  const hear = ({ kind, to }) => {
    if (kind === 'all' && to === undefined) {
      model.off('msg:custom', hear);
      model.send({ kind: 'close', view: '' });
    }
  };
  model.on('msg:custom', hear);
}

export default {
  initialize({ model }) {
    const feed = feedOf(model);
    return () => feed.dispose();
  },
  /** Show the run: fed by Lab's server if that knows it, and else by the kernel. */
  render({ model, el }) {
    let view = null;
    const show = model => {
      view?.dispose();
      view?.node.remove();
      view = new View(model);
      el.append(view.node);
    };
    const served = model.follow ? null : servedModel(model.get('run_id'), () => show(model));
    if (served) {
      endAnnouncing(model);
    }
    show(served ?? model);
    return () => view.dispose();
  }
};
