"""Everything that can be wrong has a face of its own, and says what to do."""

from __future__ import annotations

import contextlib
import json
import re

import psutil
from playwright.sync_api import expect

from tests.browser.sidebar import Frames, no_dialogs, open_panel, until
from tests.telemetry.traces import replay

FACES = {
    "source cannot be used": ("GPU source cannot be used", "machine.jsonl"),
    "driver not loaded": ("GPU driver not loaded", "modprobe nvidia"),
    "no gpu": ("No GPU", "lspci"),
    "gpu lost": ("GPU lost", "dmesg"),
}

# A sampler that does not start as long as there is a file beside its script.
BREAKABLE = """
import runpy, sys
from pathlib import Path

if Path(__file__).with_name("broken").exists():
    sys.exit("no way to start")
runpy.run_module("nbkit.telemetry.feed", run_name="__main__", alter_sys=True)
"""


class Stream:
    """What a page receives: a server whose past is unknown, and whose time leaps."""

    def __init__(self, visitor):
        self.leap_seconds = 0
        self.is_refused = False
        self._sockets = []
        visitor.route_web_socket(re.compile("nbkit/api/stream"), self._route)

    def _route(self, socket):
        if self.is_refused:
            socket.close()
            return
        self._sockets.append(socket)
        server = socket.connect_to_server()
        socket.on_message(server.send)
        server.on_message(lambda text: socket.send(self._changed(text)))

    def _changed(self, text):
        message = json.loads(text)
        if message["type"] == "history":
            message["parts"] = []
        if "t" in message:
            message["t"] += self.leap_seconds
        return json.dumps(message)

    def refuse(self):
        self.is_refused = True
        for socket in self._sockets:
            socket.close()


def test_panel_after_a_pause_and_without_access(shared_lab, page):
    visitor = page("about:blank")
    stream = Stream(visitor)
    visitor.goto(shared_lab(replay("one-gpu")).address())
    panel = open_panel(visitor)
    line = panel.get_by_role("region", name="GPUs").locator(".nbk-sparkline-line")

    def num_lines():
        return (line.get_attribute("d") or "").count("M")

    until(visitor, lambda: num_lines() == 1, "a line")
    stream.leap_seconds = 100
    until(visitor, lambda: num_lines() == 2, "a gap in the line")

    visitor.route("**/nbkit/api/status*", lambda route: route.fulfill(status=403))
    stream.refuse()
    expect(panel.locator(".nbk-connection")).to_have_text("access denied")
    expect(panel).to_contain_text("Access denied")


def write_machine(path, reason):
    """Write the trace of a machine whose GPUs cannot be read."""
    header = {
        "kind": "header",
        "schema": 1,
        "t": 0.0,
        "hostname": "scripted",
        "interval_seconds": 1.0,
        "gpus_unavailable": reason,
    }
    path.write_text(json.dumps(header) + "\n")


def samplers(server):
    """Return the sampler's processes, of which there is one while somebody looks."""
    found = []
    for process in psutil.Process(server.process.pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if "--parent-fd" in process.cmdline():
                found.append(process)
    return found


def end_sampler(server):
    """End the sampler's process; another one takes its place after a moment."""
    for process in samplers(server):
        process.kill()


def test_panel_without_readable_gpus(lab, page, tmp_path):
    path = tmp_path / "machine.jsonl"
    server = lab(f"replay:{path}")
    visitor = page(server.address())
    panel = open_panel(visitor)
    region = panel.get_by_role("region", name="GPUs")
    note = region.locator(".nbk-empty")

    for reason, (title, advice) in FACES.items():
        if reason != "source cannot be used":
            write_machine(path, reason)
            end_sampler(server)
        expect(note.locator("strong")).to_contain_text(title)
        expect(note).to_contain_text(advice)
        expect(note).not_to_contain_text("last known")
        kind = "plain" if reason == "no gpu" else "error"
        expect(note).to_have_class(f"nbk-empty nbk-mod-{kind}")
        memory = panel.get_by_role("meter", name="Memory of the host")
        expect(memory).to_contain_text("/")
    expect(panel.get_by_role("region", name="Runs")).to_contain_text(
        f"No runs in {server.store}."
    )
    # The item is there, and has nothing to tell.
    expect(visitor.locator(".nbk-status")).to_have_count(1)
    expect(visitor.locator(".nbk-status")).to_be_hidden()


def asked_and_answered(visitor, button):
    """Press a button; return once the server has answered each try that follows."""
    frames, asked, answered = Frames(visitor), [], []
    for event, requests in (("request", asked), ("requestfinished", answered)):
        visitor.on(
            event,
            lambda request, known=requests: (
                known.append(request) if "nbkit/api/status" in request.url else None
            ),
        )
    button.click()
    until(
        visitor,
        lambda: (
            0 < frames.opened == len(asked)
            and all(request in answered for request in asked)
        ),
        "answers to every try",
    )


def goes_on_after_its_sampler_ends(server, panel, broken):
    # Its last values stay, and grow old.
    state = panel.locator(".nbk-connection")
    meter = panel.get_by_role("meter", name="Utilization of GPU 0")
    expect(meter).to_contain_text("%")
    expect(state).to_have_text("live")

    broken.touch()
    end_sampler(server)

    expect(state).to_have_text("sampler failed")
    expect(panel).to_contain_text("The sampler has failed")
    expect(panel).to_contain_text("exit code 1: no way to start")
    expect(panel.locator(".nbk-age")).to_contain_text("last values")
    expect(panel.locator(".nbk-content.nbk-mod-old")).to_have_count(1)
    expect(meter).to_contain_text("%")
    broken.unlink()
    expect(state).to_have_text("live")
    expect(panel.locator(".nbk-age")).to_have_count(0)


def test_panel_without_the_extension_and_then_without_a_sampler(lab, page, tmp_path):
    script = tmp_path / "feed.py"
    script.write_text(BREAKABLE)
    config = tmp_path / "without.json"
    enabled = {"ServerApp": {"jpserver_extensions": {"nbkit.server": False}}}
    config.write_text(json.dumps(enabled))
    server = lab(replay("one-gpu"), f"--config={config}")
    panel = open_panel(page(server.address()))
    note = panel.locator(".nbk-empty")
    expect(note).to_contain_text("Server extension missing")
    expect(note).to_contain_text("jupyter server extension enable nbkit.server")

    no_dialogs(panel.page)
    # The panel may try once more than what the status bar has been told of.
    asked_and_answered(panel.page, note.get_by_role("button", name="Try Now"))
    expect(note).to_contain_text("Server extension missing")
    server.stop()
    server.arguments.remove(f"--config={config}")
    server.arguments.append(f"--NbkitServer.feed_command={script}")
    server.start()
    # By itself, the page looks again only after minutes.
    expect(note).to_contain_text("Server extension missing")
    note.get_by_role("button", name="Try Now").click()

    expect(panel.locator(".nbk-connection")).to_have_text("live")
    expect(panel.locator(".nbk-card")).to_have_count(1)
    expect(note).to_have_count(0)
    goes_on_after_its_sampler_ends(server, panel, tmp_path / "broken")
