"""Waiting for an idle machine: until it is, or until patience is over."""

from __future__ import annotations

import importlib
import json
from itertools import chain, repeat
from types import SimpleNamespace

import pytest

import nbkit
from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError
from nbkit.questions.machines.planning import measure
from nbkit.questions.study_report import make
from nbkit.studies import idle_machine
from nbkit.studies.idle_machine import wait_for, wait_until_idle
from nbkit.telemetry.sample import HostSample
from tests.studies.written_study import write_runs
from tests.telemetry.fake_nvml.fake_driver import FakeDriver, FakeGpu


def looks(*found):
    return chain(found, repeat(found[-1]))


@pytest.fixture
def still(monkeypatch):
    """Let the clock stand: a test may have to wait for its CPU between two looks."""
    monkeypatch.setattr(idle_machine, "time", SimpleNamespace(monotonic=lambda: 0.0))


def test_a_machine_is_quiet_when_it_was_for_three_looks_in_a_row(still):
    told = []
    seen = iter([{"CPUs": 0.97}, {}, {}, {"GPU 0": 0.5}, {}, {}, {}, {"GPU 1": 0.5}])

    wait = wait_until_idle(600, told.append, seen)

    assert [*seen] == [{"GPU 1": 0.5}]
    assert told == ["Waiting for an idle machine, up to 600 s: CPUs 97%."]
    assert (wait.busy, wait.is_idle) == ({}, True)
    assert str(wait) == "Waited 0 s until the machine was idle."


def test_patience_ends_on_a_machine_that_stays_busy():
    wait = wait_until_idle(0.01, print, looks({"CPUs": 0.5, "GPU 3": 1.0}))

    assert str(wait).endswith("busy after 0 s: CPUs 50%, GPU 3 100%.")


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([{}], "Waited 0 s until the machine was idle."),
        ([{}, {"CPUs": 0.5}], "busy after 0 s: CPUs 50%."),
    ],
)
def test_a_quiet_look_at_the_end_of_patience_is_followed_until_it_is_clear(
    found, words, still
):
    assert str(wait_until_idle(0.0, print, looks(*found))).endswith(words)


@pytest.fixture
def gpus(drive, monkeypatch):
    """Have four GPUs, of which the first one is busy, and idle CPUs."""
    monkeypatch.setattr(idle_machine, "LOOK_SECONDS", 0.0)
    idle = HostSample(cpu_percent=1)
    monkeypatch.setattr(idle_machine.HostReader, "read", lambda self: idle)
    monkeypatch.setattr(FakeDriver, "nvmlDeviceGetUtilizationRates", utilization)
    drive(*(FakeGpu(f"GPU-{letter}") for letter in "abcd"))


@pytest.mark.usefixtures("gpus")
@pytest.mark.parametrize(
    ("device", "visible", "busy"),
    [
        ("cuda", "0,1,2,3", {"GPU 0": 0.97}),
        ("cuda", "2,3", {}),
        ("cpu", "0,1,2,3", {}),
    ],
)
def test_wait_for_visible_gpus(device, visible, busy, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    configs = [ExperimentConfig(device="cpu"), ExperimentConfig(device=device)]

    assert wait_for(configs, 0.01, print, {}).busy == busy


def utilization(driver, handle):
    return SimpleNamespace(gpu=97 if bytes(handle) == b"GPU-a" else 0, memory=0)


def test_runs_of_another_machine_are_not_waited_for_here(small):
    with pytest.raises(ConfigError, match="'manual' runs on other machines"):
        wait_for([small(), small(engine="manual")], 600, print, {})


@pytest.mark.parametrize("patience", [-1, float("nan"), float("inf")])
def test_a_patience_that_is_no_time_is_refused(patience):
    with pytest.raises(ConfigError, match="is not a finite time of 0 s or more"):
        wait_until_idle(patience, print, looks({}))


def test_what_precedes_a_study_waits_where_it_is_asked_to(monkeypatch, capsys):
    monkeypatch.setattr(idle_machine, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(idle_machine.HostReader, "read", lambda self: HostSample(50.0))
    configs = [ExperimentConfig(device="cpu")]

    idle_machine.wait_before(configs, 0.0)
    assert capsys.readouterr().out == ""

    idle_machine.wait_before(configs, 0.01)
    assert "busy after 0 s: CPUs 50%." in capsys.readouterr().out


class WaitedError(Exception):
    pass


@pytest.mark.parametrize(
    "module",
    [
        "storage.reads",
        "input_pipeline.tuner",
        "inference.start",
        "chexnet.baseline",
    ],
)
def test_nothing_is_measured_before_the_machine_is_quiet(monkeypatch, module):
    found = importlib.import_module(f"nbkit.questions.{module}")
    config = ExperimentConfig(device="cpu")
    plan = SimpleNamespace(
        arms={"a": config},
        tuned=config,
        training=config,
        prepared={},
        wait_for_idle=600.0,
    )

    def wait(configs, patience_seconds):
        raise WaitedError([*configs], patience_seconds)

    monkeypatch.setattr(found, "wait_before", wait)
    with pytest.raises(WaitedError) as raised:
        found.prepare(plan)

    assert raised.value.args == ([config], 600.0)


def test_machines_are_measured_once_this_one_is_quiet(monkeypatch):
    asked = {}
    study = SimpleNamespace(run=lambda **given: asked.update(given))
    create = SimpleNamespace(create=lambda *_, **__: study)
    monkeypatch.setattr("nbkit.questions.machines.planning.Study", create)
    plan = SimpleNamespace(
        arms={"a": None},
        repeats=1,
        parameters=None,
        unrepeated={},
        environment={},
        wait_for_idle=600.0,
    )
    plan.minutes = None

    measure(plan)

    assert asked == {"wait_for_idle": 600.0}


def test_a_study_says_how_long_it_has_waited_for_a_quiet_machine(small, monkeypatch):
    monkeypatch.setattr(idle_machine, "LOOK_SECONDS", 0.0)
    study = nbkit.Study.create("quiet", {"a": small(steps=3)}, repeats=2)
    write_runs(study, {"a": 100.0})
    content = json.loads(study.paths.study.read_text())
    study.paths.study.write_text(json.dumps({**content, "runs": content["runs"][:1]}))

    def start_run(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("nbkit.studies.study.start_run", start_run)
    with pytest.raises(KeyboardInterrupt):
        study.run(progress=False, wait_for_idle=0.01)

    [wait] = study.waits
    assert str(wait) in make(study).method
