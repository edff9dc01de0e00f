"""A run that waits, and curves of several runs, in one Lab."""

from __future__ import annotations

import json

from playwright.sync_api import expect

from nbkit.store.paths import RunPaths
from nbkit.store.record import read_json, utc_now, write_json
from tests.browser.sidebar import open_panel, until
from tests.server.curves import boards, store_curves
from tests.server.stored_runs import store_run

RUNS = [f"2020010{number}-000000-run-aaa{number}" for number in (1, 2)]
QUEUED = "20200103-000000-waits-aaaa"
STUDY = "20200105-000000-fp16-aaaa"


def _store_queued_run(store):
    paths = RunPaths(store_run(store, QUEUED, "queued", stop_grace_seconds=5))
    reason = "2 of 2 GPUs are held: 2020-train of user ann holds GPU 0 and 1"
    queue = {"position": 2, "length": 3, "reason": reason, "since": utc_now()}
    record = {**(read_json(paths.record) or {}), "name": "waits", "queue": queue}
    write_json(paths.record, {**record, "launch": {"devices": []}})
    return paths


def test_a_queued_run_and_curves_of_several_runs_are_one_click_away(shared_lab, page):
    server = shared_lab("replay:no-gpu")
    for run_id in RUNS:
        store_curves(server, run_id)
    queued = _store_queued_run(server.store)
    study = server.store / "studies" / STUDY / "study.json"
    study.parent.mkdir(parents=True)
    runs = [{"arm": "fp16", "repeat": 0, "run_id": RUNS[0]}]
    study.write_text(json.dumps({"name": "FP16", "runs": runs}))
    visitor = page(server.address())
    panel = open_panel(visitor)
    row = panel.locator(".nbk-run", has_text="waits")
    dialog = visitor.locator(".jp-Dialog")

    expect(row).to_contain_text("queued")
    expect(row).to_contain_text("position 2 of 3")
    expect(row).to_contain_text("2020-train of user ann holds GPU 0 and 1")
    row.get_by_role("button", name="Stop the run waits").click()
    expect(dialog).to_contain_text("It is removed from the queue and does not start")
    dialog.get_by_role("button", name="Stop Run").click()
    until(visitor, queued.stop.exists, "the request to stop")

    panel.get_by_role("button", name="Open TensorBoard for all runs").click()
    curves = visitor.frame_locator('iframe[title="TensorBoard: all runs"]')
    expect(
        visitor.get_by_text("shows 2 of 3 runs: the newest of").first
    ).to_be_visible()
    for run_id in RUNS:
        expect(curves.get_by_text(run_id).first).to_be_visible()

    visitor.keyboard.press("Control+Shift+C")
    palette = visitor.locator('[data-command="nbkit:tensorboard-study"]')
    palette.filter(visible=True).click()
    expect(dialog).to_contain_text("TensorBoard for Which Study?")
    dialog.get_by_role("button", name="Ok").click()
    curves = visitor.frame_locator('iframe[title="TensorBoard: study FP16"]')
    expect(curves.get_by_text("fp16 1 aaa1").first).to_be_visible()
    assert len(boards(server)) == 2
