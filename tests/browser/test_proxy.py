"""The sidebar behind a proxy that lets no websocket, and no frame, through."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.proxy import proxy
from tests.browser.sidebar import open_panel
from tests.server.curves import store_curves


def test_panel_names_a_proxy_that_blocks_websockets(shared_lab, page):
    server = shared_lab("replay:eight-gpus")
    store_curves(server)
    with proxy(server.port) as between:
        address = server.address().replace(f":{server.port}/", f":{between.port}/")
        visitor = page(address)
        panel = open_panel(visitor)
        note = panel.locator(".nbk-empty")
        expect(note).to_contain_text("No WebSocket")
        expect(note).to_contain_text("Upgrade, Connection and Host")

        between.drops_websockets = False
        panel.get_by_role("button", name="Try Now").click()
        expect(panel.locator(".nbk-connection")).to_have_text("live")
        expect(note).to_have_count(0)

        # Where no frame may show it, TensorBoard has a tab of the browser.
        row = panel.locator(".nbk-run", has_text="a run")
        with visitor.expect_popup() as opened:
            row.get_by_role("button", name="Open TensorBoard for a run").click()
        expect(opened.value.get_by_text("train/loss").first).to_be_visible()
        visitor.close()
