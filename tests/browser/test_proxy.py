"""The sidebar behind a proxy that lets no websocket through."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.proxy import proxy
from tests.browser.sidebar import card, open_panel
from tests.server.stored_runs import store_run


def test_without_websockets_values_come_by_polling(shared_lab, page):
    server = shared_lab("replay:eight-gpus")
    with proxy(server.port) as between:
        address = server.address().replace(f":{server.port}/", f":{between.port}/")
        visitor = page(address)
        panel = open_panel(visitor)
        state = panel.locator(".nbk-connection")

        expect(panel.locator(".nbk-empty")).to_contain_text("No WebSocket")
        expect(panel.locator(".nbk-empty")).to_contain_text(
            "Upgrade, Connection and Host"
        )
        expect(state).to_have_text("every 3 s")
        expect(panel.locator(".nbk-card")).to_have_count(8)
        expect(card(panel, 0).get_by_role("meter").first).to_contain_text("%")
        expect(panel.locator(".nbk-content.nbk-mod-old")).to_have_count(0)
        store_run(server.store, "20200101-000000-new")
        expect(panel.locator(".nbk-run")).to_have_count(1)
        with visitor.expect_response(lambda r: "/frames?stream=" in r.url) as asked:
            pass
        messages = asked.value.json()["messages"]
        [history] = [one for one in messages if one["type"] == "history"]
        assert history["since"] is not None

        between.drops_websockets = False
        panel.get_by_role("button", name="Try Now").click()
        expect(state).to_have_text("live")
        expect(panel.locator(".nbk-empty")).to_have_count(0)
        visitor.close()
