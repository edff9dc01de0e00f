"""Starts of a study side by side: balanced over devices, resumed, and with failures."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

import nbkit
from nbkit.errors import ConfigError, NotEnoughDataError, RunFailedError
from nbkit.launch.devices.choice import request_devices
from nbkit.launch.devices.pool import Lease, QueueTicket
from nbkit.questions.study_report import make
from nbkit.store.record import RunState
from nbkit.studies.budget import Budget
from nbkit.studies.metric import Metric
from nbkit.studies.order import Slot
from nbkit.studies.places import free_places, run_side_by_side
from tests.telemetry.conftest import no_setting
from tests.telemetry.fake_nvml.fake_driver import GIBIBYTE, FakeGpu
from tests.waiting import patient, wait_until

__all__ = ["no_setting"]

TOGETHER = """
import os, sys, time
from pathlib import Path
arm, folder, gate = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
repeat = int(os.environ["STUDY_REPEAT"])
(folder / f"{arm} {repeat} {time.time_ns()}").touch()
end = time.monotonic() + 300
while len(list(folder.iterdir())) < gate and time.monotonic() < end:
    time.sleep(0.05)
if arm == "new" and repeat == 2:
    raise ValueError("a bad seed")
print("error:", {"base": 0.5, "new": 0.4}[arm] + 0.001 * repeat)
"""


@pytest.fixture
def eight_gpus(monkeypatch):
    monkeypatch.setenv("NBKIT_GPU_SOURCE", "replay:eight-gpus")


@pytest.fixture
def arms(tmp_path, eight_gpus):
    """Return what makes two arms whose starts wait until so many have begun."""
    script, folder = tmp_path / "train.py", tmp_path / "begun"
    script.write_text(TOGETHER)
    folder.mkdir()

    def make_arms(gate):
        return {
            arm: nbkit.script(script, [arm, folder, gate], device="replay", gpus=1)
            for arm in ("base", "new")
        }

    return make_arms


def devices(run):
    """Return the devices that a run had."""
    return run.record["launch"]["devices"]


@pytest.mark.waiting
def test_starts_side_by_side_survive_a_kill_and_a_failure(arms, capsys):
    check_kill_and_failure(arms, places=4)

    assert "\nSo far: " in capsys.readouterr().out


def check_kill_and_failure(arms, places):
    """Kill a study with a run on each place, resume it, and check balance and n."""
    study = nbkit.Study.create(
        "seeds",
        arms(gate=places + 1),
        metric="error",
        better="lower",
        repeats=places,
        parallel=places,
        minimum_runs=3,
    )
    code = "import nbkit, sys; nbkit.Study.open(sys.argv[1]).run(progress=False)"
    with subprocess.Popen([sys.executable, "-c", code, study.study_id]) as executor:

        def all_running():
            runs = nbkit.runs()
            is_full = len(runs) == places and all(
                run.state is RunState.RUNNING for run in runs
            )
            return runs if is_full else None

        killed = wait_until(all_running, f"{places} running starts", 240)
        executor.send_signal(signal.SIGKILL)
        executor.wait(timeout=patient(60))
    assert len({str(devices(run)) for run in killed}) == places

    nbkit.Study.open(study.study_id).resume()

    assert {run.state for run in killed} == {RunState.STOPPED}
    by_arm = study.runs_by_arm()
    assert [len(runs) for runs in by_arm.values()] == [places, places - 1]
    [bad] = study.failed["new"]
    tried = {"base": by_arm["base"], "new": [*by_arm["new"], bad]}
    of_base, of_new = (
        {run.record["tags"]["repeat"]: str(devices(run)) for run in runs}
        for runs in tried.values()
    )
    assert of_base == of_new
    assert len({*of_base.values()}) == places

    report = make(study)
    assert "new is better than base" in report.answer
    assert f"n={places - 1} and {places}" in report.answer
    assert f"new: n={places - 1} of {places}, 1 failed: failed on" in report.answer
    assert "a bad seed" in report.result["failed"][0]
    shown = json.loads(study.paths.progress.read_text())["answer"]
    assert report.answer.endswith(shown.removeprefix("So far: "))


def test_starts_side_by_side_are_counted_by_repeat_and_without_failed_arms(
    arms, tmp_path, monkeypatch, capsys
):
    script, given = tmp_path / "bad.py", []
    script.write_text("raise ValueError('always')")

    def budget(*args, places):
        given.append(places)
        return Budget(*args, places=places)

    monkeypatch.setattr("nbkit.studies.study.Budget", budget)
    programs = {**arms(gate=1), "bad": nbkit.script(script, device="replay", gpus=1)}
    fields = {"metric": "error", "better": "lower", "repeats": 2}
    study = nbkit.Study.create("seeds", arms(gate=1), parallel=8, **fields)
    study.run(progress=False)
    study = nbkit.Study.create(
        "bad", programs, parallel=2, **{**fields, "repeats": 6, "minimum_runs": 2}
    )
    with pytest.raises(RunFailedError, match="always"):
        study.run()

    assert given == [2, 2]
    assert len(study.failed["bad"]) < 6
    lines = re.findall(r"^\[(\d+)/(\d+)\]", capsys.readouterr().out, re.MULTILINE)
    assert lines[-1] == (str(len(list(nbkit.runs())) - 4),) * 2


@pytest.mark.parametrize("parallel", [1, 2])
def test_starts_that_are_queued_at_the_limit_are_stopped(
    arms, monkeypatch, tmp_path, parallel
):
    monkeypatch.setenv("NBKIT_POOL", str(tmp_path / "pool"))
    fields = {"metric": "error", "better": "lower", "repeats": 2, "minutes": 0.0001}
    study = nbkit.Study.create("seeds", arms(gate=1), parallel=parallel, **fields)
    wanted = request_devices(study.arms["base"])
    every = {"kind": wanted.kind, "count": 8, "oversubscribe": False}
    ticket = QueueTicket.enter("r", {**every, "candidates": wanted.candidates})
    ticket.take_over()
    lease = ticket.attempt()
    assert isinstance(lease, Lease)

    study.run(progress=False)

    assert {run.state for run in nbkit.runs()} == {RunState.STOPPED}
    assert study.not_measured == study.order
    lease.release()
    ticket.close()


def test_side_by_side_chooses_again_only_when_a_run_has_ended():
    looks, asked, slot = iter([False, False, True]), [], Slot("a", 0)
    left = [slot]

    def fitting():
        asked.append(len(left))
        return left.copy()

    def begin(*_):
        left.clear()
        return run

    class Ends:
        @property
        def state(self):
            return SimpleNamespace(is_final=next(looks))

        def wait(self, **_):
            pass

    run = Ends()
    run_side_by_side(
        [slot],
        [(), ()],
        {},
        fitting=fitting,
        begin=begin,
        on_poll=lambda runs: None,
        on_end=lambda *_: None,
        check=lambda *_: None,
    )

    assert asked == [1, 0, 0, 0]


def test_study_ends_with_a_metric_that_no_run_has(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "print('val_loss: 0.5, accuracy=0.9', {'train_loss': '4e-1', 'loss_': 1})"
    )
    arms = {
        name: nbkit.script(script, [name], device="cpu", gpus=1) for name in ("a", "b")
    }
    study = nbkit.Study.create("loss", arms, metric="loss", better="lower", repeats=5)

    with pytest.raises(NotEnoughDataError) as error:
        study.run(progress=False)

    assert "no metric 'loss'" in str(error.value)
    assert "printed accuracy, loss_, train_loss, val_loss. Call" in str(error.value)
    [run] = [run for runs in study.runs_by_arm().values() for run in runs]
    assert Metric("train_loss", "lower", 0.0).value(run) == 0.4


def test_places_have_room_for_every_arm(small, eight_gpus):
    one, three = (small(device="replay", oversubscribe=False, gpus=n) for n in (1, 3))

    places = free_places([one, three], None)

    assert [len(place) for place in places] == [3, 3]
    assert len({*places[0], *places[1]}) == 6
    assert len(free_places([one], None)) == 8
    assert free_places([one], 2) == free_places([one], None)[:2]
    cpu = small(oversubscribe=False, cpus=(0,))
    assert free_places([cpu], None) == free_places([cpu], 4) == [()]
    # CPUs and GPUs in one study: the pool chooses.
    assert free_places([one, small(oversubscribe=False)], None) == [()]


def test_places_are_gpus_that_nobody_uses(
    small, drive, no_setting, tmp_path, monkeypatch
):
    monkeypatch.setenv("NBKIT_POOL", str(tmp_path / "pool"))
    used = FakeGpu("GPU-2", pids=(1,), used_bytes=GIBIBYTE, memory_bytes=2 * GIBIBYTE)
    drive(FakeGpu("GPU-0"), FakeGpu("GPU-1"), used, FakeGpu("GPU-3"))
    request = {"kind": "cuda", "count": 1, "oversubscribe": False}
    ticket = QueueTicket.enter("r", {**request, "candidates": [("GPU-1", "GPU 1")]})
    ticket.take_over()
    lease = ticket.attempt()
    assert isinstance(lease, Lease)
    one, two, three = (
        small(device="cuda", oversubscribe=False, gpus=n) for n in (1, 2, 3)
    )

    assert free_places([one], None) == [("GPU-0",), ("GPU-3",)]
    assert free_places([one, two], None) == [("GPU-0", "GPU-3")]
    # Too few are free: starts wait for others.
    assert free_places([three], None) == [("GPU-0", "GPU-1", "GPU-2")]

    lease.release()
    ticket.close()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"metric": "error", "better": "lower"}, None),
        ({"metric": "error", "better": "lower", "parallel": 2}, 2),
        ({"metric": "step_time", "better": "lower"}, 1),
        ({"metric": "step_time", "better": "lower", "parallel": 2}, 2),
        ({}, 1),
    ],
)
def test_measurements_of_time_are_alone_unless_asked(arms, fields, expected):
    study = nbkit.Study.create("seeds", arms(gate=1), **fields)

    assert study.parallel == expected


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"parallel": 0}, "parallel=0 is not a number of runs"),
        (
            {"parallel": 2, "concurrent": [["base", "new"]]},
            "parallel=2 conflicts with concurrent, which requires",
        ),
        ({"minimum_runs": 1}, "minimum_runs=1 is not an integer of 2 or more"),
    ],
)
def test_study_refuses_numbers_of_starts(arms, fields, words):
    with pytest.raises(ConfigError, match=words):
        nbkit.Study.create(
            "seeds", arms(gate=1), metric="error", better="lower", **fields
        )


def test_study_refuses_one_program_as_two_arms(arms):
    program = arms(gate=1)["base"]

    with pytest.raises(ConfigError, match="arms 'a' and 'b' are the same program"):
        nbkit.Study.create(
            "same", {"a": program, "b": program}, metric="error", better="lower"
        )


def test_metric_keeps_how_many_runs_a_verdict_needs():
    assert Metric.chosen("error", "lower", 0.0, 3) == Metric("error", "lower", 0.0, 3)
