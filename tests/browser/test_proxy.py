"""The sidebar behind proxies that allow no websocket, or no frame."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.proxy import proxy
from tests.browser.sidebar import open_panel
from tests.server.curves import ECHO, RUN_ID, store_curves


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


def test_tensorboard_is_in_a_frame_unless_a_header_forbids_it(lab, page):
    server = lab("replay:no-gpu", ECHO)
    store_curves(server)
    for header, is_framed in (
        # Browsers ignore it beside the server's own frame-ancestors.
        (b"X-Frame-Options: DENY\r\n", True),
        (b"Content-Security-Policy: frame-ancestors 'none'\r\n", False),
    ):
        with proxy(server.port) as between:
            between.drops_websockets, between.header = False, header
            address = server.address().replace(f":{server.port}/", f":{between.port}/")
            visitor = page("about:blank")
            with visitor.expect_response("**/nbkit/tensorboard/frame") as tried:
                visitor.goto(address)
                row = open_panel(visitor).locator(".nbk-run", has_text="a run")
            assert header.split(b":")[0].decode().lower() in tried.value.headers
            # Until then the page does not know.
            expect(visitor.locator("iframe[hidden]")).to_have_count(0)
            button = row.get_by_role("button", name="Open TensorBoard for a run")
            if is_framed:
                button.click()
                curves = visitor.frame_locator('iframe[title="TensorBoard: a run"]')
            else:
                with visitor.expect_popup() as opened:
                    button.click()
                opened.value.wait_for_url(f"**/nbkit/tensorboard/{RUN_ID}/")
                curves = opened.value
            expect(curves.locator("body")).to_contain_text('"path"')
            visitor.context.close()
