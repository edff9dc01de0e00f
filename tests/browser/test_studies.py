"""Studies in the sidebar, and its sections, which fold."""

from __future__ import annotations

import datetime
import json

from playwright.sync_api import expect

import nbkit
from nbkit.config import ExperimentConfig
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import write_json
from tests.browser.sidebar import open_panel
from tests.browser.test_looks import look
from tests.server.stored_runs import store_run
from tests.studies.written_study import write_runs
from tests.telemetry.traces import replay


def test_study_row_shows_progress_answer_and_report_and_sections_stay_folded(
    shared_lab, page, monkeypatch
):
    server = shared_lab(replay("no-gpu"))
    monkeypatch.setenv("NBKIT_HOME", str(server.store))
    config = ExperimentConfig(device="cpu", gpus=1, steps=20, warmup_steps=2)
    arms = {"a": config, "b": config.replace(batch_size_per_gpu=8)}
    study = nbkit.Study.create("two arms", arms, repeats=2)
    write_runs(study, {"a": 10, "b": 20})
    file = study.paths.study
    content = json.loads(file.read_text())
    end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=2.2)
    shown = {"expected_end": end.isoformat(), "answer": "So far: b is faster."}
    write_json(study.paths.progress, shown)
    executed = {"executor": ProcessIdentity.of().to_dict()}
    write_json(file, {**content, **executed, "runs": content["runs"][:3]})
    for state in ("failed", "stopped"):
        store_run(server.store, f"20200101-000000-{state}-aaaa", state)
    visitor = page(server.address())
    panel = open_panel(visitor)
    row = panel.locator(".nbk-study")

    # One row, whatever the number of its starts.
    expect(row).to_contain_text("3 of 4 starts")
    expect(row).to_contain_text("about 2 h")
    expect(row).to_contain_text("So far: b is faster.")
    expect(panel.locator(".nbk-run")).to_have_count(3)
    row.get_by_role("button", name="two arms", exact=True).click()
    expect(row.locator(".nbk-run")).to_have_count(4)
    signs = panel.locator(".nbk-runs > .nbk-run:not(.nbk-study) > .nbk-row .nbk-state")
    assert {"✕", "□"} <= set(signs.all_inner_texts())
    look(visitor)

    write_json(file, {**content, "runs": content["runs"][:3]})
    resume = f"nbkit.Study.open('{study.study_id}').resume()"
    expect(row).to_contain_text(f"Continue: {resume}")
    visitor.context.grant_permissions(["clipboard-read"])
    row.get_by_role("button", name="Copy the command").click()
    assert visitor.evaluate("navigator.clipboard.readText()") == resume

    write_json(file, content)
    nbkit.report(study)
    expect(row).to_contain_text("4 of 4 starts")
    row.get_by_role("button", name="Open the report of two arms").click()
    expect(visitor.get_by_role("tab", name="two arms")).to_be_visible()

    fold = panel.get_by_role("button", name="Runs", exact=True)
    fold.click()
    expect(row).to_have_count(0)
    visitor.reload()
    panel = open_panel(visitor)
    expect(fold).to_have_attribute("aria-expanded", "false")
    expect(row).to_have_count(0)
    expect(panel.get_by_role("button", name="Host", exact=True)).to_have_attribute(
        "aria-expanded", "true"
    )
