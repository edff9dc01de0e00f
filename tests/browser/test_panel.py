"""The panel shows what a trace plays, through a real server, and keeps up with it."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.sidebar import Frames, card, fold, open_panel, shown, until
from tests.browser.test_looks import look_at_eight_gpus


def test_eight_gpus_are_readable_and_live_as_long_as_somebody_sees_them(
    shared_lab, page
):
    visitor = page("about:blank")
    frames = Frames(visitor)
    panel = look_at_eight_gpus(shared_lab("replay:eight-gpus"), visitor, 250)

    shows_values_holders_and_details(visitor, panel)
    visitor.evaluate("jupyterapp.commands.execute('nbkit:open-panel')")
    expect(panel.get_by_role("button").first).to_be_focused()
    lets_the_stream_go_while_hidden(visitor, panel, frames)
    ends_the_stream_without_status_bar_and_panel(visitor, frames)


def shows_values_holders_and_details(visitor, panel):
    expect(panel.locator(".nbk-connection")).to_have_text("live")
    expect(panel.locator(".nbk-header")).to_contain_text("replay: eight-gpus")
    expect(panel.get_by_role("region", name="GPUs")).to_contain_text("/ 640 GiB")
    first = card(panel, 0)
    # Once for all, since they are alike.
    heading = panel.get_by_role("region", name="GPUs").locator(".nbk-heading")
    expect(heading).to_contain_text("8 × H100 80GB HBM3")
    expect(first).not_to_contain_text("H100")
    expect(first.get_by_role("meter", name="Memory of GPU 0")).to_contain_text(
        "/ 80 GiB"
    )
    meter = first.get_by_role("meter", name="Utilization of GPU 0")
    before = meter.inner_text()
    until(visitor, lambda: meter.inner_text() != before, "another utilization")

    expect(first).to_contain_text("resnet50, 4 GPUs")
    expect(card(panel, 4)).to_contain_text("explore.ipynb")
    expect(card(panel, 4)).to_contain_text("Idle kernel holds")
    # Of a recording, nothing can be opened or ended.
    recorded = card(panel, 4).locator(".nbk-holder")
    expect(recorded.get_by_title(re.compile("Recorded: explore"))).to_be_visible()
    expect(recorded.get_by_role("button")).to_have_count(0)
    expect(card(panel, 4)).to_contain_text(re.compile(r"for 1 h 3\d min"))
    expect(card(panel, 5)).to_contain_text("bob · outside37.1 GiB")

    toggle = first.locator(".nbk-toggle")
    expect(toggle).to_have_attribute("aria-expanded", "false")
    toggle.focus()
    visitor.keyboard.press("Enter")
    expect(toggle).to_have_attribute("aria-expanded", "true")
    expect(first.get_by_role("meter", name="Power of GPU 0")).to_contain_text("700 W")
    expect(first).to_contain_text("/ 1980 MHz")
    expect(first.locator(".nbk-axis")).to_have_text(["100%0%", re.compile("ago.*now")])
    first.get_by_text("Details").click()
    expect(first).to_contain_text("/ 2619 MHz")


def lets_the_stream_go_while_hidden(visitor, panel, frames):
    until(visitor, lambda: frames.of("sample"), "a sample")

    def hide(hidden):
        visitor.evaluate(
            """hidden => {
              Object.defineProperty(document, 'hidden',
                {configurable: true, get: () => hidden});
              document.dispatchEvent(new Event('visibilitychange'));
            }""",
            hidden,
        )

    hide(True)
    until(visitor, lambda: not frames.is_open, "the end of the stream")
    expect(panel.locator(".nbk-connection")).to_have_text("paused")
    known = max(frames.by_seq())
    hide(False)
    expect(panel.locator(".nbk-connection")).to_have_text("live")

    # It asks for what it missed, and goes on.
    until(
        visitor, lambda: frames.of("history")[-1]["since"] is not None, "what it missed"
    )
    assert frames.of("history")[-1]["since"] >= known
    until(visitor, lambda: max(frames.by_seq()) > known, "another sample")


def ends_the_stream_without_status_bar_and_panel(visitor, frames):
    item = visitor.locator(".nbk-status-button")

    def toggle_status_bar():
        visitor.get_by_role("menuitem", name="View", exact=True).click()
        visitor.locator(".lm-Menu-item", has_text="Appearance").click()
        visitor.locator(".lm-Menu-item", has_text="Show Status Bar").click()

    def is_closed():
        return not frames.is_open

    expect(item).to_contain_text("/8 busy")
    fold(visitor)
    toggle_status_bar()
    until(visitor, is_closed, "the end of the stream")
    open_panel(visitor)
    until(visitor, lambda: frames.is_open, "a new stream")
    expect(visitor.locator(".nbk-connection")).to_have_text("live")
    fold(visitor)
    until(visitor, is_closed, "the end of the stream")
    toggle_status_bar()
    until(visitor, lambda: frames.is_open, "a new stream")

    item.click()
    shown(visitor)
