// The fields of the form, under their headings.

/** Either of them ends a run: they share the room of one field. */
const PAIR = new Set(['steps', 'epochs']);

let count = 0;

/** Set a text, unless it is there: a screen reader would say it again. */
function write(node, text) {
  if (node.textContent !== text) {
    node.textContent = text;
  }
  node.hidden = !text;
}

/** Return the parts of a name, which may be broken after its underscores. */
function foldable(name) {
  return name.split(/(?<=_)/).flatMap(part => [part, make('wbr')]);
}

/** One field: its name, its control, what is wrong with it, what it means. */
class Field {
  constructor(control, changed) {
    this.control = control;
    this.id = `nbkf-${++count}`;
    this._changed = changed;
    this.input = this._input();
    this.reset = make(
      'button',
      {
        type: 'button',
        class: 'nbkf-reset',
        title: trans.__('Reset to %1', this._shown(control.default)),
        'aria-label': trans.__('Reset %1', control.path),
        onclick: () => {
          this.show(control.default);
          this._changed(this);
          this.input.focus();
        }
      },
      trans.__('reset')
    );
    this.error = make('div', { class: 'nbkf-error', id: `${this.id}-error` });
    const name = control.path.split('.').pop();
    const limits = control.limits ? trans.__('Accepts %1.', control.limits) : '';
    const help = `${control.help} ${limits}`.trim();
    const label = make('label', { for: this.id, title: help }, ...foldable(name));
    const line = make('div', { class: 'nbkf-label' }, label, this.reset);
    const tip = make(
      'div',
      { class: 'nbkf-help', id: `${this.id}-help`, role: 'tooltip' },
      help
    );
    this.node = make('div', { class: 'nbkf-field', 'data-path': control.path });
    this.node.append(line, this.input, this.error, tip);
    if (control.kind === 'switch') {
      this.node.classList.add('nbkf-mod-switch');
      line.prepend(this.input);
    }
    this.words = `${control.path} ${control.help}`.toLowerCase();
    this.showError('');
  }

  get entered() {
    return this.control.kind === 'switch' ? this.input.checked : this.input.value;
  }

  get isChanged() {
    return this.entered !== this.control.default;
  }

  /** Show what was entered elsewhere; an equal text stays untouched. */
  show(entered) {
    if (this.control.kind === 'switch') {
      this.input.checked = entered === true;
    } else if (this.input.value !== entered) {
      this.input.value = entered;
    }
    this.showChanged();
  }

  showChanged() {
    this.node.classList.toggle('nbkf-mod-changed', this.isChanged);
    this.reset.hidden = !this.isChanged;
  }

  showError(text) {
    write(this.error, text);
    this.node.classList.toggle('nbkf-mod-bad', Boolean(text));
    this.input.setAttribute('aria-invalid', Boolean(text));
    const described = text ? `${this.error.id} ${this.id}-help` : `${this.id}-help`;
    this.input.setAttribute('aria-describedby', described);
  }

  _input() {
    const { kind, choices, suggestions, optional } = this.control;
    const input = event => {
      this.showChanged();
      this._changed(this, event);
    };
    if (kind === 'switch') {
      return make('input', { type: 'checkbox', id: this.id, onchange: input });
    }
    if (kind === 'choice') {
      const options = choices.map(([value, text]) => make('option', { value }, text));
      return make('select', { id: this.id, onchange: input }, ...options);
    }
    if (kind === 'lines' || kind === 'pairs') {
      return make('textarea', {
        id: this.id,
        rows: '2',
        autocomplete: 'off',
        spellcheck: 'false',
        placeholder:
          kind === 'pairs'
            ? trans.__('name=value, one per line')
            : trans.__('one per line'),
        oninput: input
      });
    }
    const list = suggestions.length ? `${this.id}-list` : undefined;
    const node = make('input', {
      type: 'text',
      id: this.id,
      list,
      autocomplete: 'off',
      spellcheck: 'false',
      placeholder: optional ? trans.__('not set') : undefined,
      oninput: input
    });
    this.list = list && make('datalist', { id: list });
    this.list?.append(...suggestions.map(value => make('option', { value })));
    return node;
  }

  _shown(entered) {
    const words = {
      true: trans.__('on'),
      false: trans.__('off'),
      '': trans.__('not set')
    };
    return words[String(entered)] ?? entered;
  }
}

/** Fields under one heading, which can be folded; so can each group inside it. */
class Section {
  constructor(section, changed) {
    this.fields = section.controls.map(control => new Field(control, changed));
    const groups = new Map();
    for (const field of this.fields) {
      const outer = field.control.path.split('.').slice(0, -1).join('.');
      groups.set(outer, [...(groups.get(outer) ?? []), field]);
    }
    // The first stand below the heading itself, also if they are a group's.
    const [[, own], ...others] = groups;
    const inner = others.map(([name, fields]) => new Folder(name, fields, []));
    this._folder = new Folder(section.title, own, inner);
    this.node = this._folder.node;
    this.node.classList.add('nbkf-section');
    this.node.open = section.is_open;
  }

  showCounts() {
    this._folder.showCounts();
  }

  /** Show fields that match; a section without any goes. */
  filter(text) {
    this._folder.filter(text);
  }
}

/** Fields, and folders below them, that can be folded. */
class Folder {
  constructor(title, fields, inner) {
    this._inner = inner;
    this._fields = [...fields, ...inner.flatMap(group => group._fields)];
    this._counts = make('span', { class: 'nbkf-counts' });
    const summary = make('summary', {}, title, this._counts);
    const grid = make('div', { class: 'nbkf-grid' });
    const pair = make('div', { class: 'nbkf-pair' });
    for (const field of fields) {
      const isOfPair = PAIR.has(field.control.path);
      (isOfPair ? pair : grid).append(field.node, ...(field.list ? [field.list] : []));
    }
    grid.append(...(pair.children.length ? [pair] : []));
    this.node = make('details', {}, summary, grid);
    this.node.append(...inner.map(group => group.node));
  }

  showCounts() {
    const changed = this._fields.filter(field => field.isChanged).length;
    const bad = this._fields.filter(field => field.error.textContent).length;
    const texts = [
      changed && trans._n('%1 changed', '%1 changed', changed),
      bad && trans._n('%1 to fix', '%1 to fix', bad)
    ];
    write(this._counts, texts.filter(Boolean).join(', '));
    this._counts.classList.toggle('nbkf-mod-bad', bad > 0);
    // Errors stay in sight until the user folds them.
    this.node.open ||= bad > 0 && !this._wasBad;
    this._wasBad = bad > 0;
    this._inner.forEach(group => group.showCounts());
  }

  filter(text) {
    this._inner.forEach(group => group.filter(text));
    for (const field of this._fields) {
      field.node.hidden = !field.words.includes(text);
    }
    this.node.hidden = this._fields.every(field => field.node.hidden);
    this._wasOpen ??= this.node.open;
    this.node.open = text ? true : this._wasOpen;
    if (!text) {
      this._wasOpen = undefined;
    }
  }
}
