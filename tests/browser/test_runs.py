"""Curves of runs, reports of studies and notebooks open in tabs of Lab."""

from __future__ import annotations

import datetime
import json
import re

from playwright.sync_api import expect

import nbkit
from nbkit.config import ExperimentConfig
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import write_json
from nbkit.studies.notebooks import notebook
from tests.browser.rest import settle
from tests.browser.sidebar import open_panel, until
from tests.browser.test_looks import look
from tests.server.curves import boards, store_curves
from tests.server.stored_runs import store_run
from tests.studies.written_study import write_runs
from tests.telemetry.traces import replay


def opens_curves_in_one_tab(server, visitor, tab, curves):
    posted = []
    visitor.on("response", lambda answer: posted.append(answer))
    row = open_panel(visitor).locator(".nbk-run", has_text="a run")

    row.get_by_role("button", name="Open TensorBoard for a run").click()
    expect(tab).to_have_attribute("aria-selected", "true")
    expect(curves.get_by_text("train/loss").first).to_be_visible()
    # The curve itself comes by a POST, which carries no token of Jupyter's.
    series = until(visitor, lambda: _posted(posted, "/timeSeries"), "the curve")
    assert series.json()[0]["runToSeries"]["a run"][2]["value"] == 1.0
    # Its settings, a third of the tab, are folded.
    expect(curves.locator("metrics-dashboard-right-pane")).to_have_count(0)
    with visitor.expect_popup() as opened:
        visitor.get_by_role("button", name="Open in Browser Tab").click()
    expect(opened.value.get_by_text("train/loss").first).to_be_visible()
    opened.value.close()
    visitor.get_by_role("menuitem", name="File", exact=True).click()
    visitor.get_by_text("New Launcher").click()
    expect(tab).to_have_attribute("aria-selected", "false")
    row.get_by_role("button", name="Open TensorBoard for a run").click()

    expect(tab).to_have_count(1)
    expect(tab).to_have_attribute("aria-selected", "true")
    expect(curves.get_by_text("train/loss").first).to_be_visible()
    assert len(boards(server)) == 1


def _posted(answers, end):
    """Return the first answer to a POST to an address with that end."""
    return next(
        (
            answer
            for answer in answers
            if answer.url.endswith(end) and answer.request.method == "POST"
        ),
        None,
    )


def shows_a_study_and_opens_its_report(server, visitor, panel):
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
    row = panel.locator(".nbk-study")

    # One row, whatever the number of its starts; the others are runs of no study.
    expect(row).to_contain_text("3 of 4 starts")
    expect(row).to_contain_text("about 2 h")
    expect(row).to_contain_text("So far: b is faster.")
    expect(panel.locator(".nbk-run")).to_have_count(4)
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


def test_curves_and_study_open_in_tabs_and_sections_stay_folded(
    shared_lab, page, monkeypatch
):
    server = shared_lab(replay("no-gpu"))
    monkeypatch.setenv("NBKIT_HOME", str(server.store))
    store_curves(server)
    visitor = page(server.address())
    tabs = visitor.locator("#jp-main-dock-panel")
    tab = tabs.get_by_role("tab", name="TensorBoard: a run")
    curves = visitor.frame_locator('iframe[title="TensorBoard: a run"]')
    panel = open_panel(visitor)
    row = panel.locator(".nbk-study")

    opens_curves_in_one_tab(server, visitor, tab, curves)
    shows_a_study_and_opens_its_report(server, visitor, panel)
    # Lab saves its layout now and then, and brings it back.
    saved = server.folder / "workspaces"
    until(
        visitor,
        lambda: any("nbkit-tensorboard" in it.read_text() for it in saved.iterdir()),
        "a saved layout",
    )
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
    expect(tab).to_have_count(1)
    tab.click()
    expect(curves.get_by_text("train/loss").first).to_be_visible()
    assert len(boards(server)) == 1


def test_a_tile_copies_a_notebook_into_the_folder_and_never_over_another(
    shared_lab, page
):
    server = shared_lab(replay("no-gpu"))
    visitor = page("about:blank")
    held = []

    def hold_first(route):
        held.append(route)
        if len(held) > 1:
            route.continue_()

    visitor.route(re.compile(r"nbkit/api/notebooks(\?|$)"), hold_first)
    visitor.goto(server.address())
    cards = visitor.locator(".jp-LauncherCard")
    tile = visitor.locator(".jp-LauncherCard", has_text="Scaling")

    # Lab starts although there is no answer, and a failure is not the last word.
    expect(cards.first).to_be_visible()
    expect(tile).to_have_count(0)
    until(visitor, lambda: held, "the question for notebooks")
    held[0].fulfill(status=503, body="{}")
    sections = visitor.locator(".jp-Launcher-sectionTitle")
    expect(sections.nth(1)).to_have_text("nbkit")
    (server.root / "scaling.ipynb").write_text("another")
    tile.click()

    expect(visitor.locator(".jp-NotebookPanel")).to_have_count(1)
    assert (server.root / "scaling-1.ipynb").exists()
    assert (server.root / "scaling.ipynb").read_text() == "another"
    # The palette finds it by the word on its tile.
    label = visitor.evaluate(
        "args => jupyterapp.commands.label('nbkit:copy-notebook', args)",
        {"name": "scaling", "isPalette": True},
    )
    assert label.startswith("New from nbkit: Scaling: ")
    # Never beside the original: the copy is elsewhere, which is said.
    originals = server.root / "originals"
    originals.symlink_to(notebook("scaling").parent)
    visitor.evaluate(
        "args => void jupyterapp.commands.execute('nbkit:copy-notebook', args)",
        {"name": "scaling", "cwd": "originals"},
    )
    note = "Copied to /scaling-2.ipynb: the folder /originals is read-only"
    expect(visitor.get_by_text(note)).to_be_visible()
    originals.unlink()
    settle(visitor, server, 2)
