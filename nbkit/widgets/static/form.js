// The form of an experiment. It shows and collects: what was typed goes to the kernel,
// which answers with errors, the memory estimate and commands.

const HEARD_WITHIN_MILLISECONDS = 2000;

const LOOK_AGAIN_MILLISECONDS = 5000;
const LOST_AFTER_MILLISECONDS = 60000;
const USES = ['pointermove', 'pointerdown', 'keydown'];

const RESTARTED = trans.__(
  'Action cancelled: the kernel of this form was restarted. Run its cell again.'
);
const NOT_HEARD = trans.__(
  'Action cancelled: the kernel does not respond. It is running a cell (wait, or interrupt it), or it has ended.'
);

/** The whole form in one place of a page. */
class Form {
  constructor(model, root) {
    this._model = model;
    this._waiting = new Map();
    this._sections = model
      .get('sections')
      .map(section => new Section(section, () => this._typed()));
    this._fields = new Map(
      this._sections.flatMap(({ fields }) => fields).map(field => [field.control.path, field])
    );
    this._trouble = make('div', { class: 'nbkf-trouble', role: 'alert' });
    // The result of a button is shown beside it.
    this._notes = new Map(
      ['preset', 'refresh', 'partitions', 'launch'].map(of => [
        of,
        make('span', { class: 'nbkf-note', role: 'status' })
      ])
    );
    this._launch = make(
      'button',
      { type: 'button', class: 'nbkf-launch', onclick: () => this._onLaunch() },
      trans.__('Launch')
    );
    this._gpus = new Gpus(this, this._notes.get('refresh'));
    this._partitions = new Partitions(this, this._notes.get('partitions'));
    this._meaning = new Meaning();
    this._free = make('span', { class: 'nbkf-quiet nbkf-free' });
    this.node = make('div', {
      class: 'nbkf',
      role: 'form',
      'aria-label': trans.__('Experiment'),
      // Keys belong to the form, not to the notebook's commands.
      'data-lm-suppress-shortcuts': 'true'
    });
    for (const use of USES) {
      this.node.addEventListener(use, () => (this._isUsed = true));
    }
    const [first, ...others] = this._sections.map(section => section.node);
    this.node.append(this._head(), this._notes.get('preset'), first);
    this.node.append(this._gpus.node, this._partitions.node);
    this.node.append(
      make('div', { class: 'nbkf-others' }, ...others, this._meaning.node),
      make(
        'div',
        { class: 'nbkf-bar' },
        make(
          'div',
          { class: 'nbkf-line' },
          this._launch,
          this._meaning.memory,
          this._free,
          this._notes.get('launch')
        ),
        this._trouble
      )
    );
    root.append(this.node);
    this._listen();
    this._showEntered();
    this._showChecked();
    this._showPresets();
    this._showGpus();
    this._partitions.show(model.get('partitions'));
    this._showNote();
    this._lookAgain();
    this._send('ask', {});
  }

  dispose() {
    this._isGone = true;
    for (const [event, listener] of this._listeners) {
      this._model.off(event, listener);
    }
  }

  entered(path) {
    return this._model.get('entered')[path];
  }

  /** Enter values for the user. */
  enter(changes) {
    for (const [path, entered] of Object.entries(changes)) {
      this._fields.get(path).show(entered);
    }
    this._typed();
  }

  /** Send a request if the kernel responds; return whether it did. */
  async press(kind, message, progress) {
    this._say(kind, progress, false);
    const heard = await this._send('ask', {}, HEARD_WITHIN_MILLISECONDS);
    if (!heard) {
      this._say(kind, heard === null ? RESTARTED : NOT_HEARD, true);
      return false;
    }
    await this._send(kind, message);
    this._showNote();
    return true;
  }

  /**
   * Refresh what the form offers, while it is used.
   *
   * Each message keeps an idle kernel from being ended by its server.
   */
  async _lookAgain() {
    while (!this._isGone) {
      await new Promise(resolve => setTimeout(resolve, LOOK_AGAIN_MILLISECONDS));
      if (this._isGone || !this._isUsed) {
        continue;
      }
      this._isUsed = false;
      // Not before the kernel answered: a busy one gets one request, not many.
      if (this._gpus.isInSight) {
        await this._send('refresh', {}, LOST_AFTER_MILLISECONDS);
      } else if (this._partitions.isInSight) {
        await this._send('partitions', {}, LOST_AFTER_MILLISECONDS);
      }
    }
  }

  _head() {
    this._presets = make('select', {
      'aria-label': trans.__('Preset'),
      onchange: async () => {
        const name = this._presets.value;
        this._presets.value = '';
        await this.press('preset', { name }, trans.__('Filling in …'));
      }
    });
    const filter = make('input', {
      type: 'search',
      'aria-label': trans.__('Filter fields'),
      placeholder: trans.__('Filter fields'),
      oninput: () => {
        const text = filter.value.trim().toLowerCase();
        this._sections.forEach(section => section.filter(text));
      }
    });
    this._reset = make(
      'button',
      {
        type: 'button',
        title: trans.__('Reset every field to its default'),
        onclick: () => this._resetAll()
      },
      trans.__('Reset all')
    );
    const head = make('div', { class: 'nbkf-line nbkf-head' });
    head.append(this._presets, filter, this._reset);
    return head;
  }

  _listen() {
    this._listeners = [
      ['change:entered', () => this._showEntered()],
      ['change:checked', () => this._showChecked()],
      ['change:presets', () => this._showPresets()],
      ['change:gpus', () => this._showGpus()],
      ['change:partitions', () => this._partitions.show(this._model.get('partitions'))],
      ['change:note', () => this._showNote()],
      // What only the kernel sends shows that there is one: of a saved form there is none.
      ...['change:gpus', 'change:presets', 'msg:custom'].map(event => [
        event,
        () => this.node.classList.add('nbkf-mod-live')
      ]),
      ['msg:custom', message => this._waiting.get(message.request)?.()]
    ];
    for (const [event, listener] of this._listeners) {
      this._model.on(event, listener);
    }
  }

  _resetAll() {
    this._fields.forEach(field => field.show(field.control.default));
    this._typed();
    this._presets.focus(); // The button goes: there is nothing left to reset.
  }

  _typed() {
    const fields = [...this._fields];
    const entered = fields.map(([path, field]) => [path, field.entered]);
    this._model.set('entered', Object.fromEntries(entered));
    this._model.save_changes();
    this._showEntered();
    this._showNote();
  }

  _showEntered() {
    const entered = this._model.get('entered');
    this._fields.forEach((field, path) => field.show(entered[path]));
    this._sections.forEach(section => section.showCounts());
    this._reset.hidden = ![...this._fields.values()].some(field => field.isChanged);
    // A cluster's nodes have other GPUs than this machine.
    const isSlurm = entered.engine.trim() === 'slurm';
    this._gpus.node.hidden = isSlurm;
    const isCpu = entered.device === 'cpu';
    this._free.classList.toggle('nbkf-mod-away', isSlurm || isCpu);
    this._meaning.memory.classList.toggle('nbkf-mod-away', isCpu);
    this._partitions.node.hidden = !isSlurm;
    this._gpus.showPicked();
    this._partitions.showPicked();
  }

  _showChecked() {
    const checked = this._model.get('checked');
    this._fields.forEach((field, path) => field.showError(checked.errors[path] ?? ''));
    this._sections.forEach(section => section.showCounts());
    const bad = Object.keys(checked.errors);
    const toFix = bad.length ? [trans.__('Fix: %1.', bad.join(', '))] : [];
    write(this._trouble, [...checked.general, ...toFix].join('\n'));
    this._meaning.show(checked);
  }

  _showGpus() {
    const shown = this._model.get('gpus');
    const free = shown.gpus.filter(gpu => gpu.is_free).length;
    const total = shown.gpus.length;
    this._gpus.show(shown);
    write(this._free, total ? trans.__('%1 of %2 GPUs free', free, total) : '');
  }

  _showPresets() {
    const names = this._model.get('presets');
    const options = names.map(value => make('option', { value }, value));
    const first = make('option', { value: '' }, trans.__('Preset …'));
    this._presets.replaceChildren(first, ...options);
  }

  _showNote() {
    const note = this._model.get('note');
    for (const of of this._notes.keys()) {
      this._say(of, of === note.of ? note.text : '', note.is_error);
    }
  }

  _say(of, text, isError) {
    const node = this._notes.get(of);
    write(node, text);
    node.classList.toggle('nbkf-mod-bad', isError);
  }

  async _onLaunch() {
    if (this._launch.getAttribute('aria-disabled') === 'true') {
      return;
    }
    this._launch.setAttribute('aria-disabled', 'true');
    await this.press('launch', { entered: this._model.get('entered') }, trans.__('Launching …'));
    this._launch.removeAttribute('aria-disabled');
  }

  /** Send a message; return whether it was heard in time, null if it never can be. */
  _send(kind, message, limitMilliseconds) {
    const request = `${Date.now()}-${Math.random()}`;
    return new Promise(resolve => {
      const settle = heard => {
        this._waiting.delete(request);
        resolve(heard);
      };
      this._waiting.set(request, () => settle(true));
      if (limitMilliseconds) {
        setTimeout(() => settle(false), limitMilliseconds);
      }
      try {
        this._model.send({ kind, request, ...message });
      } catch {
        settle(null); // of another kernel, or of one before its restart
      }
    });
  }
}

function render({ model, el }) {
  const form = new Form(model, el);
  return () => form.dispose();
}

export default { render };
