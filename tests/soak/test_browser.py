"""Rare states, looks and curves in a real browser."""

from __future__ import annotations

import datetime
import itertools
import json
import lzma
import os
import re
import shutil
import socket
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

import nbkit
from nbkit.live.browser_part import WORDS
from nbkit.store.metrics import to_json_line
from nbkit.store.paths import RunPaths
from nbkit.store.processes import hostname
from nbkit.store.record import RunState, read_json, utc_now, write_json
from nbkit.telemetry.replay import open_replay
from nbkit.telemetry.sample import GpuSample, HostSample, Sample
from nbkit.widgets.form_fields import Control, fields_of
from tests.browser.conftest import (
    browser,
    holding,
    lab,
    lasting_labs,
    page,
    plugins,
    run,
    shared_lab,
)
from tests.browser.hub import ALICE, CAROL
from tests.browser.rest import ask, kernels, settle, start_kernel
from tests.browser.sidebar import (
    EXPOSED,
    Frames,
    card,
    cut_off,
    no_dialogs,
    open_notebook_7,
    open_panel,
    shown,
    until,
)
from tests.browser.test_form import CONTROLS, Notebook, opened
from tests.browser.test_hub import LAUNCH as LAUNCH_ON_HUB
from tests.browser.test_hub import alice, store_of, users
from tests.browser.test_live_view import (
    ATTACH,
    AXE,
    LAUNCH,
    MANAGER,
    RUNS,
    command,
    grows,
    has_every_step_once,
    open_notebook,
    run_all,
    stops_by_its_button,
    write,
)
from tests.browser.test_looks import look, look_at_eight_gpus
from tests.browser.test_pages import is_saved, tab_of
from tests.golden.studies import FOLDER, STORED
from tests.hostile.strangers import needs_root
from tests.server.curves import ECHO, RUN_ID, boards, store_curves
from tests.server.stored_runs import store_run, write_scalars
from tests.soak.proxy import proxy
from tests.soak.test_waiting_runs import forget
from tests.telemetry.traces import TRACES, replay
from tests.waiting import wait_until
from tests.widgets.stored_run import step

__all__ = [
    "alice",
    "browser",
    "holding",
    "lab",
    "lasting_labs",
    "opened",
    "page",
    "plugins",
    "run",
    "shared_lab",
    "users",
]


def test_gpus_that_are_hidden_on_purpose_are_no_fault(lab, page):
    server = lab(replay("one-gpu"), CUDA_VISIBLE_DEVICES="-1")
    note = open_panel(page(server.address())).locator(".nbk-empty")

    expect(note).to_contain_text("All GPUs are hidden")
    expect(note).to_contain_text("CUDA_VISIBLE_DEVICES")
    expect(note).to_have_class("nbk-empty nbk-mod-plain")


def test_a_hanging_driver_is_said_with_its_age_and_the_host_goes_on(
    lab, page, tmp_path
):
    trace = (TRACES / "hung-call.jsonl").read_text()
    path = tmp_path / "hung.jsonl"
    path.write_text(re.sub(r'("kind":"hang","seconds":)\d+', r"\g<1>15", trace))
    assert path.read_text() != trace
    panel = open_panel(page(lab(f"replay:{path}").address()))

    expect(panel).to_contain_text("Driver not answering for")
    expect(panel).to_contain_text("The values below are the last known ones")
    meter = card(panel, 0).get_by_role("meter", name="Memory of GPU 0")
    expect(meter).to_contain_text("GiB")
    expect(panel.locator(".nbk-card.nbk-mod-old")).to_have_count(1)
    expect(panel.locator(".nbk-connection")).to_have_text("live")
    expect(panel).not_to_contain_text("Driver not answering")


def test_a_visitor_who_may_no_longer_look_is_told_so_and_may_log_in_again(lab, page):
    server = lab(replay("one-gpu"))
    visitor = page(server.address())
    panel = open_panel(visitor)
    expect(panel.locator(".nbk-card")).to_have_count(1)

    no_dialogs(visitor)
    server.stop()
    (server.folder / "runtime" / "jupyter_cookie_secret").unlink()
    server.arguments.append("--PasswordIdentityProvider.token=another")
    server.start()
    expect(panel).to_contain_text("Access denied")

    visitor.context.new_page().goto(f"{server.url}tree?token=another")
    panel.get_by_role("button", name="Try Now").click()
    expect(panel.locator(".nbk-connection")).to_have_text("live")
    expect(panel).not_to_contain_text("Access denied")


def test_a_store_that_cannot_be_read_or_hangs_is_said_until_it_answers(
    lab, page, tmp_path
):
    settings = tmp_path / "more" / "jupyter_server_config.d" / "hanging_store.json"
    settings.parent.mkdir(parents=True)
    extensions = {"ServerApp": {"jpserver_extensions": {"hanging_store": True}}}
    settings.write_text(json.dumps(extensions))
    server = lab(replay("no-gpu"), JUPYTER_CONFIG_PATH=str(tmp_path / "more"))
    store_run(server.store, "20200101-000000-old")
    runs, kept = server.store / "runs", server.store / "kept"
    runs.rename(kept)
    runs.write_text("not a folder")
    visitor = page(server.address())
    first = open_panel(visitor).get_by_role("region", name="Runs")
    expect(first).to_contain_text("The runs cannot be read: NotADirectoryError")
    visitor.close()
    runs.unlink()
    kept.rename(runs)
    panel = open_panel(page(server.address()))
    region = panel.get_by_role("region", name="Runs")
    expect(region.locator(".nbk-run")).to_have_count(1)
    fault = region.get_by_text("The list is not updated")

    runs.rename(kept)
    runs.write_text("not a folder")
    expect(fault).to_contain_text("NotADirectoryError")
    expect(region.locator(".nbk-run")).to_contain_text("a run")
    runs.unlink()
    kept.rename(runs)
    expect(fault).to_have_count(0)

    # What is read from this folder comes late, as from a file server that hangs.
    newer = runs / "20200102-000000-new"
    newer.mkdir()
    (newer / "hangs").touch()
    expect(fault).to_contain_text("the store has not responded for 10 s")
    expect(region.locator(".nbk-run")).to_have_count(1)
    expect(panel.locator(".nbk-connection")).to_have_text("live")
    (newer / "hangs").unlink()
    expect(fault).to_have_count(0)
    expect(region.locator(".nbk-run")).to_have_count(2)


def test_axe_finds_nothing_in_instances_and_nothing_is_cut_off(shared_lab, page):
    server = shared_lab(replay("mig"))
    server.set("nbkit:plugin", cards="expanded")
    visitor = page(server.address())
    panel = open_panel(visitor)
    expect(panel.locator(".nbk-cores")).to_be_visible()
    expect(panel).to_contain_text("2g.20gb")

    look(visitor)


def test_a_lost_gpu_keeps_its_card_and_the_others_go_on(lab, page):
    server = lab(replay("lost-gpu"), EXPOSED)
    server.set("nbkit:plugin", cards="expanded")
    visitor = page(server.address())
    panel = open_panel(visitor)

    lost = panel.locator(".nbk-card", has_text="gpu lost")
    expect(lost).to_contain_text("fallen off the bus")
    expect(panel.get_by_role("meter", name="Utilization of GPU").first).to_be_visible()
    expect(panel.locator(".nbk-cores")).to_be_visible()
    look(visitor)

    # The system's chosen colours leave bars, dot and swatches in sight.
    visitor.emulate_media(forced_colors="active")
    page_colour, *colours = panel.evaluate(
        """panel => [
          [panel], ...['.nbk-meter-fill', '.nbk-connection', '.nbk-key']
            .map(name => [panel.querySelector(name), name !== '.nbk-meter-fill'])
        ].map(([part, isBefore]) =>
          getComputedStyle(part, isBefore ? '::before' : null).backgroundColor)"""
    )
    assert page_colour not in colours


def test_eight_gpus_are_readable_in_a_wide_sidebar(shared_lab, page):
    look_at_eight_gpus(shared_lab("replay:eight-gpus"), page("about:blank"), 430)


def test_a_run_that_is_not_finite_says_so_in_both_themes(shared_lab, page):
    server = shared_lab(replay("no-gpu"))
    lines = [step(number, loss=None if number > 2 else 1.0) for number in range(1, 7)]
    for state in ("finished", "running"):
        folder = store_run(server.store, f"20200101-000000-{state}-aaaa", state)
        (folder / "metrics.jsonl").write_text("".join(map(to_json_line, lines)))
    visitor = page(server.address())
    panel = open_panel(visitor)
    rows = panel.locator(".nbk-run", has_text="loss not finite at step 3")

    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("running")
    expect(rows.last).to_contain_text("finished")
    expect(rows.locator(".nbk-state")).to_have_text(["▲", "▲"])
    look(visitor)
    visitor.locator('.jp-SideBar [data-id="jp-running-sessions"]').click()
    running = visitor.locator("#jp-running-sessions")
    expect(running).to_contain_text("running · loss not finite at step 3")


def test_a_restarted_server_is_found_again_and_a_run_has_gone_on_with_its_past(
    lab, page, run
):
    server = lab(replay("one-gpu"))
    panel = open_panel(page(server.address()))
    long = run(server, device="replay")
    row = panel.locator(".nbk-run", has_text="a long run")
    mark = card(panel, 0).locator(".nbk-sparkline-mark.nbk-mod-start")
    expect(row).to_contain_text("images/s")
    expect(mark).to_have_count(1)
    expect(card(panel, 0).locator(".nbk-holders")).to_contain_text("a long run")

    def step():
        found = re.search(r"step ([\d,]+)/", row.inner_text())
        return int(found[1].replace(",", "")) if found else 0

    def begin_of_line():
        """Return from when on the host's past is drawn, in Unix seconds."""
        host = panel.get_by_role("slider", name="CPU of the host")
        first, last, count, line = host.evaluate(
            """plot => ['min', 'max'].map(name =>
              Number(plot.getAttribute('aria-value' + name)))
              .concat(plot.querySelector('svg').viewBox.baseVal.width)
              .concat(plot.querySelector('.nbk-sparkline-edge').getAttribute('d'))"""
        )
        found = re.match(r"M(\d+) ", line)
        return first + (last - first) * int(found[1]) / count if found else last

    state = panel.locator(".nbk-connection")
    server.stop()
    expect(state).to_have_text("disconnected")
    expect(panel.locator(".nbk-age")).to_contain_text("last values")
    expect(panel).to_contain_text("The values below are the last known ones")
    expect(panel.locator(".nbk-content.nbk-mod-old")).to_have_count(1)
    before, restarted = step(), time.time()
    server.start()

    expect(state).to_have_text("live")
    expect(panel.locator(".nbk-card")).to_have_count(1)
    until(panel.page, lambda: step() > before, "progress")
    until(panel.page, lambda: begin_of_line() < restarted, "the past of the host")
    expect(mark).to_have_count(1)
    assert not long.state.is_final


STREAM = re.compile("nbkit/api/stream")


def test_a_reload_shows_the_past_before_the_first_sample_comes(shared_lab, page):
    visitor = page(shared_lab(replay("one-gpu")).address())
    frames = Frames(visitor)
    visitor.reload()
    open_panel(visitor)
    until(visitor, lambda: len(frames.of("sample")) >= 5, "five samples")

    def hold_samples(socket):
        server = socket.connect_to_server()
        socket.on_message(server.send)
        server.on_message(
            lambda text: json.loads(text)["type"] == "sample" or socket.send(text)
        )

    visitor.route_web_socket(STREAM, hold_samples)
    visitor.reload()
    panel = shown(visitor)

    meter = panel.get_by_label("Utilization of GPU 0").first
    expect(meter).to_contain_text("–")
    line = panel.locator(".nbk-card .nbk-sparkline-edge")
    expect(line).to_have_attribute("d", re.compile(r"^M\d+ \d+L"))
    expect(panel.locator(".nbk-legend").first).to_contain_text(
        re.compile(r"last \d+ s")
    )


def test_a_long_interval_brings_fewer_samples_without_gaps_and_with_true_ages(
    lab, page
):
    server = lab(replay("one-gpu"))
    server.set("nbkit:plugin", intervalSeconds=2)
    visitor = page("about:blank")
    frames = Frames(visitor)
    visitor.goto(server.address())
    panel = open_panel(visitor)
    wish = {"type": "interval", "interval_seconds": 2}
    until(visitor, lambda: wish in frames.sent, "the wish for fewer samples")
    begun = len(frames.of("sample"))
    # One may have been on its way.
    until(visitor, lambda: len(frames.of("sample")) >= begun + 3, "three samples")

    times = [sample["t"] for sample in frames.of("sample")[begun + 1 :]]
    assert min(b - a for a, b in itertools.pairwise(times)) > 1.5
    expect(panel.locator(".nbk-card.nbk-mod-old")).to_have_count(0)
    expect(panel.locator(".nbk-age")).to_have_count(0)
    # One stretch: what was not sampled is no gap.
    line = panel.locator(".nbk-card .nbk-sparkline-edge")
    expect(line).to_have_attribute("d", re.compile(r"^M[^M]+$"))

    server.stop()
    newest = frames.of("sample")[-1]["t"]
    age = panel.locator(".nbk-age")

    def age_seconds():
        return int(re.search(r"last values (\d+) s ago", age.inner_text())[1])

    expect(age).to_contain_text("last values")
    until(visitor, lambda: age_seconds() > 4, "values that grow old")
    shown_seconds = age_seconds()
    assert shown_seconds <= time.time() - newest + 1


def test_a_clock_that_is_set_back_is_followed_and_makes_no_value_old(lab, page):
    server = lab(replay("one-gpu"))
    visitor = page("about:blank")
    passed = []

    def set_back_after_three(socket):
        origin = socket.connect_to_server()
        socket.on_message(origin.send)

        def pass_on(text):
            message = json.loads(text)
            if len(passed) >= 3:
                message["t"] -= 3600
            if message["type"] == "sample":
                passed.append(message)
            socket.send(json.dumps(message))

        origin.on_message(pass_on)

    visitor.route_web_socket(STREAM, set_back_after_three)
    visitor.goto(server.address())
    panel = open_panel(visitor)
    until(visitor, lambda: len(passed) >= 5, "samples of before and after")
    plot = card(panel, 0).get_by_role("slider", name="Utilization of GPU 0")

    def end_seconds():
        return int(plot.get_attribute("aria-valuemax"))

    until(visitor, lambda: end_seconds() < time.time() - 3000, "the page's new time")
    expect(plot).to_have_attribute("aria-valuetext", re.compile("mean"))
    server.stop()

    expect(panel.locator(".nbk-age")).to_have_text(re.compile(r"last values \d+ s ago"))


def test_a_read_only_server_says_so_and_lets_nobody_end_a_kernel(holding, page):
    server, _ = holding("--NbkitServer.read_only=True")
    visitor = page(server.address())
    panel = open_panel(visitor)

    button = panel.get_by_role("button", name="Shut down the kernel of train.ipynb")
    expect(button).to_have_attribute("title", re.compile("read-only"))
    expect(button).to_have_attribute("aria-disabled", "true")
    expect(panel.locator(".nbk-header")).to_contain_text("read-only")


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


def test_curves_that_somebody_sees_stay_and_come_back_by_themselves(lab, page):
    server = lab(replay("no-gpu"), "--NbkitServer.tensorboard_idle_seconds=6")
    store_curves(server)
    visitor = page(server.address())
    posted = []
    visitor.on("response", lambda answer: posted.append(answer))
    row = open_panel(visitor).locator(".nbk-run", has_text="a run")
    address = f"{server.url}nbkit/tensorboard/{RUN_ID}/"
    curves = visitor.frame_locator('iframe[title="TensorBoard: a run"]')

    def opened():
        return [one for one in posted if f"api/runs/{RUN_ID}/tensorboard" in one.url]

    row.get_by_role("button", name="Open TensorBoard for a run").click()
    expect(curves.get_by_text("train/loss").first).to_be_visible()
    (board,) = boards(server)
    # Three times within the idle time, and for longer than that.
    until(visitor, lambda: len(opened()) >= 6, "a page that tells that it is seen")
    assert board.is_running()

    with visitor.expect_response(address) as loaded:
        board.kill()
    assert loaded.value.status == 200
    expect(curves.get_by_text("train/loss").first).to_be_visible()

    visitor.get_by_role("menuitem", name="File", exact=True).click()
    visitor.get_by_text("New Launcher").click()
    until(visitor, lambda: not boards(server), "its end where nobody sees it")


def test_notebook_7_has_the_panel_and_opens_curves_in_a_tab_of_the_browser(
    shared_lab, page
):
    server = shared_lab(replay("one-gpu"))
    store_curves(server)
    visitor = open_notebook_7(server, page)
    panel = visitor.locator("#nbkit-panel")
    row = panel.locator(".nbk-run", has_text="a run")
    expect(panel.locator(".nbk-card")).to_have_count(1)

    with visitor.expect_popup() as opened:
        row.get_by_role("button", name="Open TensorBoard for a run").click()

    expect(opened.value.get_by_text("train/loss").first).to_be_visible()
    assert "/nbkit/tensorboard/" in opened.value.url
    settle(visitor, server, 1)


def test_lab_without_the_panel_has_the_tiles_and_no_error(lab, page, tmp_path):
    config = tmp_path / "more" / "labconfig" / "page_config.json"
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps({"disabledExtensions": {"nbkit:plugin": True}}))
    server = lab(replay("no-gpu"), JUPYTER_CONFIG_PATH=str(tmp_path / "more"))
    visitor = page("about:blank")
    logged = []
    visitor.on("console", lambda it: logged.append((it.type, it.text)))
    visitor.goto(server.address())

    tiles = visitor.locator(".jp-LauncherCard[data-category='nbkit']")
    expect(tiles.first).to_be_visible()
    expect(visitor.locator("#jupyterlab-splash")).to_have_count(0)
    expect(visitor.locator('.jp-SideBar [data-id="nbkit-panel"]')).to_have_count(0)
    faults = [text for kind, text in logged if kind == "error" and "nbkit" in text]
    assert faults == []


def test_lines_of_eight_runs_differ_in_the_systems_chosen_colours(shared_lab, page):
    server = shared_lab(replay("no-gpu"))
    runs = [{"run_id": f"20200101-000000-{n}-aaaa", "name": None} for n in range(8)]
    for n, each in enumerate(runs):
        lines = [step(number, loss=number + n) for number in range(1, 9)]
        metrics = store_run(server.store, each["run_id"]) / "metrics.jsonl"
        metrics.write_text("".join(map(to_json_line, lines)))
    visitor = page(f"{server.address()}&nbkit-run={runs[0]['run_id']}", 1440)
    view = visitor.locator(".nbkv-page")
    expect(view.locator(".nbkv-state")).to_have_text("finished")
    visitor.evaluate(
        """runs => document.dispatchEvent(
          new CustomEvent('nbkit:compare', {detail: {runs}, cancelable: true}))""",
        runs,
    )
    chart = view.locator(".nbkv-chart", has_text="Loss")
    expect(chart.locator(".nbkv-chart-line")).to_have_count(8)

    visitor.emulate_media(forced_colors="active")
    # At once: a chart that is drawn again has other lines.
    looks = chart.evaluate(
        """chart => [...chart.querySelectorAll('.nbkv-chart-line')]
          .map(line => getComputedStyle(line))
          .map(({stroke, strokeDasharray}) => [stroke, strokeDasharray])"""
    )
    ground = view.evaluate("view => getComputedStyle(view).backgroundColor")
    assert len({*map(tuple, looks)}) == 8
    assert ground not in {colour for colour, _ in looks}


def test_a_tensorboard_that_does_not_start_says_why_and_what_else_shows_curves(
    lab, page, tmp_path
):
    broken = tmp_path / "broken.py"
    broken.write_text("raise SystemExit('no space left')")
    store = tmp_path / "lab0" / "root" / "store"
    server = lab(
        replay("no-gpu"),
        f"--NbkitServer.tensorboard_command={broken}",
        EXPOSED,
        NBKIT_HOME=str(store),
    )
    folder = store_run(store, RUN_ID)
    write_scalars(folder, "train/loss", [1.0])
    visitor = page(server.address())
    row = open_panel(visitor).locator(".nbk-run", has_text="a run")
    button = row.get_by_role("button", name="Open TensorBoard for a run")
    dialog = visitor.locator(".jp-Dialog")

    button.click()
    expect(dialog).to_contain_text("exit code 1: no space left")
    expect(dialog).to_contain_text(f"tensorboard --logdir {folder / 'tensorboard'}")
    dialog.get_by_role("button", name="Close").click()
    expect(visitor.get_by_role("tab", name="TensorBoard")).to_have_count(0)

    # Another extension shows them only where a person chooses it.
    visitor.evaluate(
        """() => {
          window.shown = [];
          jupyterapp.commands.addCommand('tensorboard:create-new',
            {execute: ({cwd}) => { window.shown.push(cwd); }});
        }"""
    )
    button.click()
    expect(dialog).to_contain_text("exit code 1: no space left")
    expect(dialog).to_contain_text("a port that every user of the machine can reach")
    assert visitor.evaluate("shown") == []
    dialog.get_by_role("button", name="Open with Another Extension").click()

    opened = [f"store/runs/{RUN_ID}"]
    until(visitor, lambda: visitor.evaluate("shown") == opened, "the other extension")


CURVED = [f"2020010{number}-000000-run-aaa{number}" for number in (1, 2)]


QUEUED = "20200103-000000-waits-aaaa"


STUDY = "20200105-000000-fp16-aaaa"


def _store_queued_run(store):
    paths = RunPaths(store_run(store, QUEUED, "queued", stop_grace_seconds=5))
    reason = "2 of 2 GPUs are held: 2020-train of user ann holds GPU 0 and 1"
    queue = {"position": 2, "length": 3, "reason": reason, "since": utc_now()}
    record = {**(read_json(paths.record) or {}), "name": "waits", "queue": queue}
    write_json(paths.record, {**record, "launch": {"devices": []}})
    return paths


def test_a_queued_run_and_curves_of_several_runs_are_one_click_away(shared_lab, page):
    server = shared_lab(replay("no-gpu"))
    for run_id in CURVED:
        store_curves(server, run_id)
    queued = _store_queued_run(server.store)
    study = server.store / "studies" / STUDY / "study.json"
    study.parent.mkdir(parents=True)
    runs = [{"arm": "fp16", "repeat": 0, "run_id": CURVED[0]}]
    study.write_text(json.dumps({"name": "FP16", "runs": runs}))
    visitor = page(server.address())
    panel = open_panel(visitor)
    row = panel.locator(".nbk-run", has_text="waits")
    dialog = visitor.locator(".jp-Dialog")

    expect(row).to_contain_text("queued")
    expect(row).to_contain_text("position 2 of 3")
    expect(row).to_contain_text("2020-train of user ann holds GPU 0 and 1")
    row.get_by_role("button", name="Stop the run waits").click()
    expect(dialog).to_contain_text("is removed from the queue and does not start")
    dialog.get_by_role("button", name="Stop Run").click()
    until(visitor, queued.stop.exists, "the request to stop")

    panel.get_by_role("button", name="Open TensorBoard for all runs").click()
    curves = visitor.frame_locator('iframe[title="TensorBoard: all runs"]')
    expect(
        visitor.get_by_text("shows 2 of 3 runs: the newest of").first
    ).to_be_visible()
    for run_id in CURVED:
        expect(curves.get_by_text(run_id).first).to_be_visible()

    visitor.keyboard.press("Control+Shift+C")
    palette = visitor.locator('[data-command="nbkit:tensorboard-study"]')
    palette.filter(visible=True).click()
    expect(dialog).to_contain_text("TensorBoard for Which Study?")
    expect(dialog).to_contain_text(f"FP16 ({STUDY})")
    dialog.get_by_role("button", name="Ok").click()
    curves = visitor.frame_locator('iframe[title="TensorBoard: study FP16"]')
    expect(curves.get_by_text("fp16 1 aaa1").first).to_be_visible()
    assert len(boards(server)) == 2


def test_curves_are_drawn_in_a_tab_of_the_browser(users, alice, page):
    visitor = page(users.url)
    users.log_in(visitor, ALICE)
    panel = open_panel(visitor)
    expect(panel.locator(".nbk-card")).to_have_count(1)
    row = panel.locator(".nbk-run", has_text="a run")

    # Points come by a POST, which a hub asks about before it knows who posts.
    points = "**/timeSeries"
    with visitor.expect_popup() as opened:
        row.get_by_role("button", name="Open TensorBoard for a run").click()
    curves = opened.value
    with curves.expect_response(points) as answered:
        expect(curves.get_by_text("train/loss").first).to_be_visible()

    assert answered.value.status == 200
    # The table below a curve has its last point.
    expect(curves.get_by_text("2 sec")).to_be_visible()


@needs_root
def test_a_run_that_went_with_its_container_is_unknown_and_can_be_resumed(
    users, monkeypatch
):
    carol = users.start(CAROL)
    monkeypatch.setenv("NBKIT_HOME", str(store_of(carol)))
    carol.execute(LAUNCH_ON_HUB)
    run = nbkit.runs()[0]
    path = f"nbkit/api/runs/{run.run_id}"
    wait_until(lambda: run.paths.has_checkpoint, "a checkpoint")

    users.stop(CAROL)
    steps = len(run.metrics())
    forget(run)
    again = users.start(CAROL)

    wait_until(lambda: again.request(path)[1]["state"] == "unknown", "it to be seen")
    seen = again.request(path)[1]
    assert "is not visible from" in seen["cause"]
    assert len(run.metrics()) == steps
    again.execute(f"import nbkit; nbkit.attach({run.run_id!r}).resume(force=True)")
    wait_until(lambda: len(run.metrics()) > steps, "a step of the second attempt")
    # The server notices a moment later.
    wait_until(lambda: again.request(path)[1]["state"] == "running", "it to be seen")
    assert again.request(f"{path}/stop", {})[0] == 202
    wait_until(lambda: again.request(path)[1]["state"] == "stopped", "its end")
    assert run.attempt == 1
    users.stop(CAROL)


ROOT = Path(__file__).parents[2]
SOURCES = [*ROOT.glob("labextension/src/*.ts*"), *ROOT.glob("nbkit/*/static/*.js")]


LITERAL = r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""


ONE = re.compile(rf"trans\s*\.__\(\s*{LITERAL}")


SEVERAL = re.compile(rf"trans\s*\._n\(\s*{LITERAL},\s*{LITERAL}")


# Longer than English, as most languages are, and marked at both ends.
TRANSLATED = "[{} äöü]"


def texts() -> dict[str, list[str]]:
    """Return a catalogue of all texts that extension and widgets have translated."""
    found: dict[str, list[str]] = {}
    for path, source in [*((path, path.read_text()) for path in SOURCES), ("", WORDS)]:
        asked = len(re.findall(r"trans\s*\.(?:__|_n)\(", source))
        groups = [(text,) for text in ONE.findall(source)] + SEVERAL.findall(source)
        assert len(groups) == asked, f"{path}: a text that is no literal"
        for group in groups:
            plain = [re.sub(r"\\(.)", r"\1", text[1:-1]) for text in group]
            found[plain[0]] = [TRANSLATED.format(text) for text in plain]
    return found


def write_language_pack(folder: Path) -> None:
    """Write an installed package that brings nbkit's texts in a language."""
    package = folder / "jupyterlab_language_pack_de_DE"
    catalogue = package / "locale/de_DE/LC_MESSAGES/nbkit.json"
    catalogue.parent.mkdir(parents=True)
    (package / "__init__.py").touch()
    about = {
        "domain": "nbkit",
        "language": "de-DE",
        "plural_forms": "nplurals=2; plural=(n != 1);",
    }
    catalogue.write_text(json.dumps({"": about, **texts()}))
    described = folder / "jupyterlab_language_pack_de_DE-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: jupyterlab-language-pack-de-DE\nVersion: 1.0\n"
    )
    (described / "entry_points.txt").write_text(
        "[jupyterlab.languagepack]\nde_DE = jupyterlab_language_pack_de_DE\n"
    )


# What others have written is data.
SPOKEN = """(panel, data) => {
  const said = [];
  const walker = document.createTreeWalker(panel, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode;
    if (!data || !text.parentElement.closest(data)) said.push(text.data);
  }
  for (const one of panel.querySelectorAll('[aria-label], [title], [placeholder]'))
    for (const name of ['aria-label', 'title', 'placeholder'])
      said.push(one.getAttribute(name) ?? '');
  return said;
}"""


def words_of(text: str) -> set[str]:
    """Return the words of a text, without numbers and short ones such as units."""
    return set(re.findall(r"[A-Za-z]{3,}", text))


def named_in(trace: str) -> set[str]:
    """Return the words that are names: of GPUs, users, programs and files."""
    lines = (TRACES / f"{trace}.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    named = [each for row in rows for each in row.get("devices", [])]
    named += [each for row in rows for each in (row.get("by_pid") or {}).values()]
    keys = ("name", "uuid", "user", "command", "path")
    return words_of(json.dumps([each.get(key) for each in named for key in keys]))


def left_in_english(said: list[str]) -> set[str]:
    """Return the words outside of translated texts."""
    words = set()
    for text in said:
        while (shorter := re.sub(r"\[[^\[\]]*äöü\]", " ", text)) != text:
            text = shorter
        words |= words_of(text)
    return words


def test_panel_and_widgets_speak_the_language_of_the_page(lab, page, run, tmp_path):
    write_language_pack(tmp_path / "packs")
    path = os.pathsep.join(
        filter(None, [str(tmp_path / "packs"), os.environ.get("PYTHONPATH")])
    )
    server = lab(replay("throttling"), EXPOSED, PYTHONPATH=path)
    server.set("@jupyterlab/translation-extension:plugin", locale="de_DE")
    server.set("nbkit:plugin", cards="expanded")
    write(server, "a.ipynb", ATTACH, RUNS, "nbkit.ExperimentForm()")
    started = run(server)
    visitor = page(server.address())
    panel = open_panel(visitor)
    expect(panel.locator(".nbk-run", has_text="a long run")).to_contain_text("images/s")
    expect(panel).to_contain_text("power cap äöü]")
    expect(panel.locator(".nbk-cores")).to_be_visible()

    names = words_of(f"a long run {started.run_id} {socket.gethostname()}")
    said = panel.evaluate(SPOKEN)
    assert left_in_english(said) <= named_in("throttling") | names
    assert cut_off(panel) == []

    open_notebook(visitor, "a.ipynb")
    run_all(visitor)
    view = visitor.locator(".nbkv:not(.nbkv-runs)")
    expect(view.locator(".nbkv-state")).to_have_text("[running äöü]")
    expect(view.locator(".nbkv-words")).to_contain_text("[running for ")
    table = visitor.locator(".nbkv-runs")
    expect(table.locator("tbody")).to_contain_text("[running äöü]")
    data = ".nbkv-config dl, .nbkv-facts dd, .nbkv-log pre, option"
    for widget in (view, table):
        shown = left_in_english(widget.evaluate(SPOKEN, data))
        assert shown <= names | {"PNG", "CSV", "TensorBoard", "GiB", "min"}
    # Names, meanings and errors of its fields are those of the Python class.
    bar = visitor.locator(".nbkf-bar")
    expect(bar.get_by_role("button")).to_have_text("[Launch äöü]")
    expect(bar).to_contain_text("GPUs free äöü]")


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


def another(control: Control) -> str | bool:
    """Return what is not the default of a field."""
    if control.kind == "switch":
        return not control.default
    if control.kind == "choice":
        return next(it for it, _ in control.choices if it != control.default)
    return {
        "number": "7",
        "list": "3, 4.5",
        "text": "some text",
        "lines": "module load a, b\nexport B=c",
        "pairs": "licenses=a:1\ncontiguous",
    }[control.kind]


def bad(control: Control) -> str | None:
    """Return text that is no value of a field; None if every text is one."""
    if is_free(control):
        return None
    if control.path == "data":
        return ""
    if control.path == "devices":
        return "0, 0"
    texts = {"number": "-1 apple", "list": "pear", "text": "plum", "pairs": "Nodes=3"}
    return texts.get(control.kind)


def is_free(control: Control) -> bool:
    """Return whether a field takes any text: a name, or what only a cluster knows."""
    of_cluster = control.path.startswith(("manual.", "slurm."))
    is_text = control.kind in ("text", "lines")
    return control.path == "name" or (of_cluster and is_text)


def test_every_field_keeps_what_was_typed_and_shows_what_is_wrong_with_it(opened, page):
    server, notebook = opened
    form, controls = notebook.form, CONTROLS
    seen = form.locator("[data-path]").filter(visible=True)
    common = ["name", "model", "data", "loader", "gpus", "batch_size_per_gpu"]
    assert seen.evaluate_all("all => all.map(it => it.dataset.path)") == [
        *common,
        *("precision", "steps", "epochs"),
    ]
    assert form.bounding_box()["height"] <= 600
    # Launch stays in sight, however long the form is.
    form.get_by_text("Slurm", exact=True).click()
    notebook.page.set_viewport_size({"width": 1300, "height": 700})
    assert form.bounding_box()["y"] + form.bounding_box()["height"] > 700
    expect(form.get_by_role("button", name="Launch")).to_be_in_viewport(ratio=1)
    expect(form.locator(".nbkf-bar")).to_contain_text("of 8 GPUs free")
    notebook.page.set_viewport_size({"width": 1300, "height": 1600})
    for group in form.locator("details").all():
        group.evaluate("group => group.open = true")
    expect(form.locator("[data-path]")).to_have_count(len(controls))
    launched = form.get_by_role("button", name="Launch")

    # What is typed is what the kernel reads, and nothing else than that.
    entered = {path: another(control) for path, control in controls.items()}
    for path, typed in entered.items():
        notebook.enter(path, typed)
    notebook.wait_for_fields(fields_of(entered, controls))
    assert notebook.entered() == entered
    assert form.locator(".nbkf-mod-changed").count() == len(controls)

    # Text that is no value stays, and the reason appears beside it.
    wrong = {path: bad(control) for path, control in controls.items()}
    wrong = {path: text for path, text in wrong.items() if text is not None}
    typed_kinds = ("number", "list", "text", "lines", "pairs")
    assert {path for path, it in controls.items() if is_free(it)} == {
        path for path, it in controls.items() if it.kind in typed_kinds
    } - set(wrong)
    for path, text in wrong.items():
        notebook.enter(path, text)
    until(notebook.page, lambda: wrong.keys() <= notebook.errors().keys(), "errors")
    assert notebook.errors()["loader_config.num_workers"] == (
        "'-1 apple': is not a whole number. Use an integer."
    )
    assert wrong.items() <= notebook.entered().items()
    expect(form.get_by_role("alert")).to_contain_text("loader_config.num_workers")
    notebook.ask(launched.click, "ConfigError: ")
    look(notebook.page, ".nbkf")

    # So it does beside a choice, of which no value is wrong by itself.
    notebook.run(2)
    everywhere = dict.fromkeys(controls, "it is bad")
    until(notebook.page, lambda: notebook.errors() == everywhere, "the errors")
    invalid = form.locator("[data-path] [aria-invalid=true]")
    expect(invalid).to_have_count(len(controls))

    form.get_by_role("button", name="Reset precision", exact=True).click()
    assert notebook.entered()["precision"] == "fp32"
    reset = form.get_by_role("button", name="Reset all", exact=True)
    reset.click()
    expect(reset).to_be_hidden()
    expect(form.locator(".nbkf-mod-changed, .nbkf-mod-bad")).to_have_count(0)
    assert notebook.entered() == {path: it.default for path, it in controls.items()}
    notebook.wait_for_fields({})

    # Every field is valid, and a launch would be refused here.
    notebook.enter("nnodes", "2")
    error = notebook.field("nnodes").locator(".nbkf-error")
    expect(error).to_contain_text("engine='local' supports one node")
    expect(form.get_by_role("alert")).to_contain_text("Fix: nnodes")
    notebook.enter("nnodes", "1")
    expect(error).to_be_hidden()

    # A cluster has other GPUs than this machine.
    expect(form.get_by_role("region", name="Partitions")).to_be_hidden()
    notebook.enter("engine", "slurm")
    offered = form.get_by_role("region", name="Partitions")
    expect(offered).to_contain_text("2 in this cluster.")
    expect(form.get_by_role("region", name="GPUs")).to_be_hidden()
    day = offered.get_by_role("button", name="day")
    expect(day).to_contain_text("3 of 4 a100 free")
    day.click()
    offered.get_by_role("button", name="night").click()
    expect(day).to_have_attribute("aria-pressed", "true")
    partition = "slurm.slurm_partition"
    assert notebook.entered()[partition] == "day,night"
    expect(form).to_contain_text("#SBATCH --partition=day,night")
    look(notebook.page, ".nbkf")
    for path in ("engine", partition):
        form.get_by_role("button", name=f"Reset {path}", exact=True).click()
    expect(form.get_by_role("region", name="GPUs")).to_be_visible()

    form.get_by_label("Filter fields").fill("trust coefficient")
    expect(form.locator("[data-path]").filter(visible=True)).to_have_count(1)
    expect(notebook.field("lars_eta")).to_be_visible()

    # Notebook 7 shows it, too.
    other = Notebook(
        page(server.address("notebooks/a.ipynb"), 1300, 1600), notebook.file
    )
    other.wait_for_kernel()
    other.run(0)
    other.enter("model", "resnet34")
    expect(other.form).to_contain_text('nbkit.launch(model="resnet34")')


def failed_copy(run: nbkit.Run) -> None:
    """Write a run that has failed far below in a long traceback."""
    root = run.paths.root.with_name("20200101-000000-broken-aaaa")
    root.mkdir()
    for path in (run.paths.config, run.paths.submission):
        shutil.copy(path, root)
    lines = [*(f"  line {number}" for number in range(200)), "ValueError: the cause"]
    traceback, message = "\n".join(lines), lines[-1]
    cause = {"rank": 0, "message": message, "traceback": traceback, "log": None}
    record = {"name": "broken", "state": "failed", "cause": cause}
    write_json(root / "record.json", run.record | record)


def is_asked_again(visitor: Page, run: nbkit.Run) -> None:
    """Let a table of a moment be one of now, without its cell."""
    table = visitor.locator(".nbkv-runs:visible")
    rows = table.locator("tbody tr")
    expect(table.get_by_role("status")).to_contain_text("as of ")
    expect(rows).to_have_count(1)
    failed_copy(run)
    table.get_by_role("button", name="Refresh").click()
    expect(rows).to_have_count(2)
    expect(rows.filter(has_text="broken")).to_contain_text("failed")
    rows.get_by_role("button", name="Show broken").click()

    shown = visitor.locator(".nbkv[aria-label$='broken-aaaa']")
    trace = shown.get_by_label("Traceback")
    # Its end is the cause.
    is_at_end = "pre => pre.scrollTop > 0 && " + (
        "pre.scrollHeight - pre.scrollTop - pre.clientHeight < 2"
    )
    until(visitor, lambda: trace.evaluate(is_at_end), "the end of the traceback")
    expect(shown.locator(".nbkv-log-status")).to_have_text("nothing written")
    # A page of its own, in front of the notebook.
    visitor.locator("#jp-main-dock-panel").get_by_role("tab", name="b.ipynb").click()


def idle_seconds(server: Any, path: str) -> float:
    """Return how long Jupyter has known the kernel of a notebook to be idle."""
    sessions = ask(server, "api/sessions")
    (kernel,) = [each["kernel"] for each in sessions if each["path"] == path]
    moment = datetime.datetime.fromisoformat(kernel["last_activity"])
    return (datetime.datetime.now(datetime.UTC) - moment).total_seconds()


def read_by_everybody(visitor: Page, part: str) -> None:
    """Look for faults in a part of the page, in both themes."""
    visitor.evaluate(AXE.read_text())
    # Lab's body has no height of its own, so that axe believes that nobody sees it.
    visitor.evaluate("document.body.style.height = '100vh'")
    for theme in ("JupyterLab Dark", "JupyterLab Light"):
        visitor.evaluate(
            "theme => jupyterapp.commands.execute('apputils:change-theme', {theme})",
            theme,
        )
        body = visitor.locator("body")
        expect(body).to_have_attribute("data-jp-theme-name", theme)
        expect(visitor.locator("#jupyterlab-splash")).to_have_count(0)
        found = visitor.evaluate("part => axe.run(part)", part)
        assert [
            (each["id"], node["html"], node["failureSummary"])
            for each in found["violations"]
            for node in each["nodes"]
        ] == []
        assert "color-contrast" in {each["id"] for each in found["passes"]}


def test_a_run_outlives_its_server_and_its_page_shows_it(lab, page, monkeypatch):
    server = lab(replay("no-gpu"), EXPOSED)
    monkeypatch.setenv("NBKIT_HOME", str(server.store))
    write(server, "a.ipynb", LAUNCH.replace("tensorboard=False", "tensorboard=True"))
    write(server, "b.ipynb", ATTACH, RUNS)
    write(server, "c.ipynb", ATTACH, "nbkit.ExperimentForm()", RUNS)
    server.set(MANAGER, saveState=True)
    visitor = page(server.address("lab/tree/a.ipynb"))
    expect(visitor.locator("#jupyterlab-splash")).to_have_count(0)
    view = visitor.locator(".nbkv:visible").first
    try:
        open_notebook(visitor, "a.ipynb")
        run_all(visitor)
        expect(view.locator(".nbkv-state")).to_have_text("running")
        grows(visitor, view)
        visitor.evaluate("jupyterapp.commands.execute('docmanager:save')")
        run = nbkit.runs()[0]

        # The server ends and comes back: it feeds a view that was saved, without a
        # kernel; of a run that it does not know, a picture is left.
        server.stop()
        assert run.state is RunState.RUNNING
        server.start()
        visitor.goto(server.address("lab/tree/a.ipynb"))
        grows(visitor, view)
        expect(visitor.locator(".nbkit-picture")).to_be_hidden()
        known = []

        def feed(socket):
            if known:
                socket.connect_to_server()
            else:
                socket.send(json.dumps({"kind": "gone", "message": "not here"}))

        visitor.route_web_socket(re.compile("/nbkit/api/runs/.*/view"), feed)
        visitor.reload()
        expect(visitor.locator(".nbkit-picture")).to_be_visible()
        expect(view.locator(".nbkv-state")).to_contain_text("run the cell again")
        expect(view.locator(".nbkv-facts").first).to_be_hidden()
        read_by_everybody(visitor, ".nbkit-picture")
        known.append(run.run_id)
        open_notebook(visitor, "b.ipynb")
        run_all(visitor)
        grows(visitor, view)
        has_every_step_once(visitor, view)
        # Keys that are pressed in the view are not the notebook's.
        num_cells = visitor.locator(".jp-Notebook:visible .jp-Cell").count()
        view.locator(".nbkv-log summary").click()
        view.get_by_label("Rank").focus()
        visitor.keyboard.press("d")
        visitor.keyboard.press("d")
        cells = visitor.locator(".jp-Notebook:visible .jp-Cell")
        expect(cells).to_have_count(num_cells)
        lines = run.metrics()
        assert [line["step"] for line in lines] == list(range(1, len(lines) + 1))

        # A click in the table shows the run's page, with its curves.
        is_asked_again(visitor, run)
        row = visitor.locator(".nbkv-runs tbody tr:visible")
        row.get_by_role("button", name="Show kept").click()
        shown = visitor.locator(".nbkv-page:visible")
        expect(shown.locator(".nbkv-state")).to_have_text("running")
        shown.get_by_role("button", name="TensorBoard").click()
        tab = visitor.locator("#jp-main-dock-panel").get_by_role(
            "tab", name="TensorBoard: kept"
        )
        expect(tab).to_have_attribute("aria-selected", "true")

        # The button stops the run.
        open_notebook(visitor, "c.ipynb")
        run_all(visitor)
        stops_by_its_button(visitor, view, run)
        read_by_everybody(visitor, ".nbkv")

        # Whatever is shown of an ended run, its kernel is idle to Jupyter.
        expect(visitor.locator(".nbkf:visible")).to_have_count(1)
        expect(visitor.locator(".nbkv-runs:visible")).to_contain_text("as of")
        until(visitor, lambda: idle_seconds(server, "c.ipynb") > 15, "an idle kernel")
    finally:
        for each in nbkit.runs():
            each.stop(grace_seconds=0)


def test_kernel_with_views_form_and_table_stays_idle(lab, page):
    server = lab(replay("one-gpu"), EXPOSED)
    store_run(server.store, RUN_ID)
    store_run(server.store, f"{RUN_ID}b", "running")
    write(
        server,
        "a.ipynb",
        f"import nbkit\nnbkit.attach({RUN_ID!r})",
        f"nbkit.attach('{RUN_ID}b')",
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
    expect(visitor.locator(".nbkv-state")).to_have_text(["finished", "running"])
    expect(visitor.locator(".nbkf-bar")).to_contain_text("0 of 1 GPUs free")
    expect(visitor.locator(".nbkv-runs")).to_contain_text("1 to 2 of 2")
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


def test_a_kernel_with_finished_view_form_and_table_is_culled_as_a_plain_one(lab, page):
    limits = ["cull_idle_timeout=20", "cull_interval=1", "cull_connected=True"]
    server = lab(
        replay("one-gpu"),
        EXPOSED,
        *[f"--MappingKernelManager.{limit}" for limit in limits],
    )
    store_run(server.store, RUN_ID)
    cells = [f"import nbkit\nnbkit.attach({RUN_ID!r})", "nbkit.ExperimentForm()", RUNS]
    write(server, "a.ipynb", *cells)
    visitor = page(server.address("lab/tree/a.ipynb"), 1300, 2400)
    open_notebook(visitor, "a.ipynb")
    run_all(visitor)
    expect(visitor.locator(".nbkv-state")).to_have_text("finished")
    expect(visitor.locator(".nbkf-bar")).to_contain_text("0 of 1 GPUs free")
    expect(visitor.locator(".nbkv-runs")).to_contain_text("1 to 1 of 1")
    plain = start_kernel(server, "plain.ipynb")
    (own,) = {*kernels(server)} - {plain}

    until(visitor, lambda: not kernels(server), "the end of both kernels")

    culled = re.findall(r"Culling '.*' kernel .* \((.*)\) with", server.log)
    assert {*culled} == {own, plain}


def test_tensorboard_is_in_a_frame_unless_a_header_forbids_it(lab, page):
    server = lab(replay("no-gpu"), ECHO)
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
            if not is_framed:
                # What has failed once is tried again.
                shown = {"body": "<title>nbkit</title>", "content_type": "text/html"}
                frame = "**/nbkit/tensorboard/frame"
                visitor.route(frame, lambda it, shown=shown: it.fulfill(**shown))
                button.click()
                expect(tab_of(visitor, "TensorBoard: a run")).to_have_count(1)
            visitor.context.close()


def test_axe_finds_nothing_in_actions_dialogs_runs_and_old_values(holding, page, run):
    server, _ = holding(EXPOSED)
    run(server)
    visitor = page(server.address())
    panel = open_panel(visitor)
    row = panel.locator(".nbk-run", has_text="a long run")
    expect(row).to_contain_text("images/s")
    expect(panel.get_by_role("button", name="Free")).to_be_visible()
    look(visitor)

    row.get_by_role("button", name="Stop the run").click()
    expect(visitor.locator(".jp-Dialog")).to_contain_text("Stop the run")
    look(visitor, ".jp-Dialog-header, .jp-Dialog-body")
    visitor.get_by_role("button", name="Cancel").click()
    no_dialogs(visitor)
    server.stop()

    expect(panel).to_contain_text("last values")
    look(visitor, themes=[None])  # a theme is kept by the server


def test_a_run_is_among_the_running_things_of_lab_and_is_stopped_there(
    shared_lab, page, run
):
    server = shared_lab(replay("no-gpu"))
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


SHOWS = """
import ipywidgets
from IPython.display import HTML, display
from nbkit.widgets.picture import NO_LOST_WIDGET

view = {"version_major": 2, "version_minor": 0, "model_id": 32 * "0"}
lost = {"application/vnd.jupyter.widget-view+json": view, "text/plain": "lost"}
picture = HTML(NO_LOST_WIDGET + '<div class="nbkit-picture">a picture</div>')
for shown in (lost, picture, ipywidgets.Label("alive"), picture, lost, HTML("other")):
    display(shown, raw=shown is lost)
"""


def test_a_lost_widget_says_nothing_above_its_picture_and_others_stay(lab, page):
    server = lab(replay("no-gpu"), EXPOSED)
    write(server, "a.ipynb", SHOWS, "import time\ntime.sleep(1e6)")
    visitor = page(server.address("lab/tree/a.ipynb"))
    open_notebook(visitor, "a.ipynb")
    run_and_select_next = "notebook:run-cell-and-select-next"
    command(visitor, run_and_select_next)

    outputs = visitor.locator(".jp-Notebook:visible .jp-OutputArea-child")
    error = "Error displaying widget: model not found"
    shown = [error, "a picture", "alive", "a picture", error, "other"]
    expect(outputs).to_contain_text(shown)
    seen = [output.is_visible() for output in outputs.all()]
    assert seen == [False, True, True, True, True, True]

    # While a cell works, a page that is loaded again cannot ask for the widgets.
    command(visitor, run_and_select_next)
    expect(visitor.locator(".jp-InputPrompt", has_text="[*]")).to_have_count(1)
    visitor.evaluate("jupyterapp.commands.execute('docmanager:save')")
    visitor.reload()
    waiting = visitor.get_by_text("Loading widget")
    expect(waiting).to_have_count(3)
    assert [it.is_visible() for it in waiting.all()] == [False, False, True]
    expect(visitor.locator(".nbkit-picture").filter(visible=True)).to_have_count(2)


def test_a_report_opens_from_a_run_in_the_colours_of_the_theme(
    shared_lab, page, tmp_path, monkeypatch
):
    server = shared_lab(replay("no-gpu"))
    monkeypatch.setenv("NBKIT_HOME", str(server.store))
    bundle = tmp_path / "study.zip"
    stored = (FOLDER / "precision/gpu" / STORED).read_bytes()
    bundle.write_bytes(lzma.decompress(stored))
    nbkit.import_bundle(bundle)
    [study] = (server.store / "studies").iterdir()
    run_id = json.loads((study / "study.json").read_text())["runs"][0]["run_id"]

    visitor = page(f"{server.address()}&nbkit-run={run_id}")
    visitor.locator(".nbkv-page").get_by_role("button", name="Report").click()
    report = visitor.frame_locator(".jp-IFrame iframe")
    heading = report.get_by_role("heading", level=1)
    expect(heading).to_be_visible()
    title = heading.text_content()
    expect(tab_of(visitor, title)).to_have_attribute("aria-selected", "true")

    def ground() -> str:
        return report.locator("body").evaluate(
            "body => getComputedStyle(body).backgroundColor"
        )

    assert ground() == "rgb(255, 255, 255)"
    server.set("@jupyterlab/apputils-extension:themes", theme="JupyterLab Dark")
    until(visitor, lambda: is_saved(server, "nbkit-report"), "a saved layout")
    visitor.reload()
    expect(tab_of(visitor, title)).to_have_count(1)
    tab_of(visitor, title).click()
    expect(heading).to_be_visible()
    until(visitor, lambda: ground() != "rgb(255, 255, 255)", "the dark theme")

    # The link below the first screen in a cell leads to the same tab.
    write(server, "a.ipynb", f"import nbkit\nnbkit.report({study.name!r})")
    open_notebook(visitor, "a.ipynb")
    run_all(visitor)
    visitor.get_by_role("link", name="Open the whole report").click()
    expect(tab_of(visitor, title)).to_have_attribute("aria-selected", "true")
    expect(tab_of(visitor, title)).to_have_count(1)


MINUTE = 60.0


def traced_gpu(trace=TRACES / "one-gpu.jsonl", index=0):
    """Return the UUID of a GPU of a trace."""
    return open_replay(str(trace)).devices()[index].uuid


def store_past(store, uuid, minutes, started_minutes, percent=42):
    """Write a run that goes on, and what its sampler has seen: its share, and 25 %."""
    now = time.time()
    folder = store_run(store, "20200101-000000-past", "running")
    file = folder / "record.json"
    record = json.loads(file.read_text())
    record["launch"] = {"devices": [uuid]}
    began = datetime.datetime.fromtimestamp(
        now - started_minutes * MINUTE, datetime.UTC
    )
    record["time"]["started"] = began.isoformat()
    file.write_text(json.dumps(record))
    rows = [{"kind": "header", "schema": 1, "t": now - minutes * MINUTE, "devices": []}]
    for second in range(int(minutes * MINUTE), 0, -1):
        gpu = GpuSample(
            0,
            uuid,
            gpu_utilization_percent=percent,
            memory_used_bytes=20,
            memory_total_bytes=80,
        )
        host = HostSample(12.5, memory_used_bytes=1, memory_available_bytes=3)
        sample = Sample(now - second, (gpu,), host=host)
        rows.append({"kind": "sample", **sample.to_dict()})
    samples = RunPaths(folder).system(hostname())
    samples.parent.mkdir()
    samples.write_text("".join(json.dumps(row) + "\n" for row in rows))


class Plot:
    """The past of a GPU's utilization, which moves on and is laid out at any time."""

    def __init__(self, panel):
        self.page = panel.page
        self.gpu = card(panel, 0)
        self.slider = self.gpu.get_by_role("slider", name="Utilization of GPU 0")
        self.tip = self.gpu.locator(".nbk-tip")

    def told(self):
        """Return what is told of the moment that is pointed at; nothing without one."""
        return " ".join("".join(self.tip.all_inner_texts()).split())

    def point(self, share):
        """Move the mouse to a share of the width that the plot has now."""
        box = self.slider.bounding_box()
        place = {"x": box["width"] * share, "y": box["height"] / 2}
        self.slider.hover(position=place)

    def press(self, *keys):
        """Press keys in the plot; Lab may have taken the focus meanwhile."""
        if not self.slider.evaluate("plot => plot === document.activeElement"):
            self.gpu.locator(".nbk-toggle").focus()
            self.page.keyboard.press("Tab")
        for key in keys:
            self.page.keyboard.press(key)

    def bin(self):
        """Return which of its 120 bins is pointed at, or is the newest."""
        return self.slider.evaluate(
            """plot => {
              const [first, last, now] = ['min', 'max', 'now'].map(name =>
                Number(plot.getAttribute('aria-value' + name)));
              return Math.floor(120 * (now - first) / (last - first));
            }"""
        )


def choose(select, label, shown, words):
    """Choose an option until it is shown; what is saved late may undo a choice."""

    def is_shown():
        if select.evaluate("it => it.selectedOptions[0]?.label") != label:
            select.select_option(label=label)
        return words in shown.inner_text()

    until(select.page, is_shown, words)


def test_the_past_of_a_run_is_read_by_mouse_and_by_keys(lab, page):
    server = lab(replay("one-gpu"))
    store_past(server.store, traced_gpu(), minutes=41, started_minutes=5)
    visitor = page(server.address(), width=1600)
    panel = open_panel(visitor)
    plot = Plot(panel)
    mark = plot.gpu.locator(".nbk-sparkline-mark.nbk-mod-start")
    span = panel.locator(".nbk-legend").first
    expect(span).to_contain_text("last 30 min")
    expect(mark).to_have_count(1)
    value = re.compile(r"mean \d+%")
    expect(plot.slider).to_have_attribute("aria-valuetext", value)

    # Each look moves the mouse again: the drawing may have moved on below it.
    def middle_is_told():
        plot.point(1 / 4)
        told = plot.told()
        return {"GPU 42%", "memory 25%"} <= set(told.split(" · ")) and told

    assert "started" not in until(visitor, middle_is_told, "the values of the run")

    def start_is_told():
        plot.point(float(mark.get_attribute("x1")) / 120)
        return "a run started" in plot.told()

    until(visitor, start_is_told, "the start of the run")
    panel.locator(".nbk-header").hover()
    expect(plot.tip).to_have_count(0)

    def newest_is_told():
        plot.press()
        return bool(plot.told()) and plot.bin() > 110

    until(visitor, newest_is_told, "the newest values")

    def oldest_is_told():
        plot.press("Home")
        return plot.bin() == 0 and "GPU 42%" in plot.told()

    until(visitor, oldest_is_told, "the oldest values")
    expect(plot.slider).to_have_attribute("aria-valuetext", re.compile("GPU 42%"))

    def mouse_is_followed():
        plot.point(3 / 4)
        return 85 <= plot.bin() <= 95

    until(visitor, mouse_is_followed, "where the mouse is")

    # A key takes over from the mouse, and one of the browser's is left to it.
    def key_is_followed():
        plot.press("Home", "Alt+End", "PageUp")
        return plot.bin() == 10

    until(visitor, key_is_followed, "a later moment")
    plot.press("Escape")
    expect(plot.tip).to_have_count(0)
    plot.press("ArrowLeft")
    expect(plot.tip).to_be_visible()
    visitor.keyboard.press("Tab")
    expect(plot.tip).to_have_count(0)

    panel.get_by_role("button", name="nbkit settings").click()
    reach = visitor.locator('select[id$="_historyMinutes"]')
    choose(reach, "10", span, "last 10 min")
    # No more than is known.
    choose(reach, "120", span, "last 4")
    expect(mark).to_have_count(1)


WAITING_ID = "20200103-000000-waits-aaaa"


RUNNING_ID = "20200104-000000-runs-aaaa"


REASON = "Slurm: jobs of higher priority are ahead (Priority); starts about 14:05 UTC"


def _store(store, run_id, state, **values):
    paths = RunPaths(store_run(store, run_id, state))
    write_json(paths.record, {**(read_json(paths.record) or {}), **values})
    return paths


def _write_sample(paths, node, t, percent, gibibytes):
    gpu = {
        "index": 0,
        "uuid": f"GPU-{node}",
        "name": "A100",
        "gpu_utilization_percent": percent,
        "memory_used_bytes": gibibytes << 30,
        "memory_total_bytes": 80 << 30,
    }
    sample = {"kind": "sample", "t": t, "gpus": [gpu], "host": {"cpu_percent": 12.0}}
    file = paths.system(node)
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(sample) + "\n")


def test_memory_of_a_gpu_that_was_idle_for_30_minutes_is_a_warning(lab, page):
    server = lab("replay:eight-gpus")
    uuid = traced_gpu("eight-gpus", 4)
    store_past(server.store, uuid, minutes=40, started_minutes=40, percent=0)

    panel = open_panel(page(server.address()))

    gpu = panel.get_by_role("group", name="GPU 4, NVIDIA H100")
    held = re.compile(r"idle: 2\d\.\d GiB held")
    expect(gpu.get_by_text(held)).to_be_visible()
    expect(panel.get_by_text("idle: ")).to_have_count(1)


def test_a_run_of_a_cluster_says_why_it_waits_and_what_its_nodes_do(shared_lab, page):
    server = shared_lab(replay("no-gpu"))
    queue = {"position": None, "length": None, "reason": REASON, "since": utc_now()}
    _store(server.store, WAITING_ID, "queued", name="waits", queue=queue)
    uuids = ["GPU-n1", "GPU-n2"]
    paths = _store(
        server.store, RUNNING_ID, "running", name="runs", launch={"devices": uuids}
    )
    _write_sample(paths, "n1", 4e9, 75, 40)
    _write_sample(paths, "n2", 1e9, None, 8)
    panel = open_panel(page(server.address()))

    waits = panel.locator(".nbk-run", has_text="waits")
    expect(waits).to_contain_text(REASON)
    expect(waits).not_to_contain_text("place")

    runs = panel.locator(".nbk-run", has_text="runs")
    unfold = runs.get_by_role("button", name="GPUs of 2 nodes")
    expect(unfold).to_have_attribute("aria-expanded", "false")
    unfold.click()
    busy = runs.get_by_role("meter", name="Utilization of GPU 0 of n1")
    expect(busy).to_have_attribute("aria-valuenow", "75")
    expect(runs.get_by_role("listitem", name="n1")).to_contain_text("40.0 / 80.0 GiB")
    silent = runs.get_by_role("listitem", name="n2")
    expect(silent).to_contain_text("CPU 12% · last values ")
    expect(silent).to_contain_text("–")

    # What it shows is of now: it is asked for again.
    _write_sample(paths, "n1", 4e9, 20, 40)
    expect(busy).to_have_attribute("aria-valuenow", "20")
    unfold.click()
    expect(busy).to_have_count(0)
