// What a page knows of the run: everything once, then numbered changes. After a gap in
// the numbers it asks for everything again. All views of a model in a page share one
// feed.

const feeds = new WeakMap();

function feedOf(model) {
  if (!feeds.has(model)) {
    feeds.set(model, new Feed(model));
  }
  return feeds.get(model);
}

class Feed {
  constructor(model) {
    this._model = model;
    this._number = null;
    this._onMessage = message => this._take(message);
    this.views = new Set();
    this.heardAt = Date.now();
    this._aheadMilliseconds = 0;
    /** State, numbers, GPUs and lines; null before the kernel's first answer. */
    this.values = null;
    model.on('msg:custom', this._onMessage);
  }

  dispose() {
    this._model.off('msg:custom', this._onMessage);
    feeds.delete(this._model);
  }

  /** The kernel's clock, in Unix seconds: this machine's may be another. */
  get now() {
    return (Date.now() + this._aheadMilliseconds) / 1000;
  }

  _take(message) {
    this.heardAt = Date.now();
    if (message.at !== undefined) {
      this._aheadMilliseconds = 1000 * message.at - this.heardAt;
    }
    if (message.kind === 'all') {
      if (message.to === undefined && this._number !== null) {
        return; // For pages that could not ask; this one has it.
      }
      this._number = message.number;
      this.values = message.values;
      this.views.forEach(view => view.showAll());
    } else if (message.kind === 'change') {
      this._change(message);
    }
  }

  _change({ number, values }) {
    if (this._number === null || number <= this._number) {
      return; // The message with everything contains it.
    }
    if (number > this._number + 1) {
      this._number = null;
      this.views.forEach(view => view.open());
      return;
    }
    this._number = number;
    const { series = {}, ...parts } = values;
    Object.assign(this.values, parts);
    for (const [name, change] of Object.entries(series)) {
      if (change === null) {
        delete this.values.series[name];
      } else {
        const points = (this.values.series[name] ??= []);
        points.splice(change.from, Infinity, ...change.points);
      }
    }
    this.views.forEach(view => view.show(Object.keys(series)));
  }
}
