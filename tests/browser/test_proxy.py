"""The sidebar behind a proxy that lets no websocket through."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.proxy import proxy
from tests.browser.sidebar import open_panel


def test_panel_names_a_proxy_that_blocks_websockets(shared_lab, page):
    server = shared_lab("replay:eight-gpus")
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
        visitor.close()
