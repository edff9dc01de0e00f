"""Slurm's programs, and a clock that only a test moves."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from nbkit.store import jobs
from tests.slurm_programs import SlurmPrograms


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    return SlurmPrograms(tmp_path, monkeypatch)


@pytest.fixture
def clock(monkeypatch):
    """Return the time of Slurm's answers, in a list."""
    now = [1_000_000.0]
    clock = SimpleNamespace(
        monotonic=lambda: now[0], time=lambda: now[0], sleep=time.sleep
    )
    monkeypatch.setattr(jobs, "time", clock)
    return now
