"""The storage notebook under plain papermill, from its parameters to its report."""

from __future__ import annotations

import json
from pathlib import Path

import nbkit
from nbkit.reports.headline import headline
from nbkit.store.record import RunState
from tests.datasets.images import write_folder
from tests.disk import tmp_path
from tests.notebooks.executing import UNLIMITED, assert_answer, execute

__all__ = ["tmp_path"]


def test_a_data_set_is_read_cold_and_its_report_says_what_limits(tmp_path):
    data = write_folder(tmp_path / "images", images_per_class=40)

    done = execute(
        "storage",
        tmp_path / "out.ipynb",
        *("-p", "data", f"here={data}", "-p", "device", "cpu", "-p", "gpu", "V100"),
        *("-p", "batch_size_per_gpu", "8", "-p", "image_size", "32"),
        *("-p", "stages", "emulate,train", "-p", "model", "tiny", *UNLIMITED),
    )

    done.assert_complete()
    assert "CPU smoke test: device=cpu" in done.text
    assert "Cache test: here (" in done.text
    assert "engine Python reader" in done.reported
    assert "[1/2] here, as V100" in done.text
    assert "[2/2] here, training, repeat 1: finished" in done.text
    report = done.report
    assert_answer(
        report,
        "CPU",
        "here (cache test) reaches ",
        "with 1 emulated V100",
        "in the first epoch (cold, proven; n=1, not enough runs)",
    )
    emulated, trained = report["result"]["rows"]
    assert 0 < emulated["first_utilization"]["median"] <= 1
    assert trained["first_utilization"] is None
    assert trained["first"]["median"] > 0
    assert trained["later"]["median"] > 0
    assert json.loads(Path(report["result_file"]).read_text())["answer"]
    assert "data:image/png;base64," in Path(report["page"]).read_text()
    has_table = not report["result"].get("caveats")
    assert ("page cache at start" in headline(done.path)) == has_table
    runs = nbkit.runs()
    assert [run.state for run in runs] == [RunState.FINISHED] * 2
    assert [run.record["tags"]["cache_proven"] for run in runs] == ["yes"] * 2
