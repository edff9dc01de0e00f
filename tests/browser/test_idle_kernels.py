"""A kernel whose widgets have nothing to say is as idle as one without widgets."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.rest import ask, settle
from tests.browser.sidebar import EXPOSED, until
from tests.browser.test_live_view import open_notebook, run_all, write
from tests.server.stored_runs import store_run

RUN_ID = "20200101-000000-run-aaaa"


def test_kernel_with_finished_view_form_and_table_stays_idle(lab, page):
    server = lab("replay:one-gpu", EXPOSED)
    store_run(server.store, RUN_ID)
    write(
        server,
        "a.ipynb",
        f"import nbkit\nnbkit.attach({RUN_ID!r})",
        "nbkit.ExperimentForm()",
        "nbkit.runs()",
    )
    visitor = page("about:blank", 1300, 2400)
    frames = []

    def follow(socket):
        if "/channels" in socket.url:
            socket.on("framesent", lambda text: frames.append(text))
            socket.on("framereceived", lambda text: frames.append(text))

    visitor.on("websocket", follow)
    visitor.clock.install()
    visitor.goto(server.address("lab/tree/a.ipynb"))
    open_notebook(visitor, "a.ipynb")
    run_all(visitor)
    expect(visitor.locator(".nbkv-state")).to_have_text("finished")
    expect(visitor.locator(".nbkf-bar")).to_contain_text("0 of 1 GPUs free")
    expect(visitor.locator(".nbkv-runs")).to_contain_text("1 to 1 of 1")
    settle(visitor, server, 1)

    def activity():
        (kernel,) = ask(server, "api/kernels")
        return kernel["last_activity"]

    def is_silent():
        before = len(frames), activity()
        visitor.clock.run_for(20_000)
        return (len(frames), activity()) == before

    until(visitor, is_silent, "the end of what the cells have caused")
    before = len(frames), activity()
    visitor.clock.run_for(120_000)

    assert (len(frames), activity()) == before
