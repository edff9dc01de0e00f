"""Each setting is found by the gear and changes what is shown at once."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.sidebar import Frames, open_panel, until


def test_every_setting_is_obeyed_at_once(holding, page):
    server, _ = holding()
    server.set("nbkit:plugin", memoryUnit="GB", cards="compact")
    visitor = page("about:blank", width=1600)
    frames = Frames(visitor)
    visitor.goto(server.address())
    panel = open_panel(visitor)
    meter = panel.get_by_role("meter", name="Memory of GPU 0")
    toggle = panel.locator(".nbk-toggle")
    expect(meter).to_contain_text(" GB")
    expect(toggle).to_have_attribute("aria-expanded", "false")
    panel.get_by_role("button", name="nbkit settings").click()

    def field(name):
        return visitor.locator(f'[id$="_{name}"]')

    field("memoryUnit").select_option(label="GiB")
    expect(meter).to_contain_text(" GiB")
    field("cards").select_option(label="expanded")
    expect(toggle).to_have_attribute("aria-expanded", "true")

    # The kernel has been idle for an hour and a half.
    idle = panel.get_by_text("Idle kernel holds")
    expect(idle).to_be_visible()
    field("idleKernelMinutes").fill("600")
    expect(idle).to_have_count(0)
    field("idleKernelMinutes").fill("30")
    expect(idle).to_be_visible()
    field("idleKernelGigabytes").fill("500")
    expect(idle).to_have_count(0)

    hot = panel.get_by_text("hot: ")
    expect(hot).to_have_count(0)
    field("hotCelsius").fill("30")
    expect(hot).to_be_visible()

    for name, part in [
        ("showSparklines", panel.locator(".nbk-sparkline")),
        ("showHolders", panel.locator(".nbk-holder")),
        ("showRuns", panel.get_by_role("region", name="Runs")),
        ("showHost", panel.get_by_role("region", name="Host")),
        ("showStatusBar", visitor.locator(".nbk-status-button")),
    ]:
        expect(part.first).to_be_visible()
        field(name).uncheck()
        expect(part.filter(visible=True)).to_have_count(0)

    # The panel asks for fewer samples, and the status bar no longer for more.
    field("intervalSeconds").fill("30")
    wish = {"type": "interval", "interval_seconds": 30}
    until(visitor, lambda: wish in frames.sent, "the wish for fewer samples")
