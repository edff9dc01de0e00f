// A run's TensorBoard, and the report of its study, from their buttons.

/** Let nbkit's part of Lab open the curves; where there is none, ask its server. */
async function openCurves({ run_id, name, folder }, say) {
  const detail = { run_id, name, folder_path: folder };
  const options = { detail, cancelable: true };
  if (!document.dispatchEvent(new CustomEvent('nbkit:tensorboard', options))) {
    return;
  }
  const config = document.getElementById('jupyter-config-data');
  if (!config) {
    say(
      trans.__(
        "TensorBoard opens in JupyterLab and Notebook 7, with nbkit's extension. In a terminal: %1",
        `tensorboard --logdir "${folder}/tensorboard"`
      )
    );
    return;
  }
  // Only while it handles the click may a page open another.
  const page = window.open('', `nbkit-tensorboard-${run_id}`);
  if (!page) {
    say(trans.__('TensorBoard did not open: allow pop-ups for this page.'));
    return;
  }
  try {
    const url = await curvesAddress(JSON.parse(config.textContent), run_id);
    page.location.replace(url);
  } catch (error) {
    page.close();
    say(trans.__('TensorBoard did not open: %1', error.message));
  }
}

/** Let nbkit's part of Lab open the report of a run's study. */
function openReport({ study_id }, say) {
  const options = { detail: { study_id }, cancelable: true };
  if (document.dispatchEvent(new CustomEvent('nbkit:report', options))) {
    say(
      trans.__(
        "The report opens in JupyterLab with nbkit's extension. Elsewhere: %1",
        `nbkit.report("${study_id}")`
      )
    );
  }
}

/** Start a run's TensorBoard on the page's server; return its address. */
async function curvesAddress(config, runId) {
  const response = await askServer(config, runId, 'tensorboard', {
    method: 'POST',
    body: '{}'
  });
  return `${config.baseUrl}${(await response.json()).path}`;
}

/** Points of a run's line between two x, near by; null where no server has them. */
async function pointsNear(run, name, first, last, signal) {
  const query = new URLSearchParams({ name, first, last });
  try {
    const path = `curve?${query}`;
    const response = await askServer(pageConfig(), run, path, { signal });
    return (await response.json()).points;
  } catch {
    return null; // what the page has is shown
  }
}

/** Every stored value of a line of some runs, as one CSV. */
async function storedCsv(runs, name) {
  const query = new URLSearchParams({ name });
  const texts = await Promise.all(
    runs.map(async run =>
      (await askServer(pageConfig(), run, `curve/csv?${query}`)).text()
    )
  );
  const [head] = texts[0].split('\n', 1);
  const rows = texts.map(text => text.slice(text.indexOf('\n') + 1));
  return `${head}\n${rows.join('')}`;
}

function pageConfig() {
  const config = document.getElementById('jupyter-config-data');
  if (!config) {
    throw new Error(
      trans.__(
        "this requires JupyterLab or Notebook 7 with nbkit's extension. In Python: %1",
        'run.metrics()'
      )
    );
  }
  return JSON.parse(config.textContent);
}

/** Ask nbkit's part of the page's server about a run; throw what it says instead. */
async function askServer({ baseUrl, token }, runId, path, init = {}) {
  const id = encodeURIComponent(runId);
  const xsrf = document.cookie.match(/\b_xsrf=([^;]*)/)?.[1];
  const response = await fetch(`${baseUrl}nbkit/api/runs/${id}/${path}`, {
    ...init,
    headers: {
      ...(xsrf ? { 'X-XSRFToken': xsrf } : {}),
      ...(token ? { Authorization: `token ${token}` } : {})
    }
  });
  if (!response.ok) {
    // Without nbkit's extension, the server's answer is not JSON.
    const answer = await response.json().catch(() => null);
    const isUnknown = response.status === 404;
    throw new Error(
      answer?.message ??
        (isUnknown
          ? trans.__(
              'nbkit is not enabled on the Jupyter server. In the server’s environment, run “jupyter server extension enable nbkit.server”, then restart the server.'
            )
          : response.statusText)
    );
  }
  return response;
}
