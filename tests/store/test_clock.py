"""The clock of a run is not set while the run lasts."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from nbkit import clock


@pytest.fixture
def machine(monkeypatch):
    """Return the two clocks of a machine that a test sets; no run has begun."""
    monkeypatch.setenv(clock.CLOCK_VARIABLE, "")
    now = SimpleNamespace(wall=1e9, up=500.0)
    looks = {"time": lambda: now.wall, "monotonic": lambda: now.up}
    monkeypatch.setattr(clock, "time", SimpleNamespace(**looks))
    return now


@pytest.mark.parametrize("jump_seconds", [600.0, -20.0, -3600.0])
def test_clock_within_run(machine, jump_seconds):
    clock.start_clock()
    began = clock.now()

    machine.wall += 5.0 + jump_seconds
    machine.up += 5.0
    clock.start_clock()  # an agent on the supervisor's host

    assert (began, clock.now()) == (1e9, 1e9 + 5.0)


def test_clock_outside_run(machine):
    machine.wall -= 3600.0

    assert clock.now() == 1e9 - 3600.0
    assert clock.continue_clock("of an earlier attempt") == ""


@pytest.mark.parametrize(("boot", "expected"), [(None, 1e9 + 5.0), ("other", 2e9)])
def test_clock_of_attempt(machine, boot, expected):
    earlier = f"{boot or clock.boot_id()} {1e9 - 500.0!r}"
    machine.wall, machine.up = 2e9, 505.0

    assert clock.now(earlier) == expected
    clock.start_clock()
    clock.continue_clock(earlier)

    assert clock.now() == expected


@pytest.mark.parametrize("zero", ["nan", "inf", "1e300", "-1e12", "", "0x1"])
def test_clock_of_damaged_record(machine, zero):
    assert clock.now(f"{clock.boot_id()} {zero}") == machine.wall
    assert clock.now(7) == machine.wall


def test_clock_is_inherited_by_children():
    zero = 5e9 - time.monotonic()
    code = "from nbkit import clock; print(clock.now())"
    told = f"{clock.boot_id()} {zero!r}"
    environment = {**os.environ, clock.CLOCK_VARIABLE: told}

    found = subprocess.check_output([sys.executable, "-c", code], env=environment)

    assert 5e9 <= float(found) <= zero + time.monotonic()
