// What the form shows beside its fields: GPUs, partitions, memory and commands.

const PARTITION = 'slurm.slurm_partition';

/** What there is to pick from: a press picks one, or lets it go. */
class Offers {
  /** What came of the button, a message of this kind, is shown in `note`. */
  constructor(form, title, kind, note) {
    this._form = form;
    this._items = [];
    this._text = make('span', { class: 'nbkf-gpus-text', role: 'status' });
    this._at = make('span', { class: 'nbkf-quiet' });
    this._list = make('div', { class: 'nbkf-gpus-list' });
    const refresh = make(
      'button',
      { type: 'button', onclick: () => form.press(kind, {}, trans.__('Refreshing …')) },
      trans.__('Refresh')
    );
    const head = make('div', { class: 'nbkf-line' }, make('h3', {}, title));
    head.append(this._text, note, this._at, refresh);
    this.node = make('section', { class: 'nbkf-gpus', 'aria-label': title });
    this.node.append(head, this._list);
  }

  get isInSight() {
    const { top, bottom, height } = this.node.getBoundingClientRect();
    return height > 0 && bottom > 0 && top < window.innerHeight;
  }

  showPicked() {
    const picked = this._picked();
    [...this._list.children].forEach((button, place) => {
      button.setAttribute('aria-pressed', picked.includes(this._items[place]));
    });
  }

  /** Show items of a moment by their keys; a button that has the focus keeps it. */
  _showAll(text, at, items, key) {
    write(this._text, text);
    const moment = new Date(1000 * at).toLocaleString();
    write(this._at, at ? trans.__('As of %1', moment) : '');
    const keys = items.map(key).join();
    if (keys !== this._keys) {
      this._list.replaceChildren(...items.map((_, place) => this._button(place)));
    }
    this._keys = keys;
    this._items = items;
    items.forEach((item, place) => this._describe(item, this._list.children[place]));
    this.showPicked();
  }

  _button(place) {
    return make(
      'button',
      {
        type: 'button',
        class: 'nbkf-gpu',
        onclick: () => this._pick(this._items[place])
      },
      make('b'),
      make('span'),
      make('span')
    );
  }

  _write(button, isFree, title, lines) {
    button.title = title.filter(Boolean).join('\n');
    button.classList.toggle('nbkf-mod-free', isFree === true);
    lines.forEach((text, place) => write(button.children[place], text));
  }

  /** What is picked when one is pressed: all that was and is not it, or it too. */
  _pressed(item) {
    const before = this._picked();
    return this._items.filter(other => before.includes(other) !== (other === item));
  }
}

/** The GPUs of this machine. */
class Gpus extends Offers {
  constructor(form, note) {
    super(form, trans.__('GPUs'), 'refresh', note);
  }

  show({ text, at, replayed, gpus }) {
    this._replayed = replayed;
    this._showAll(text, at, gpus, gpu => gpu.uuid);
  }

  _describe(gpu, button) {
    const held = gpu.holders.join('; ');
    const state = gpu.is_free ? trans.__('free') : held || trans.__('unknown');
    const title = [gpu.product, gpu.load, held && trans.__('held by %1', held)];
    this._write(button, gpu.is_free, title, [gpu.title, gpu.load, state]);
  }

  _picked() {
    const names = this._form.entered('devices').split(/[\s,;]+/);
    return this._items.filter(
      gpu => names.includes(gpu.device) || names.includes(gpu.uuid)
    );
  }

  _pick(gpu) {
    const picked = this._pressed(gpu);
    const changes = {
      devices: picked.map(gpu => gpu.device).join(', '),
      gpus: String(Math.max(1, picked.length))
    };
    if (this._replayed) {
      changes.device = picked.length ? 'replay' : 'auto';
    } else if (this._form.entered('device') !== 'cuda') {
      changes.device = 'auto';
    }
    this._form.enter(changes);
  }
}

/** The partitions of the cluster. */
class Partitions extends Offers {
  constructor(form, note) {
    super(form, trans.__('Partitions'), 'partitions', note);
  }

  show({ text, at, partitions }) {
    this._showAll(text, at, partitions, partition => partition.name);
  }

  _describe({ title, load, gpus, is_free }, button) {
    this._write(button, is_free, [load, gpus], [title, load, gpus]);
  }

  _picked() {
    const names = this._form.entered(PARTITION).split(/[\s,]+/);
    return this._items.filter(partition => names.includes(partition.name));
  }

  _pick(partition) {
    const names = this._pressed(partition).map(({ name }) => name);
    this._form.enter({ [PARTITION]: names.join(',') });
  }
}

/** What the form results in: memory, and commands to copy. */
class Meaning {
  constructor() {
    this._total = make('b');
    this.memory = make('span', { class: 'nbkf-memory' });
    this.memory.append(trans.__('Memory per GPU (estimate):'), ' ', this._total);
    this._why = make('p', { class: 'nbkf-quiet' });
    this._memory = make('details', { class: 'nbkf-command' });
    this._memory.append(make('summary', {}, trans.__('Memory estimate')), this._why);
    this.node = make('section', { 'aria-label': trans.__('Memory and commands') });
  }

  show({ memory, commands }) {
    // Writing the same again would clear the user's selection.
    const shown = JSON.stringify([memory, commands]);
    if (shown === this._shown) {
      return;
    }
    this._shown = shown;
    this._total.textContent = memory?.total ?? '–';
    this._why.textContent = memory?.why ?? trans.__('Fix the errors first.');
    this.memory.title = this._why.textContent;
    const open = new Set(
      [...this.node.querySelectorAll('details[open]')].map(node => node.dataset.title)
    );
    this.node.replaceChildren(
      this._memory,
      ...commands.map(command => this._command(command, open.has(command.title)))
    );
  }

  _command({ title, text, note }, isOpen) {
    const code = make('pre', { tabindex: '0', 'aria-label': title }, text);
    const status = make('span', { role: 'status' });
    const copy = make(
      'button',
      {
        type: 'button',
        'aria-label': trans.__('Copy %1', title),
        onclick: async () => {
          const isCopied = await copied(text, code);
          status.textContent = isCopied
            ? trans.__('Copied.')
            : trans.__('Selected. Press Ctrl+C (on a Mac ⌘C).');
        }
      },
      trans.__('Copy')
    );
    const node = make('details', {
      class: 'nbkf-command',
      'data-title': title,
      open: isOpen
    });
    node.append(make('summary', {}, trans.__('As %1', title)));
    node.append(...(text ? [code, make('div', { class: 'nbkf-line' }, copy, status)] : []));
    node.append(...(note ? [make('p', { class: 'nbkf-quiet' }, note)] : []));
    return node;
  }
}

/** Copy a text, or select it where the page may not write to the clipboard. */
async function copied(text, node) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    window.getSelection().selectAllChildren(node);
    return false;
  }
}
