"""Waiting for a quiet machine: until it is, or until patience is over."""

from __future__ import annotations

from itertools import chain, repeat
from types import SimpleNamespace

import pytest

from nbkit.errors import ConfigError
from nbkit.study import quiet
from nbkit.study.quiet import wait_for, wait_until_quiet
from nbkit.telemetry.sample import HostSample
from tests.telemetry.fake_nvml.fake_driver import FakeDriver, FakeGpu


def looks(*found):
    answers = chain(found, repeat(found[-1]))
    return lambda: next(answers)


def test_a_machine_is_quiet_when_it_was_for_three_looks_in_a_row():
    told, seen = [], []
    answers = looks({"CPUs": 0.97}, {}, {}, {"GPU 0": 0.5}, {})

    def busy():
        seen.append(answers())
        return seen[-1]

    wait = wait_until_quiet(600, told.append, busy)

    assert seen == [{"CPUs": 0.97}, {}, {}, {"GPU 0": 0.5}, {}, {}, {}]
    assert told == ["Waiting for a quiet machine, 600 s at most: CPUs 97 %."]
    assert (wait.busy, wait.is_quiet) == ({}, True)
    assert str(wait) == "Waited 0 s until the machine was quiet."


def test_patience_ends_on_a_machine_that_stays_busy():
    wait = wait_until_quiet(0.01, print, looks({"CPUs": 0.5, "GPU 3": 1.0}))

    assert str(wait).endswith("the machine was not quiet: CPUs 50 %, GPU 3 100 %.")


def test_a_free_moment_at_the_end_of_patience_is_no_quiet_machine():
    wait = wait_until_quiet(0.0, print, looks({}))

    assert str(wait).endswith("the machine was not quiet: now and then.")


def test_so_many_gpus_as_are_needed_have_to_be_idle(drive, monkeypatch):
    monkeypatch.setattr(quiet, "_LOOK_SECONDS", 0.0)
    idle = HostSample(cpu_percent=1)
    monkeypatch.setattr(quiet.HostReader, "read", lambda self: idle)
    monkeypatch.setattr(FakeDriver, "nvmlDeviceGetUtilizationRates", utilization)
    drive(FakeGpu("GPU-a"), FakeGpu("GPU-b"))

    one, two = (wait_until_quiet(0.01, print, gpus=count) for count in (1, 2))

    assert one.busy == {}
    assert two.busy == {"GPU 0": 0.97}


def utilization(driver, handle):
    return SimpleNamespace(gpu=97 if bytes(handle) == b"GPU-a" else 0, memory=0)


def test_runs_of_another_machine_are_not_waited_for_here(small):
    with pytest.raises(ConfigError, match="'manual' runs elsewhere; omit it"):
        wait_for([small(), small(engine="manual")], 600, print)


@pytest.mark.parametrize("patience", [-1, float("nan"), float("inf")])
def test_a_patience_that_is_no_time_is_refused(patience):
    with pytest.raises(ConfigError, match="pass a number of 0 or more"):
        wait_until_quiet(patience, print, looks({}))
