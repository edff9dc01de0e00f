"""Notebooks under papermill: a folder of images, a failed rank, no page."""

from __future__ import annotations

from PIL import Image

import nbkit
from tests.notebooks.conftest import plugins, store
from tests.notebooks.executing import QUICK, execute
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
