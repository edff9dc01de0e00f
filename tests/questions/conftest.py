"""Studies launch real runs: the same store, plug-in and experiments as launching."""

from __future__ import annotations

import json
import os
from types import ModuleType

import pytest

import nbkit
from nbkit.local_modules import is_local
from nbkit.store.metrics import to_json_line
from nbkit.store.nonfinite import NonFinite
from nbkit.store.record import read_json, write_json
from nbkit.studies.parameters import check_parameters
from nbkit.studies.study import Study
from tests.golden.reports import imported
from tests.launch.conftest import plugins, small, store
from tests.telemetry.conftest import drive

__all__ = ["LOST", "drive", "few_sources", "plugins", "small", "store"]

COMMANDS = ("sbatch", "srun", "squeue", "scontrol", "scancel", "sinfo")
LOST = NonFinite("loss", 3)


@pytest.fixture(autouse=True)
def few_sources(monkeypatch):
    """Keep the suite's own modules, which are hundreds, out of what runs keep."""

    def is_kept(module):
        named = vars(module).get("__name__") if isinstance(module, ModuleType) else None
        return not str(named).startswith("tests.") and is_local(module)

    monkeypatch.setattr("nbkit.launch.code.entry.is_local", is_kept)


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


@pytest.fixture
def golden(store, tmp_path):
    """Return what opens a study of a golden case, its plan changed in its file."""

    stored = {}

    def open_study(case, change=lambda plan: None):
        if case not in stored:
            paths = imported(case, tmp_path).paths
            stored[case] = paths, paths.study.read_text()
        paths, text = stored[case]
        content = json.loads(text)
        change(content["plan"])
        write_json(paths.study, content)
        return Study.open(content["study_id"])

    return open_study


@pytest.fixture
def lose():
    """Return what lets runs not be finite, and be ended there unless said otherwise."""
    cause = {"kind": "nonfinite", "rank": 0, "message": str(LOST), "log": None}

    def end(runs, *, ended=True):
        for run in runs:
            worker = read_json(run.paths.worker) or {}
            worker |= {"nonfinite": LOST.to_dict(), "completed": not ended}
            write_json(run.paths.worker, worker)
            failed = {"state": "failed", "cause": cause} if ended else {}
            write_json(run.paths.record, {**run.record, **failed, "worker": worker})

    return end


def edit_metrics(runs, change, kind="step"):
    """Change every line of a kind in the metrics of runs."""
    for run in runs:
        lines = [
            json.loads(line) for line in run.paths.metrics.read_text().splitlines()
        ]
        for line in lines:
            if line["kind"] == kind:
                change(line)
        run.paths.metrics.write_text("".join(map(to_json_line, lines)))


def notebook_parameters(question, **given):
    """Return the parameters of a notebook, on CPUs unless said otherwise."""
    content = json.loads(nbkit.notebook(question).read_text())
    [cell] = [cell for cell in content["cells"] if cell["metadata"].get("tags")]
    given = {"device": "cpu", **given}
    lines = [f"{name} = {value!r}" for name, value in given.items()]
    injected = "\n".join(["# Parameters", *lines])
    return check_parameters(["".join(cell["source"]), injected], given, question)
