"""Studies launch real runs: the same store, plug-in and experiments as launching."""

from __future__ import annotations

import os

import pytest

from tests.launch.conftest import plugins, small, store
from tests.telemetry.conftest import drive

__all__ = ["drive", "plugins", "small", "store"]

COMMANDS = ("sbatch", "srun", "squeue", "scontrol", "scancel", "sinfo")


@pytest.fixture
def cluster(tmp_path, monkeypatch, store):
    """Return what makes this a login node, whose cluster has nodes with `gres`."""

    def make(gres):
        folder = tmp_path / "slurm"
        folder.mkdir()
        for name in COMMANDS:
            command = folder / name
            command.write_text(f"#!/bin/sh\necho 'debug*|{gres}'\n")
            command.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    return make
