"""Runs of which a test writes the files, to be brought from elsewhere."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import nbkit
from nbkit.config import ExperimentConfig
from nbkit.launch.code.entry import function_entry
from nbkit.launch.run import Run
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import read_json, write_json
from nbkit.store.stored_runs import create_run_folder

__all__ = ["imported", "store_at", "write_run"]


def write_run(
    state: str = "stopped", *, entry: dict[str, Any] | None = None, **fields: Any
) -> Run:
    """Write a run that has ended, with a checkpoint."""
    fields = {"gpus": 1, "device": "cpu", **fields}
    config = ExperimentConfig.from_store(json.dumps(fields))
    paths = create_run_folder(config)
    if config.has_entry:
        with pytest.MonkeyPatch.context() as patch:
            # Here every module of every test is a loaded module of the user's.
            patch.setattr("nbkit.launch.code.entry.is_local", lambda _: False)
            function_entry(os.getcwd).write(paths)
        public, private = (read_json(one) or {} for one in (paths.entry, paths.private))
        for name, value in (entry or {}).items():
            (private if name in private else public)[name] = value
        write_json(paths.entry, public)
        write_json(paths.private, private, 0o600)
    gone = {**ProcessIdentity.of().to_dict(), "start_ticks": -1}
    told = {"attempt": 0, "supervisor": gone, "owner": gone, "cwd": str(paths.root)}
    write_json(paths.submission, told)
    record = {"attempt": 0, "state": state, "name": "x", "supervisor": gone, "time": {}}
    write_json(paths.record, record)
    (paths.checkpoints / "step_00000005").mkdir(parents=True)
    (paths.checkpoints / "step_00000005" / "complete.json").write_text("{}")
    return Run(paths.root)


def store_at(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Go to another machine's store."""
    monkeypatch.setenv("NBKIT_HOME", str(folder))


def imported(what: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Bring runs, or a study, to another store; return the runs' ids."""
    path = tmp_path / "bundle.zip"
    bundle = nbkit.export(what, path, checkpoints=True, include_arguments=True)
    store_at(tmp_path / "here", monkeypatch)
    return list(nbkit.import_bundle(bundle).run_ids)
