"""Notebooks under papermill: a folder of images, INT8, a failed rank, no page."""

from __future__ import annotations

from PIL import Image

import nbkit
from tests.datasets.images import write_folder
from tests.notebooks.conftest import plugins, store
from tests.notebooks.executing import QUICK, UNLIMITED, execute
from tests.notebooks.kernel import ANSWERS_WITHIN_SECONDS, running_kernel

__all__ = ["plugins", "store"]


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
    assert "not measured (requires 2 or more ranks)" in done.reported
    [run] = nbkit.runs()
    assert run.config.data == data
    assert run.record["parameter_sources"]["data"] == "papermill"


def test_a_model_is_tried_and_answers_in_int8(tmp_path):
    data = write_folder(tmp_path / "images", images_per_class=12)

    done = execute(
        "inference",
        tmp_path / "out.ipynb",
        *("-p", "device", "cpu", "-p", "model", "tiny", "-p", "image_size", "32"),
        *("-p", "data", str(data), "-p", "training_steps", "4"),
        *("-p", "precisions", "fp32,int8", "-p", "batch_sizes", "1,4"),
        *("-p", "batches", "20", "-p", "repeats", "1", "-p", "control", "false"),
        *UNLIMITED,
    )

    assert done.returncode == 0, done.terminal
    assert "[2/2] int8 once: finished" in done.text
    numbers = done.report["result"]["numbers"]
    assert numbers["int8"]["int8_multiply_add_share"] == 1.0


def test_a_failed_rank_fails_the_notebook_with_its_cause(tmp_path, monkeypatch):
    monkeypatch.setenv("BAD_RANK", "0")

    done = execute(
        "scaling",
        tmp_path / "out.ipynb",
        *QUICK,
        *("-p", "gpus", "1", "-p", "model", "raises"),
    )

    assert done.returncode == 1
    assert "RunFailedError" in done.text
    assert "on rank 0" in done.text
    assert "the bad rank raises" in done.text


def test_a_cell_that_waits_shows_where_its_run_is(tmp_path, monkeypatch):
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path))
    shown: list[str] = []

    def note(message):
        kinds = ("display_data", "update_display_data")
        if message["header"]["msg_type"] in kinds:
            shown.append(message["content"]["data"]["text/plain"])

    with running_kernel() as kernel:
        reply = kernel.client.execute_interactive(
            "import nbkit\n"
            "run = nbkit.launch(lambda: nbkit.log({'loss': 1.0}), device='cpu',"
            " oversubscribe=True)\n"
            "run.wait();",
            output_hook=note,
            timeout=ANSWERS_WITHIN_SECONDS,
        )
        run_id = kernel.execute("pass", "run.run_id")

    assert reply["content"]["status"] == "ok"
    assert shown[-1].startswith(f"{run_id}: finished (")
    assert any("starting" in line or "running" in line for line in shown)
