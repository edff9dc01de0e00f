"""Runs are shown, and ended, in the panel and among the running things of Lab."""

from __future__ import annotations

from playwright.sync_api import expect

from nbkit.store.record import RunState
from tests.browser.rest import settle
from tests.browser.sidebar import (
    EXPOSED,
    Frames,
    open_notebook_7,
    open_panel,
    until,
)
from tests.server.curves import RUN_ID, boards, store_curves
from tests.server.stored_runs import store_run, write_scalars
from tests.waiting import wait_until


def test_the_curves_of_a_run_open_in_a_tab_of_lab_that_is_the_only_one(
    shared_lab, page
):
    server = shared_lab("replay:no-gpu")
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


def test_curves_that_somebody_sees_stay_and_come_back_by_themselves(lab, page):
    server = lab("replay:no-gpu", "--NbkitServer.tensorboard_idle_seconds=6")
    store_curves(server)
    visitor = page(server.address())
    posted = []
    visitor.on("response", lambda answer: posted.append(answer))
    row = open_panel(visitor).locator(".nbk-run", has_text="a run")
    address = f"{server.url}nbkit/tensorboard/{RUN_ID}/"
    curves = visitor.frame_locator('iframe[title="TensorBoard: a run"]')

    def opened():
        return [one for one in posted if f"api/runs/{RUN_ID}/tensorboard" in one.url]

    row.get_by_role("button", name="Open TensorBoard for a run").click()
    expect(curves.get_by_text("train/loss").first).to_be_visible()
    (board,) = boards(server)
    # Three times within the idle time, and for longer than that.
    until(visitor, lambda: len(opened()) >= 6, "a page that tells that it is seen")
    assert board.is_running()

    with visitor.expect_response(address) as loaded:
        board.kill()
    assert loaded.value.status == 200
    expect(curves.get_by_text("train/loss").first).to_be_visible()

    visitor.get_by_role("menuitem", name="File", exact=True).click()
    visitor.get_by_text("New Launcher").click()
    until(visitor, lambda: not boards(server), "its end where nobody sees it")


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


def test_notebook_7_has_the_panel_and_opens_curves_in_a_tab_of_the_browser(
    shared_lab, page
):
    server = shared_lab("replay:one-gpu")
    store_curves(server)
    visitor = open_notebook_7(server, page)
    panel = visitor.locator("#nbkit-panel")
    row = panel.locator(".nbk-run", has_text="a run")
    expect(panel.locator(".nbk-card")).to_have_count(1)

    with visitor.expect_popup() as opened:
        row.get_by_role("button", name="Open TensorBoard for a run").click()

    expect(opened.value.get_by_text("train/loss").first).to_be_visible()
    assert "/nbkit/tensorboard/" in opened.value.url
    settle(visitor, server, 1)


def test_a_tensorboard_that_does_not_start_says_why_and_what_else_shows_curves(
    lab, page, tmp_path
):
    broken = tmp_path / "broken.py"
    broken.write_text("raise SystemExit('no space left')")
    store = tmp_path / "lab0" / "root" / "store"
    server = lab(
        "replay:no-gpu",
        f"--NbkitServer.tensorboard_command={broken}",
        EXPOSED,
        NBKIT_HOME=str(store),
    )
    folder = store_run(store, RUN_ID)
    write_scalars(folder, "train/loss", [1.0])
    visitor = page(server.address())
    row = open_panel(visitor).locator(".nbk-run", has_text="a run")
    button = row.get_by_role("button", name="Open TensorBoard for a run")
    dialog = visitor.locator(".jp-Dialog")

    button.click()
    expect(dialog).to_contain_text("exit code 1: no space left")
    expect(dialog).to_contain_text(f"tensorboard --logdir {folder / 'tensorboard'}")
    dialog.get_by_role("button", name="Close").click()
    expect(visitor.get_by_role("tab", name="TensorBoard")).to_have_count(0)

    # Another extension shows them only where a person chooses it.
    visitor.evaluate(
        """() => {
          window.shown = [];
          jupyterapp.commands.addCommand('tensorboard:create-new',
            {execute: ({cwd}) => { window.shown.push(cwd); }});
        }"""
    )
    button.click()
    expect(dialog).to_contain_text("exit code 1: no space left")
    expect(dialog).to_contain_text("a port that every user of the machine can reach")
    assert visitor.evaluate("shown") == []
    dialog.get_by_role("button", name="Open with Another Extension").click()

    opened = [f"store/runs/{RUN_ID}"]
    until(visitor, lambda: visitor.evaluate("shown") == opened, "the other extension")


def test_a_run_shows_its_progress_and_is_stopped_from_its_row(shared_lab, page, run):
    server = shared_lab("replay:no-gpu")
    visitor = page(server.address())
    panel = open_panel(visitor)
    long = run(server)
    row = panel.locator(".nbk-run", has_text="a long run")
    dialog = visitor.locator(".jp-Dialog")
    expect(row).to_contain_text("/1000000")
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
    dialog.get_by_role("button", name="Stop Run").click()

    expect(row).to_contain_text("stopped")
    expect(stop).to_have_count(0)
    wait_until(lambda: long.state is RunState.STOPPED, "the end of the run")


def test_a_run_is_among_the_running_things_of_lab_and_is_stopped_there(
    shared_lab, page, run
):
    server = shared_lab("replay:no-gpu")
    visitor = page("about:blank")
    frames = Frames(visitor)
    visitor.goto(server.address())
    tab = visitor.locator('.jp-SideBar [data-id="jp-running-sessions"]')
    tab.click()
    running = visitor.locator("#jp-running-sessions")
    expect(running).to_contain_text("nbkit Runs")
    # Without a GPU, nobody watches.
    until(visitor, lambda: frames.opened and not frames.is_open, "an idle stream")

    long = run(server)
    item = running.locator(".jp-RunningSessions-item", has_text="a long run")
    expect(item).to_be_visible()
    item.hover()
    item.get_by_title("Stop Run").click()
    visitor.locator(".jp-Dialog").get_by_role("button", name="Stop Run").click()

    until(visitor, lambda: long.state is RunState.STOPPED, "the end of the run")
    expect(item).to_have_count(0)
