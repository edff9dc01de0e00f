// The end of one rank's log: which rank and stream, only lines with a text.

const FIRST_LINES = 500;
const MOST_LINES = 8000;
const TYPING_MILLISECONDS = 300;

class LogPanel {
  constructor(name, onChoice, isOpen) {
    this._onChoice = onChoice;
    this._rank = make('select', {
      'aria-label': trans.__('Rank'),
      onchange: () => this._choose()
    });
    this._stream = make(
      'select',
      { 'aria-label': trans.__('Stream'), onchange: () => this._choose() },
      make('option', { value: 'stdout' }, 'stdout'),
      make('option', { value: 'stderr' }, 'stderr')
    );
    this._filter = make('input', {
      type: 'search',
      placeholder: trans.__('Only lines with…'),
      'aria-label': trans.__('Only lines with this text'),
      oninput: () => {
        clearTimeout(this._typing);
        this._typing = setTimeout(() => this._choose(), TYPING_MILLISECONDS);
      }
    });
    this._status = make('span', { class: 'nbkv-log-status', role: 'status' });
    this._text = make('pre', {
      class: 'nbkv-log-text',
      tabindex: '0',
      role: 'region',
      'aria-label': trans.__('Log of %1', name)
    });
    this._lines = [];
    this._openLine = '';
    this._most = FIRST_LINES;
    /** Whether what comes next is another log, of which the end is shown. */
    this._isNew = true;
    this._earlier = make(
      'button',
      { type: 'button', hidden: true, onclick: () => this._askEarlier() },
      trans.__('Load earlier lines')
    );
    this.node = make(
      'details',
      { class: 'nbkv-log', open: isOpen },
      make('summary', {}, heading(trans.__('Log'), isOpen)),
      make(
        'div',
        { class: 'nbkv-log-choice' },
        this._rank,
        this._stream,
        this._filter,
        this._status,
        this._earlier
      ),
      this._text
    );
    this.setRanks(1);
  }

  get choice() {
    return {
      rank: Number(this._rank.value),
      stream: this._stream.value,
      text: this._filter.value,
      lines: this._most
    };
  }

  /** A choice for each rank; the one that was made stays. */
  setRanks(count) {
    if (this._count === count) {
      return;
    }
    this._count = count;
    const chosen = this._rank.value;
    this._rank.replaceChildren(
      ...Array.from({ length: count }, (_, rank) =>
        make('option', { value: rank }, trans.__('Rank %1', rank))
      ),
      make('option', { value: -1 }, trans.__('Supervisor'))
    );
    this._rank.value = chosen || '0';
  }

  /** Say of an empty log whether something may still come. */
  setEnded(hasEnded) {
    this._hasEnded = hasEnded;
    this._showStatus();
  }

  /** Show a rank's standard error, where its traceback is. */
  showRank(rank, isOpen = true) {
    this._rank.value = String(rank);
    this._stream.value = 'stderr';
    this.node.open = isOpen;
    this._choose();
  }

  replace({ lines, open_line, size_bytes, searched_bytes }) {
    const box = this._text;
    const fromEnd = box.scrollHeight - box.scrollTop;
    this._lines = lines;
    this._openLine = open_line;
    const part =
      searched_bytes < size_bytes
        ? trans.__('the last %1 of %2', size(searched_bytes), size(size_bytes))
        : size(size_bytes);
    this._range = this._filter.value
      ? trans._n('%1 line from %2', '%1 lines from %2', lines.length, part)
      : part;
    this._isEmpty = !size_bytes;
    this._earlier.hidden =
      lines.length < this._most || this._most >= MOST_LINES;
    this._showStatus();
    this._show(this._isNew);
    if (!this._isNew) {
      // Whoever reads above the end keeps the place.
      box.scrollTop = box.scrollHeight - fromEnd;
    }
    this._isNew = false;
  }

  /** Add lines; what the last one says so far takes the place of what it said. */
  append({ lines, open_line }) {
    this._lines = [...this._lines, ...lines].slice(
      -2 * this._most
    );
    this._openLine = open_line;
    if (this._isEmpty) {
      this._isEmpty = false;
      this._range = '';
      this._showStatus();
    }
    this._show(false);
  }

  _askEarlier() {
    this._most = Math.min(MOST_LINES, 4 * this._most);
    this._onChoice(this.choice);
  }

  _choose() {
    clearTimeout(this._typing);
    this._most = FIRST_LINES;
    this._isNew = true;
    this._stream.disabled = this._rank.value === '-1';
    this._onChoice(this.choice);
  }

  _showStatus() {
    const nothing = this._hasEnded
      ? trans.__('nothing written')
      : trans.__('nothing written yet');
    const words = this._isEmpty ? nothing : (this._range ?? '');
    if (this._status.textContent !== words) {
      this._status.textContent = words;
    }
  }

  _show(toEnd) {
    const box = this._text;
    // A user who has scrolled up keeps the place.
    const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 24;
    const open = this._openLine ? [this._openLine] : [];
    box.textContent = [...this._lines, ...open].join('\n');
    if (toEnd || atEnd) {
      box.scrollTop = box.scrollHeight;
    }
  }
}

function size(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB'];
  let index = 0;
  while (bytes >= 1024 && index < units.length - 1) {
    bytes /= 1024;
    index += 1;
  }
  return `${bytes.toFixed(index && bytes < 100 ? 1 : 0)} ${units[index]}`;
}
