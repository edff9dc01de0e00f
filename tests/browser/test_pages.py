"""A run has a page of its own in Lab, and a study's report one: without a kernel."""

from __future__ import annotations

import json
from typing import Any

from playwright.sync_api import Locator, Page, expect

from nbkit.store.record import RunState
from tests.browser.sidebar import open_panel, until
from tests.browser.test_live_view import AXE, grows, has_every_step_once
from tests.server.stored_runs import store_run
from tests.telemetry.traces import replay

RUN_ID = "20200101-000000-run-aaaa"


def tab_of(visitor: Page, name: str) -> Locator:
    return visitor.locator("#jp-main-dock-panel").get_by_role("tab", name=name)


def is_saved(server: Any, name: str) -> bool:
    """Return whether Lab has saved a layout with a tab: it does so now and then."""
    folder = server.folder / "workspaces"
    files = folder.iterdir() if folder.exists() else ()
    return any(name in file.read_text() for file in files)


def finds_nothing(visitor: Page, part: str) -> None:
    visitor.evaluate(AXE.read_text())
    found = visitor.evaluate("part => axe.run(part)", part)
    assert [(each["id"], each["help"]) for each in found["violations"]] == []


def test_a_run_is_followed_on_its_page_which_comes_back_and_stops_and_resumes_it(
    shared_lab, page, run
):
    server = shared_lab(replay("one-gpu"))
    started = run(server)
    visitor = page(server.address())
    row = open_panel(visitor).locator(".nbk-run", has_text="a long run")
    tab = tab_of(visitor, "a long run")
    view = visitor.locator(".nbkv-page")

    row.get_by_role("button", name="a long run", exact=True).click()
    expect(tab).to_have_attribute("aria-selected", "true")
    expect(view.get_by_role("heading", name="a long run")).to_be_visible()
    grows(visitor, view)
    has_every_step_once(visitor, view)
    config = view.locator(".nbkv-config > div > dl")
    expect(config).to_contain_text("batch_size_per_gpu4")
    expect(config).not_to_contain_text("seed")
    finds_nothing(visitor, ".nbkv-page")
    row.get_by_role("button", name="a long run", exact=True).click()
    expect(tab).to_have_count(1)

    until(visitor, lambda: is_saved(server, "nbkit-run"), "a saved layout")
    visitor.reload()
    expect(tab).to_have_count(1)
    grows(visitor, view)

    stop = view.get_by_role("button", name="Stop", exact=True)
    stop.click()
    visitor.keyboard.press("Escape")
    expect(stop).to_be_focused()
    assert not started.paths.stop.exists()
    stop.click()
    view.get_by_role("button", name="Stop the run").click()
    expect(view.locator(".nbkv-state")).to_have_text("stopped")
    expect(view.locator(".nbkv-cause")).to_contain_text("stopped by user")
    assert started.state is RunState.STOPPED

    view.get_by_role("button", name="Resume", exact=True).click()
    view.get_by_role("button", name="Resume the run").click()
    expect(view.locator(".nbkv-about")).to_contain_text("attempt 2")
    expect(view.locator(".nbkv-state")).to_have_text("running")
    started.stop()


def test_report_of_others_reaches_no_other_server(shared_lab, page):
    server = shared_lab(replay("no-gpu"))
    visitor = page("about:blank")
    picture = '<img alt="theirs" src="https://other.test/picture.png">'
    text = f"<!doctype html><title>Theirs</title><h1>Theirs</h1>{picture}"
    visitor.route(
        "**/nbkit/report/*", lambda it: it.fulfill(body=text, content_type="text/html")
    )
    asked = []
    visitor.route("https://other.test/**", lambda it: asked.append(it))
    visitor.goto(f"{server.address()}&nbkit-report=theirs")

    report = visitor.frame_locator(".jp-IFrame iframe")
    expect(report.get_by_role("heading", name="Theirs")).to_be_visible()
    expect(tab_of(visitor, "Theirs")).to_have_count(1)
    loaded = "it => it.complete && it.naturalWidth === 0"
    theirs = report.get_by_alt_text("theirs")
    until(visitor, lambda: theirs.evaluate(loaded), "the picture to be refused")
    assert asked == []


def test_a_link_opens_the_page_of_a_failed_run_and_text_of_runs_is_only_text(
    shared_lab, page
):
    server = shared_lab(replay("no-gpu"))
    folder = store_run(server.store, RUN_ID, "failed")
    record = json.loads((folder / "record.json").read_text())
    evil = "<img src=x onerror='window.evil=1'>"
    record |= {"name": evil, "cause": {"rank": 0, "message": evil, "traceback": evil}}
    (folder / "record.json").write_text(json.dumps(record))
    log = folder / "logs" / "0" / "0" / "stderr.log"
    log.parent.mkdir(parents=True)
    log.write_text("".join(f"line {n} {evil}\n" for n in range(1000)))

    link = f"{server.address()}&nbkit-run={RUN_ID}"
    visitor = page(link)
    view = visitor.locator(".nbkv-page")

    expect(view.locator(".nbkv-cause")).to_contain_text(evil)
    expect(view.get_by_role("heading", name=evil)).to_be_visible()
    expect(tab_of(visitor, evil)).to_have_attribute("aria-selected", "true")
    assert "nbkit-run" not in visitor.url
    text = view.get_by_label("Log of")
    expect(text).to_contain_text("line 999")
    expect(text).not_to_contain_text("line 499 ")
    view.get_by_role("button", name="Load earlier lines").click()
    expect(text).to_contain_text("line 0 ")
    assert visitor.evaluate("window.evil") is None

    # Lab gives a second tab a workspace of its own, and loads the address twice.
    second = visitor.context.new_page()
    second.goto(link)
    expect(second.locator(".nbkv-page .nbkv-cause")).to_contain_text(evil)
    second.close()

    visitor.goto(f"{link}b")
    gone = visitor.locator(".nbk-sentence")
    expect(gone).to_contain_text("is not in the store of this server")
    folder.rename(f"{folder}b")
    gone.get_by_role("button", name="Try Again").click()
    again = visitor.get_by_label(f"Run {RUN_ID}b", exact=True)
    expect(again.locator(".nbkv-cause")).to_contain_text(evil)
    expect(gone).to_have_count(0)
