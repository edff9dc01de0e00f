// What every widget makes its page of.

/** English, where nbkit's part of Lab is not there to translate. */
const ENGLISH = {
  __: (text, ...values) => text.replace(/%(\d)/g, (_, place) => values[place - 1]),
  _n: (singular, plural, count, ...values) =>
    ENGLISH.__(count === 1 ? singular : plural, count, ...values)
};
const trans = language();

/** Ask nbkit's part of Lab for the texts of Lab's language. */
function language() {
  const detail = {};
  document.dispatchEvent(new CustomEvent('nbkit:language', { detail }));
  return detail.trans ?? ENGLISH;
}

const STATES = {
  queued: trans.__('queued'),
  starting: trans.__('starting'),
  running: trans.__('running'),
  stopping: trans.__('stopping'),
  finished: trans.__('finished'),
  failed: trans.__('failed'),
  stopped: trans.__('stopped'),
  lost: trans.__('lost'),
  unknown: trans.__('unknown'),
  removed: trans.__('removed')
};

/** Elements that take keys, which then do not run commands of the notebook. */
const TAKES_KEYS = new Set([
  'button',
  'input',
  'select',
  'summary',
  'pre',
  'textarea'
]);

/** The words of a part: a heading where the part is on a page of its own. */
function heading(words, isPage) {
  return isPage ? make('h2', {}, words) : words;
}

/** An element with attributes and children; text is never read as HTML. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  if (TAKES_KEYS.has(tag)) {
    // JupyterLab's commands check the focused element first, then its parents.
    element.setAttribute('data-lm-suppress-shortcuts', 'true');
  }
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) {
      element.addEventListener(name.slice(2), value);
    } else if (value === true) {
      element.setAttribute(name, '');
    } else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, value);
    }
  }
  element.append(...children);
  return element;
}
