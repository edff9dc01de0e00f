"""Arms of a study that are started at once begin, fail, end and are redone as one."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest

import nbkit
from nbkit.errors import ConfigError, RunError, RunFailedError, StoreError
from nbkit.launch.run import Run
from nbkit.questions.machines.bundles import why_not_comparable
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import RunState, write_json, write_json_once
from nbkit.studies.order import Slot
from nbkit.studies.starts import end_all, finished_runs, grouped

JOB = """
import sys, time
from pathlib import Path
job, mended = sys.argv[1], Path(sys.argv[2])
if job == "bad" and not mended.exists():
    raise ValueError("the bad job raises")
while not mended.exists():
    time.sleep(0.05)
print("loss: 1.0")
"""

PAIR = ["good", "bad"]
SLOTS = [Slot(arm, repeat) for repeat in range(2) for arm in ("alone", "a", "b")]


def test_slots_of_a_group_are_one_start_in_every_repeat():
    order = [*SLOTS[:3], *reversed(SLOTS[3:])]

    starts = grouped(order, [["a", "b"]])

    assert [[slot.arm for slot in slots] for slots in starts] == [
        ["alone"],
        ["a", "b"],
        ["a", "b"],
        ["alone"],
    ]


@pytest.mark.parametrize(
    ("concurrent", "control", "said"),
    [
        ([["a"]], None, "two or more arms that follow"),
        ([["a", "c"]], None, "must be two or more arms that follow"),
        ([["a", "x"]], None, "two or more arms that follow"),
        ([["a", "b"], ["b", "c"]], None, "an arm of another"),
        ([["a", "b"]], "b", "the control"),
    ],
)
def test_a_group_has_to_be_arms_of_its_own(small, concurrent, control, said):
    arms = {name: small() for name in "abc"}

    with pytest.raises(ConfigError, match=said):
        nbkit.Study.create("demo", arms, concurrent=concurrent, control=control)


def test_a_failing_job_stops_the_others_and_the_round_is_redone(tmp_path, capsys):
    script, mended = tmp_path / "train.py", tmp_path / "mended"
    script.write_text(JOB)
    fields = {"device": "cpu", "gpus": 1, "oversubscribe": True}
    arms = {job: nbkit.script(script, [job, mended], **fields) for job in PAIR}
    study = nbkit.Study.create(
        "demo", arms, metric="loss", better="lower", concurrent=[PAIR]
    )

    with pytest.raises(RunFailedError, match="the bad job raises") as failed:
        study.run()

    assert study.study_id in failed.value.__notes__[0]
    good, bad = (nbkit.attach(one["run_id"]) for one in entries(study))
    assert (good.state, bad.state) == (RunState.STOPPED, RunState.FAILED)
    assert good.cause["by"] == "study"
    assert [slot.arm for slot in study.missing] == PAIR

    mended.touch()
    study.resume()

    assert study.missing == []
    runs = study.runs_by_arm()
    assert [len(many) for many in runs.values()] == [1, 1]
    assert {one["start"] for one in entries(study)[2:]} == {2}
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("[1/1] good, repeat 1: stopped") for line in lines)
    assert any(line.startswith("[1/1] bad, repeat 1: failed") for line in lines)
    assert any(line.startswith("[1/1] bad, repeat 1: finished") for line in lines)

    [good] = runs["good"]
    assert good.record["tags"]["concurrent"] == "good; bad"
    assert "concurrently with other jobs" in str(why_not_comparable(good))

    # Two that finished count for nothing if they were not started at once.
    finished = [
        {"arm": arm, "repeat": 0, "run_id": many[0].run_id, "start": start}
        for start, (arm, many) in enumerate(runs.items())
    ]
    assert finished_runs(finished, [PAIR]) == {}
    assert len(finished_runs(finished, [])) == 2


def test_a_run_that_cannot_be_asked_to_end_keeps_no_other_going(store, monkeypatch):
    runs = store / "runs"
    signalled = subprocess.Popen(["/bin/sleep", "1000"])
    asked = subprocess.Popen(
        ["/bin/sh", "-c", "until [ -e stop.json ]; do sleep 0.05; done"],
        cwd=make_folder_of_run(runs, "asked"),
    )
    full = under_way(make_folder_of_run(runs, "full"), signalled)
    other = under_way(runs / "asked", asked)
    by_torchrun = make_folder_of_run(runs, "torchrun")

    def write(path, values):
        if path == full.paths.stop:
            raise StoreError(path)  # the disk is full
        return write_json_once(path, values)

    monkeypatch.setattr("nbkit.launch.run.write_json_once", write)
    try:
        with pytest.raises(RunError, match="was started by torchrun"):
            end_all([Run(by_torchrun), full, other], by="study")

        # A supervisor takes it for a request.
        assert signalled.poll() == -signal.SIGTERM
        assert asked.poll() == 0
    finally:
        for process in (signalled, asked):
            process.kill()
            process.wait()
    assert json.loads(other.paths.stop.read_text())["by"] == "study"


def make_folder_of_run(runs, name):
    """Return the folder of a run, without any file."""
    (runs / name).mkdir(parents=True)
    return runs / name


def under_way(folder, supervisor):
    """Return a run of which a process says that it supervises it."""
    process = ProcessIdentity.of(supervisor.pid).to_dict()
    known = {"attempt": 0, "supervisor": process}
    write_json(folder / "submission.json", known)
    write_json(folder / "record.json", {**known, "state": "running"})
    config = {"engine": "local", "stop_grace_seconds": 5}
    write_json(folder / "config.json", config)
    return Run(folder)


def entries(study):
    """Return what the study keeps of its runs, in the order of their starts."""
    return json.loads(study.paths.study.read_text())["runs"]
