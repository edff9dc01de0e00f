"""The scaling notebook under plain papermill, from its parameters to its report."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from PIL import Image

import nbkit
from nbkit.reports.headline import headline
from nbkit.store.paths import studies_folder
from nbkit.store.record import RunState
from tests.notebooks.executing import (
    QUICK,
    assert_answer,
    execute,
)
from tests.notebooks.faults import papermill_is_ended


def test_a_report_is_static_complete_and_says_what_it_is(tmp_path, monkeypatch):
    done = execute(
        "scaling",
        tmp_path / "out.ipynb",
        *QUICK,
        *("-p", "gpus", "2", "-p", "model", "tiny"),
    )

    done.assert_complete()
    assert "CPU smoke test: device=cpu" in done.text
    assert "[3/3] fp32, 2 processes, repeat 1: finished" in done.text
    report = done.report
    assert_answer(report, "CPU smoke test: fp32 on 2 CPU processes: ")
    assert report["answer"] in done.answer["text/plain"]
    assert [row["world_size"] for row in report["result"]["rows"]] == [1, 2]
    assert report["result"]["rows"][1]["results"]["fp32"]["images_per_second"] > 0
    assert report["result"]["functional_only"] is True
    assert report["result"]["allreduce"][0]["bus_bandwidth_bytes_per_second"] > 0
    assert json.loads(Path(report["result_file"]).read_text())["answer"]
    assert "data:image/png;base64," in Path(report["page"]).read_text()
    assert report["answer"] in headline(done.path)
    assert {run.state for run in nbkit.runs()} == {RunState.FINISHED}
    tags = [run.record["tags"] for run in nbkit.runs()]
    assert len({(one.get("arm"), one.get("repeat")) for one in tags}) == 3

    # The bundle has the all-reduce too, and needs neither notebook nor this machine.
    [study] = studies_folder().iterdir()
    bundle = nbkit.export(study.name, tmp_path / "study.zip")
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path / "elsewhere"))
    nbkit.import_bundle(bundle)
    again = nbkit.report(study.name)
    assert json.loads(json.dumps(again.report.result)) == report["result"]
    assert again.report.answer == report["answer"]
    assert [path.name for path in again.tables] == [
        Path(path).name for path in report["table_files"]
    ]
    assert any("all-reduce-bandwidth" in path.name for path in again.tables)
    assert len(again.figures) == 2


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
    assert "not measured on one device" in done.reported
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


def test_a_papermill_that_is_ended_leaves_nothing_running(tmp_path):
    outcome = papermill_is_ended(tmp_path, signal.SIGKILL)

    assert outcome.state is RunState.STOPPED
    assert outcome.cause["by"] == "owner exit"
    steps = [line["step"] for line in outcome.metrics]
    assert steps == list(range(1, len(steps) + 1))
