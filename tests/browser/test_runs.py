"""Runs are shown, and ended, in the panel and among the running things of Lab."""

from __future__ import annotations

from playwright.sync_api import expect

from nbkit.store.record import RunState
from tests.browser.sidebar import Frames, open_panel, until
from tests.waiting import wait_until


def test_a_run_shows_its_progress_and_is_stopped_from_its_row(lab, page, run):
    server = lab("replay:no-gpu")
    visitor = page(server.address())
    panel = open_panel(visitor)
    long = run(server)
    folder = server.store / "runs" / long.run_id
    row = panel.locator(".nbk-run", has_text="a long run")
    dialog = visitor.locator(".jp-Dialog")
    expect(row).to_contain_text("/1000000")
    expect(row).to_contain_text("images/s")
    expect(row).to_contain_text("loss")

    # The store is outside of what Lab shows, and no extension shows TensorBoard.
    copy = row.get_by_role("button", name="Copy the path of a long run")
    expect(copy).to_be_visible()
    (folder / "tensorboard").mkdir()
    row.get_by_role("button", name="Open TensorBoard").click()
    expect(dialog).to_contain_text(f"tensorboard --logdir {folder}")
    dialog.get_by_role("button", name="Close").click()

    stop = row.get_by_role("button", name="Stop the run a long run")
    stop.click()
    expect(dialog).to_contain_text("Stop the run a long run?")
    dialog.get_by_role("button", name="Stop Run").click()

    expect(row).to_contain_text("stopped")
    expect(stop).to_have_count(0)
    wait_until(lambda: long.state is RunState.STOPPED, "the end of the run")


def test_a_run_is_among_the_running_things_of_lab_and_is_stopped_there(lab, page, run):
    server = lab("replay:no-gpu")
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
