"""The scaling notebook under plain papermill, from its parameters to its report."""

from __future__ import annotations

import json
from pathlib import Path

import nbkit
from nbkit.reports.headline import headline
from nbkit.store.paths import studies_folder
from nbkit.store.record import RunState
from tests.notebooks.executing import QUICK, assert_answer, execute


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
    assert report["result"]["is_smoke_test"] is True
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
    assert len(again.figures) == 3


def test_bad_parameters_fail_before_anything_starts(tmp_path):
    done = execute(
        "scaling", tmp_path / "out.ipynb", "-p", "gpuz", "8", "-p", "gpus", "lots"
    )

    assert done.returncode == 1
    assert "Did you mean 'gpus'?" in done.text
    assert "gpus='lots' is not a whole number" in done.text
    assert not studies_folder().exists()
