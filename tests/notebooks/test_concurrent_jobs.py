"""The notebook of concurrent jobs under plain papermill, each job on its own CPUs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import nbkit
from nbkit.store.record import RunState
from tests.notebooks.executing import UNLIMITED, assert_answer, execute

QUICK = (
    *("-p", "device", "cpu", "-p", "layout", "1,1", "-p", "one_job", "false"),
    *("-p", "pinned", "true", "-p", "repeats", "1", "-p", "control", "false"),
    *("-p", "model", "meets", "-p", "steps", "30", "-p", "image_size", "16"),
    *UNLIMITED,
)
"""Jobs of a round wait for each other: some steps overlap, however they started."""


def test_two_jobs_at_once_are_compared_with_one_alone(tmp_path):
    done = execute("concurrent_jobs", tmp_path / "out.ipynb", *QUICK)

    assert done.returncode == 0, done.terminal
    assert not [o for o in done.outputs if o.get("name") == "stderr"]
    assert "CPU smoke test: device=cpu was requested" in done.text
    assert "[2/2] 1,1 job 2 (pinned), repeat 1: finished" in done.text
    report = done.report
    assert_answer(report, "CPU", "1,1 (pinned): slowdown ")
    result = report["result"]
    assert result["is_smoke_test"] is True
    [one] = result["concurrent"]
    assert one["name"] == "1,1 (pinned)"
    [measured_at_once] = one["rounds"]
    assert measured_at_once["is_valid"] is True
    assert 0.5 <= measured_at_once["overlap_share"] <= 1
    assert 0 < one["fairness"]["median"] <= 1
    page = Path(report["page"]).read_text()
    assert "Published: concurrent jobs" in page
    assert json.loads(Path(report["result_file"]).read_text())["answer"]

    runs = {run.record["tags"]["arm"]: run for run in nbkit.runs()}
    assert {run.state for run in runs.values()} == {RunState.FINISHED}
    usable = sorted(os.sched_getaffinity(0))
    first, second = (
        runs[f"1,1 job {n} (pinned)"].worker["ranks"][0]["cpus"] for n in (1, 2)
    )
    assert not {*first} & {*second}
    assert {*first, *second} <= {*usable}
    assert runs["1 alone (pinned)"].worker["ranks"][0]["cpus"] == first
    seeds = {arm.split(" (")[0]: run.config.seed for arm, run in runs.items()}
    assert seeds["1,1 job 2"] == seeds["1,1 job 1"] + 1 == seeds["1 alone"] + 1
