"""Slurm's programs, and a clock that only a test moves."""

from __future__ import annotations

import pytest

from tests.clocks import PlayedTime
from tests.slurm_programs import SlurmPrograms


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    return SlurmPrograms(tmp_path, monkeypatch)


@pytest.fixture
def clock(monkeypatch):
    """Return the clock of Slurm's answers."""
    return PlayedTime(monkeypatch, "nbkit.store.jobs")
