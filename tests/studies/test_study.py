"""A study runs its plan, keeps what finished, and goes on where it was interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading

import pytest

import nbkit
from nbkit.errors import (
    ConfigError,
    DeviceError,
    RunError,
    RunFailedError,
    RunStoppedError,
    StoreError,
)
from nbkit.launch.start import start_run
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import RunState
from nbkit.studies.executor import executing
from nbkit.studies.parameters import Parameters
from tests.waiting import patient, wait_until

LINGERS = """
import sys, time
from pathlib import Path
(Path(sys.argv[1]) / "begun").touch()
while (Path(sys.argv[1]) / "linger").exists():
    time.sleep(0.05)
"""


@pytest.fixture
def lingers(tmp_path):
    """Return a program that goes on while its folder has a file ``linger``."""
    (tmp_path / "lingers.py").write_text(LINGERS)
    (tmp_path / "linger").touch()
    return nbkit.script(tmp_path / "lingers.py", [tmp_path], device="cpu", gpus=1)


def run_that_lingers(tmp_path):
    """Wait until the program has begun; return its run."""
    wait_until((tmp_path / "begun").exists, "the program's begin", 120)
    [run] = [run for run in nbkit.runs() if not run.state.is_final]
    return run


@pytest.mark.waiting
def test_an_interrupted_study_goes_on_with_what_is_missing(
    lingers, capsys, monkeypatch, tmp_path
):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    (tmp_path / "quick.py").touch()
    quick = nbkit.script(tmp_path / "quick.py", device="cpu", gpus=1)
    arms = {"quick": quick, "slow": lingers}
    variables = {"OMP_NUM_THREADS": "1", "ONLY_OF_THE_STUDY": "1"}
    study = nbkit.Study.create("demo", arms, environment=variables)

    stopper = threading.Thread(target=lambda: run_that_lingers(tmp_path).stop())
    stopper.start()
    with pytest.raises(RunStoppedError) as stopped:
        study.run()
    stopper.join()
    (tmp_path / "linger").unlink()
    [by_hand] = [run for run in nbkit.runs() if run.state is RunState.STOPPED]

    assert study.study_id in stopped.value.__notes__[0]
    assert os.environ["OMP_NUM_THREADS"] == "2"
    assert "ONLY_OF_THE_STUDY" not in os.environ
    assert [slot.arm for slot in study.missing] == ["slow"]
    [quick] = study.runs_by_arm()["quick"]

    again = nbkit.Study.open(study.study_id).resume()

    assert again.missing == []
    assert [run.run_id for run in again.runs_by_arm()["quick"]] == [quick.run_id]
    [slow] = again.runs_by_arm()["slow"]
    assert slow.state is RunState.FINISHED
    assert slow.record["tags"] == {
        "study": study.study_id,
        "arm": "slow",
        "repeat": "0",
    }
    assert slow.record["environment"]["variables"]["OMP_NUM_THREADS"] == "1"
    assert os.environ["OMP_NUM_THREADS"] == "2"
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("[1/2] quick, repeat 1: finished") for line in lines)
    assert any(line.startswith("[2/2] slow, repeat 1: stopped") for line in lines)
    assert any(line.startswith("[1/1] slow, repeat 1: finished") for line in lines)

    checkpoint = by_hand.paths.checkpoints / "step_00000001"
    checkpoint.mkdir(parents=True)
    (checkpoint / "complete.json").touch()
    variables = by_hand.resume().wait().record["environment"]["variables"]
    assert (by_hand.state, variables["OMP_NUM_THREADS"]) == (RunState.FINISHED, "1")


def test_a_failed_rank_ends_the_study_with_its_cause(tmp_path, capsys):
    script = tmp_path / "train.py"
    script.write_text("raise ValueError('a bad file')")
    arms = {"bad": nbkit.script(script, device="cpu", gpus=1)}
    study = nbkit.Study.create("demo", arms)

    with pytest.raises(RunFailedError, match=r"on rank 0.*a bad file") as failed:
        study.run()

    assert failed.value.cause["rank"] == 0
    assert len(study.missing) == 1
    content = json.loads(study.paths.study.read_text())
    assert content["executor"] is None
    assert len(content["runs"]) == 1
    assert "failed on rank 0" in capsys.readouterr().out


def test_an_interrupt_stops_the_run_that_is_going_on(lingers, tmp_path):
    study = nbkit.Study.create("demo", {"slow": lingers})
    code = "import nbkit, sys; nbkit.Study.open(sys.argv[1]).run(progress=False)"
    with subprocess.Popen(
        [sys.executable, "-c", code, study.study_id],
        stderr=subprocess.PIPE,
        text=True,
    ) as executor:
        run = run_that_lingers(tmp_path)

        with pytest.raises(RunError, match=f"process {executor.pid} "):
            nbkit.Study.open(study.study_id).resume()
        executor.send_signal(signal.SIGINT)
        _, errors = executor.communicate(timeout=patient(60))

    assert "KeyboardInterrupt" in errors
    assert f"Study.open('{study.study_id}').resume() continues the study" in errors
    assert f"finished runs, run nbkit report {study.study_id}" in errors
    assert run.state is RunState.STOPPED
    assert run.cause["message"]


def test_the_plan_keeps_parameters_origins_and_configurations(small):
    parameters = Parameters({"gpus": 2}, {"gpus": "papermill"})

    study = nbkit.Study.create("demo", {"a": small()}, parameters=parameters)

    content = json.loads(study.paths.study.read_text())
    assert content["parameters"] == {"gpus": 2}
    assert content["parameter_sources"] == {"gpus": "papermill"}
    assert nbkit.Study.open(study.study_id).arms == {"a": small()}


def test_an_arm_and_its_control_stand_at_the_ends_of_every_repeat(small):
    arms = {"a": small(steps=4), "b": small(), "c": small()}

    study = nbkit.Study.create("demo", arms, repeats=2, control="b")

    order = [slot.arm for slot in study.order]
    assert order == ["b", "a", "c", "b again", "b again", "c", "a", "b"]
    assert study.control == ("b", "b again")
    assert list(study.arms) == ["a", "b", "c", "b again"]
    assert study.arms["b again"] == study.arms["b"]


def test_the_runs_of_a_control_are_not_called_like_those_of_its_arm(small):
    arms = {"a": small(name="nas load"), "b": small()}

    named = nbkit.Study.create("demo", arms, control="a").arms
    unnamed = nbkit.Study.create("demo", arms, control="b").arms

    assert named["a again"] == named["a"].replace(name="nas load again")
    assert unnamed["b again"].name == ""  # then the study calls them by the arm


def test_what_is_measured_once_comes_first_and_is_not_repeated(small):
    study = nbkit.Study.create(
        "demo", {"a": small()}, repeats=2, unrepeated={"links": small(task="allreduce")}
    )

    assert [(slot.arm, slot.repeat) for slot in study.order] == [
        ("links", 0),
        ("a", 0),
        ("a", 1),
    ]
    assert study.unrepeated == ["links"]


def test_a_control_has_to_be_an_arm_and_names_are_used_once(small):
    arms = {"a": small(), "a again": small()}

    with pytest.raises(ConfigError, match="control='b' is not an arm"):
        nbkit.Study.create("demo", arms, control="b")
    with pytest.raises(ConfigError, match="Two arms have the name 'a again'"):
        nbkit.Study.create("demo", arms, control="a")
    with pytest.raises(ConfigError, match="Two arms have the name 'a'"):
        nbkit.Study.create("demo", {"a": small()}, unrepeated={"a": small()})


def test_nothing_to_run_is_refused(small):
    with pytest.raises(ConfigError, match=r"arms=\[\]"):
        nbkit.Study.create("demo", {})
    with pytest.raises(ConfigError, match="repeats=0"):
        nbkit.Study.create("demo", {"a": small()}, repeats=0)


@pytest.mark.parametrize(
    ("asked", "kind", "words"),
    [
        ({"data": "/nowhere"}, ConfigError, "is not a folder or CSV file"),
        ({"nnodes": 2}, ConfigError, "engine='local' supports one node"),
        ({"device": "cuda"}, DeviceError, "GPU"),
    ],
)
def test_what_a_later_arm_is_refused_for_is_said_before_the_first_start(
    small, asked, kind, words
):
    study = nbkit.Study.create("s", {"a": small(), "b": small(**asked)})

    with pytest.raises(kind, match=words) as refused:
        study.run(progress=False)

    assert refused.value.__notes__[0] == "Requested by arm 'b' of the study."
    assert list(nbkit.runs()) == []


def test_a_study_that_does_not_exist_says_where_studies_are(store):
    with pytest.raises(StoreError, match=str(store)):
        nbkit.Study.open("20260101-000000-none-abcd")


def test_study_is_executed_once_at_a_time(small):
    study = nbkit.Study.create("demo", {"a": small()})

    with (
        executing(study.paths),
        pytest.raises(RunError, match=r"by another process\. W"),
    ):
        study.run(progress=False)

    assert list(nbkit.runs()) == []


def test_a_start_that_cannot_be_written_down_is_stopped(small, monkeypatch):
    study = nbkit.Study.create("demo", {"slow": small(model="slow", steps=10_000)})
    other = ProcessIdentity.of(1).to_dict()

    def start_and_lose_the_study(*arguments, **options):
        run = start_run(*arguments, **options)
        content = json.loads(study.paths.study.read_text())
        study.paths.study.write_text(json.dumps({**content, "executor": other}))
        return run

    monkeypatch.setattr("nbkit.studies.study.start_run", start_and_lose_the_study)
    with pytest.raises(RunError, match="is being executed by another"):
        study.run(progress=False)

    [run] = nbkit.runs()
    assert run.state is RunState.STOPPED
