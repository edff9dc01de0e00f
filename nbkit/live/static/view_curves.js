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
      "TensorBoard opens in JupyterLab and Notebook 7, with nbkit's extension. " +
        `In a terminal: tensorboard --logdir "${folder}/tensorboard"`
    );
    return;
  }
  // Only while it handles the click may a page open another.
  const page = window.open('', `nbkit-tensorboard-${run_id}`);
  if (!page) {
    say(
      'TensorBoard did not open: allow pop-ups for this page.'
    );
    return;
  }
  try {
    const url = await curvesAddress(JSON.parse(config.textContent), run_id);
    page.location.replace(url);
  } catch (error) {
    page.close();
    say(`TensorBoard did not open: ${error.message}`);
  }
}

/** Let nbkit's part of Lab open the report of a run's study. */
function openReport({ study_id }, say) {
  const options = { detail: { study_id }, cancelable: true };
  if (document.dispatchEvent(new CustomEvent('nbkit:report', options))) {
    say(
      "The report opens in JupyterLab with nbkit's extension. Elsewhere: " +
        `nbkit.report("${study_id}")`
    );
  }
}

/** Start a run's TensorBoard on the page's server; return its address. */
async function curvesAddress({ baseUrl, token }, runId) {
  const id = encodeURIComponent(runId);
  const xsrf = document.cookie.match(/\b_xsrf=([^;]*)/)?.[1];
  const response = await fetch(`${baseUrl}nbkit/api/runs/${id}/tensorboard`, {
    method: 'POST',
    body: '{}',
    headers: {
      ...(xsrf ? { 'X-XSRFToken': xsrf } : {}),
      ...(token ? { Authorization: `token ${token}` } : {})
    }
  });
  // Without nbkit's extension, the server's answer is not JSON.
  const answer = await response.json().catch(() => null);
  if (!response.ok) {
    const isUnknown = response.status === 404;
    throw new Error(
      answer?.message ??
        (isUnknown
          ? "nbkit is not enabled on the Jupyter server"
          : response.statusText)
    );
  }
  return `${baseUrl}${answer.path}`;
}
