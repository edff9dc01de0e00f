"""The sampler's process: when there is one, and what happens when it fails."""

from __future__ import annotations

import json
import logging
import math
import re
import time
from pathlib import Path

import pytest

from nbkit.server.app import NbkitServer
from tests.server.jupyter import TOKEN
from tests.server.stored_runs import store_run
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]


def test_sampler_runs_from_first_to_last_viewer_and_is_replaced_when_killed(start):
    server = start()
    assert server.request("nbkit/api/runs").body == {"runs": []}
    assert server.sampler() is None
    with server.view() as view:
        view.next("sample")
        assert "nbkit_gpu" not in server.request("metrics").body
        sampler = server.wait_for_sampler()
    # A page that is reloaded finds the same sampler.
    with server.view() as first, server.view() as second:
        assert first.next("history")["parts"][0]["count"] > 0
        second.next("sample")
        assert server.wait_for_sampler() == sampler
        first.close()
        assert second.next("sample")
        left = time.monotonic()
    wait_until(lambda: not sampler.is_running(), "the sampler's end")

    # It waits for a page that is being reloaded.
    assert time.monotonic() - left > 3
    with server.view() as again:
        status = again.next("status")
        assert again.next("sample")["seq"] > status["seq"]

        server.wait_for_sampler().kill()
        # Between the two there may be signs of life.
        while (failed := again.next("status"))["sampler"] != "failed":
            pass
        while (running := again.next("status"))["sampler"] != "running":
            pass
        again.next("sample")
    assert "signal 9, SIGKILL" in failed["message"]
    assert "restart in 1 s" in failed["message"]
    assert running["message"] is None


def test_settings_of_the_administrator_are_bounded_and_reach_sampler_and_runs(
    start, tmp_path
):
    heard, store = tmp_path / "heard", tmp_path / "other"
    folder = store_run(store, "20260101-000000000-x-aaaa")
    server = start(
        "--NbkitServer.hide_commands_of_others=True",
        "--NbkitServer.interval_seconds=0.01",
        "--NbkitServer.tensorboard_idle_seconds=nan",
        f"--NbkitServer.store={store}",
        "--ServerApp.contents_manager_class=tests.server.foreign.NoFiles",
        variables={
            "PYTHONPATH": str(ROOT),
            "STAND_IN": json.dumps({"heard": str(heard)}),
        },
    )
    with server.view() as view:
        assert view.next("inventory")["interval_seconds"] == 1
        wait_until(lambda: heard.exists() and "kernels" in heard.read_text(), "words")

    (row,) = server.request("nbkit/api/runs").body["runs"]
    assert row["folder"] is None  # of contents that are no files
    assert row["folder_path"] == str(folder)
    first = json.loads(heard.read_text().splitlines()[0])
    assert first["hide_commands_of_others"] is True
    assert server.request("nbkit/api/status").body["interval_seconds"] == 1
    assert "interval_seconds=0.01 is out of range; 1.0 is used" in server.log
    assert "tensorboard_idle_seconds=nan is out of range; 600.0 is used" in server.log


@pytest.mark.parametrize(
    ("interval", "used"), [(math.nan, 1), (61.0, 60), (math.inf, 60)]
)
def test_interval_out_of_bounds_is_replaced(caplog, interval, used):
    app = NbkitServer(log=logging.getLogger("nbkit.test"))
    app.interval_seconds = interval

    assert app.interval_seconds == used
    assert f"interval_seconds={interval} is out of range" in caplog.text
    assert "Set a number from 0.25 to 60.0." in caplog.text


def test_gauges_need_no_viewer_where_everything_must_be_authenticated(start):
    strict = "--ServerApp.allow_unauthenticated_access=False"
    server = start("--NbkitServer.metrics=True", strict, base_url="/a/b/")
    gauge = "nbkit_gpu_power_watts{"
    wait_until(lambda: gauge in server.request("metrics").body, "gauges")

    text = server.request("metrics").body
    assert 'nbkit_gpu_power_watts{gpu="1",uuid="GPU-1"} 350.0' in text
    memory = re.search(r'memory_used_bytes\{gpu="0",uuid="GPU-0"\} (\S+)', text)
    assert float(memory[1]) == 40_000 * 2**20
    with server.view() as view:
        view.next("sample")
    assert server.url.endswith("/a/b/")
    assert "JupyterServerAuthWarning" not in server.log
    assert TOKEN not in server.log
