"""Runs are shown, and ended, in the panel and among the running things of Lab."""

from __future__ import annotations

from playwright.sync_api import expect

from nbkit.store.record import RunState
from tests.browser.sidebar import open_panel, until
from tests.server.curves import boards, store_curves
from tests.telemetry.traces import replay
from tests.waiting import wait_until


def test_the_curves_of_a_run_open_in_a_tab_of_lab_that_is_the_only_one(
    shared_lab, page
):
    server = shared_lab(replay("no-gpu"))
    store_curves(server)
    visitor = page(server.address())
    posted = []
    visitor.on("response", lambda answer: posted.append(answer))
    row = open_panel(visitor).locator(".nbk-run", has_text="a run")
    tab = visitor.locator("#jp-main-dock-panel").get_by_role(
        "tab", name="TensorBoard: a run"
    )

    row.get_by_role("button", name="Open TensorBoard for a run").click()
    expect(tab).to_have_attribute("aria-selected", "true")
    curves = visitor.frame_locator('iframe[title="TensorBoard: a run"]')
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

    # Lab saves its layout now and then, and brings it back.
    saved = server.folder / "workspaces"
    until(
        visitor,
        lambda: any("nbkit-tensorboard" in it.read_text() for it in saved.iterdir()),
        "a saved layout",
    )
    visitor.reload()
    expect(tab).to_have_count(1)
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


def test_a_run_shows_its_progress_and_is_stopped_from_its_row(shared_lab, page, run):
    server = shared_lab(replay("no-gpu"))
    visitor = page(server.address())
    panel = open_panel(visitor)
    long = run(server)
    row = panel.locator(".nbk-run", has_text="a long run")
    dialog = visitor.locator(".jp-Dialog")
    expect(row).to_contain_text("/1,000,000")
    expect(row).to_contain_text("images/s")
    expect(row).to_contain_text("loss")

    # The store is outside of what Lab shows.
    copy = row.get_by_role("button", name="Copy the path of a long run")
    visitor.context.grant_permissions(["clipboard-read"])
    copy.click()
    text = visitor.evaluate("navigator.clipboard.readText()")
    assert text == str(long.paths.root)
    visitor.evaluate("document.execCommand = () => false")
    copy.click()
    expect(dialog).to_contain_text("The browser blocked the copy")
    expect(dialog).to_contain_text(text)
    dialog.get_by_role("button").last.click()

    stop = row.get_by_role("button", name="Stop the run a long run")
    stop.click()
    expect(dialog).to_contain_text("Stop the run a long run?")
    expect(dialog).to_contain_text("saves a checkpoint after its next step")
    dialog.get_by_role("button", name="Stop Run").click()

    expect(row).to_contain_text("stopped")
    expect(stop).to_have_count(0)
    wait_until(lambda: long.state is RunState.STOPPED, "the end of the run")
