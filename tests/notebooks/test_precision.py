"""The precision notebook under plain papermill, from its parameters to its report."""

from __future__ import annotations

import json
from pathlib import Path

import nbkit
from nbkit.store.record import RunState
from tests.notebooks.executing import QUICK, assert_answer, execute


def test_a_faster_wrong_answer_is_shown_and_is_not_the_headline(tmp_path):
    done = execute(
        "precision",
        tmp_path / "out.ipynb",
        *QUICK,
        *("-p", "model", "wrong_in_16_bits", "-p", "memory_format", "channels_last"),
        *("-p", "control", "false"),
    )

    done.assert_complete()
    assert "CPU smoke test: device=cpu" in done.text
    assert "[2/2]" in done.text
    assert "No precision was measured in both layouts" in done.reported
    report = done.report
    counted = "Excluded: bf16, channels_last at"
    assert_answer(report, "CPU smoke test: No arm except fp32", counted)
    [bf16] = [row for row in report["result"]["rows"] if row["arm"].startswith("bf16")]
    assert bf16["ratio"]["estimate"] > 1
    assert report["result"]["answers"]["bf16, channels_last"]["suspicions"]
    assert report["result"]["is_smoke_test"] is True
    assert json.loads(Path(report["result_file"]).read_text())["answer"]
    assert "loss suspect" in Path(report["page"]).read_text()
    assert [run.state for run in nbkit.runs()] == [RunState.FINISHED] * 2
