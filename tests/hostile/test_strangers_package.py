"""The package called nbkit on the package index, which is another project's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import nbkit
from nbkit.launch.code.provenance import describe_environment
from nbkit.store.paths import RunPaths
from nbkit.telemetry.software import software

VERSION = "0.0.10"


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install another distribution called nbkit, found before all others."""
    info = tmp_path / "site" / f"nbkit-{VERSION}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Name: nbkit\nVersion: {VERSION}\n")
    monkeypatch.syspath_prepend(info.parent)
    return info.parent


def test_a_strangers_version_is_not_recorded_as_nbkits(stranger, tmp_path):
    paths = RunPaths(tmp_path / "run")
    paths.root.mkdir()

    packages = describe_environment(paths, {})["packages"]

    assert packages["nbkit"] == software()["nbkit"] == nbkit.__version__ != VERSION
    # It is one of the packages that were there.
    assert f"nbkit=={VERSION}\n" in (paths.code / "packages.txt").read_text()


def test_a_strangers_version_is_not_told_as_nbkits(stranger):
    path = os.pathsep.join([str(stranger), os.environ.get("PYTHONPATH", "")])

    told = subprocess.check_output(
        [sys.executable, "-m", "nbkit", "--version"],
        env={**os.environ, "PYTHONPATH": path},
        text=True,
    )

    assert told == f"nbkit {nbkit.__version__}\n" != f"nbkit {VERSION}\n"
