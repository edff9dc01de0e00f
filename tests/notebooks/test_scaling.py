"""The scaling notebook under plain papermill, from its parameters to its report."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from PIL import Image

import nbkit
from nbkit.launch.sweep import marked_processes
from nbkit.store.paths import studies_folder
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import RunState
from nbkit.study.headline import headline
from nbkit.study.report import REPORT_MIME
from tests.notebooks.executing import QUICK, execute, papermill_argv
from tests.waiting import wait_until


def test_a_report_is_static_complete_and_says_what_it_is(tmp_path):
    done = execute(
        "scaling",
        tmp_path / "out.ipynb",
        *QUICK,
        "-p",
        "gpus",
        "2",
        "-p",
        "model",
        "tiny",
    )

    assert done.returncode == 0, done.terminal
    kinds = {kind for output in done.outputs for kind in output.get("data", {})}
    assert "application/vnd.jupyter.widget-view+json" not in kinds
    assert not [o for o in done.outputs if o.get("name") == "stderr"]
    assert "CPU, functional: device=cpu was asked for" in done.text
    assert "[2/2] fp32, 2 processes, repeat 1: finished" in done.text
    assert "Nothing is projected from CPUs." in done.text
    picture, answer = (output.data for output in done.cells[-1].outputs)
    assert {"application/vnd.vegalite.v5+json", "image/png"} <= set(picture)
    assert "fp32 on 2 CPU processes trains" in answer["text/plain"]
    report = answer[REPORT_MIME]
    assert [row["world_size"] for row in report["result"]["rows"]] == [1, 2]
    assert report["result"]["rows"][1]["results"]["fp32"]["images_per_second"] > 0
    assert report["result"]["functional_only"] is True
    assert report["result"]["allreduce"][0]["bus_bandwidth_bytes_per_second"] > 0
    assert json.loads(Path(report["result_file"]).read_text())["answer"]
    assert "data:image/png;base64," in Path(report["page"]).read_text()
    assert "images/s" in headline(done.path)
    assert {run.state for run in nbkit.runs()} == {RunState.FINISHED}
    assert len(nbkit.runs()) == 3


def test_a_folder_of_images_is_trained_on(tmp_path):
    for label in ("cat", "dog"):
        folder = tmp_path / "pictures" / label
        folder.mkdir(parents=True)
        for number in range(12):
            picture = Image.new("RGB", (40, 30), (number * 20, 90, 160))
            picture.save(folder / f"{number}.jpg")
    data = str(tmp_path / "pictures")

    done = execute(
        "scaling",
        tmp_path / "out.ipynb",
        *QUICK,
        *("-p", "gpus", "1", "-p", "model", "tiny", "-p", "data", data),
        *("-p", "batch_size_per_gpu", "4"),
    )

    assert done.returncode == 0, done.terminal
    assert "one device has nothing to reduce" in done.text
    [run] = nbkit.runs()
    assert run.config.data == data
    assert run.record["origins"]["data"] == "papermill"


def test_bad_parameters_fail_before_anything_starts(tmp_path):
    done = execute(
        "scaling", tmp_path / "out.ipynb", "-p", "gpuz", "8", "-p", "gpus", "lots"
    )

    assert done.returncode == 1
    assert "Did you mean 'gpus'?" in done.text
    assert "gpus='lots' is not a whole number" in done.text
    assert not studies_folder().exists()


def test_strict_gpus_as_papermill_writes_it_is_a_clear_error(tmp_path):
    done = execute(
        "scaling",
        tmp_path / "out.ipynb",
        *("-p", "device", "cpu", "-p", "strict_gpus", "true"),
    )

    assert done.returncode == 1
    assert "gpus=8 with strict_gpus=True, but there are 0 GPUs here" in done.text
    assert not studies_folder().exists()


def test_a_failed_rank_fails_the_notebook_with_its_cause(tmp_path):
    done = execute(
        "scaling",
        tmp_path / "out.ipynb",
        *QUICK,
        *("-p", "gpus", "2", "-p", "model", "raises"),
    )

    assert done.returncode == 1
    assert "RunFailedError" in done.text
    assert "on rank 1" in done.text
    assert "the bad rank raises" in done.text


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_papermill_that_is_ended_leaves_nothing_running(tmp_path, how):
    argv = papermill_argv(
        "scaling",
        tmp_path / "out.ipynb",
        *("-p", "device", "cpu", "-p", "gpus", "1", "-p", "model", "slow"),
        *("-p", "steps", "100000", "-p", "repeats", "1"),
    )
    with subprocess.Popen(argv, stdout=-3, stderr=-3) as papermill:
        run = wait_until(lambda: nbkit.runs() and nbkit.runs()[0], "a run", 120)
        wait_until(run.metrics, "a first step", 120)
        kernel = ProcessIdentity.from_dict(run.submission["owner"])
        os.kill(papermill.pid, how)

    wait_until(lambda: run.state.is_final, "the run's end", 60)
    assert run.state is RunState.STOPPED
    assert not kernel.is_alive()
    mine = lambda: [p for name, p in marked_processes() if name == run.run_id]  # noqa: E731
    wait_until(lambda: not mine(), "no process left", 10)
    assert run.metrics()
