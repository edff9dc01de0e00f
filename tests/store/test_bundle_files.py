"""Files of a bundle that are more than their content, and imports that break off."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

import nbkit
from nbkit.store.paths import runs_folder
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import write_json
from nbkit.store.stored_runs import StoredRun
from tests.store.test_bundle import _run


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path / "here"))


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Return a switch to the store of another machine."""
    return lambda: monkeypatch.setenv("NBKIT_HOME", str(tmp_path / "elsewhere"))


def test_a_file_whose_name_is_not_utf8_is_left_out_and_named(tmp_path, elsewhere):
    run = _run()
    Path(os.fsdecode(os.fsencode(run.paths.root) + b"/caf\xe9.txt")).touch()

    with pytest.warns(UserWarning, match=r"caf\\udce9\.txt \(its name is not UTF-8"):
        bundle = nbkit.export(run, tmp_path / "x.zip")
    elsewhere()

    assert nbkit.import_bundle(bundle).run_ids == (run.run_id,)


def test_what_its_user_may_execute_stays_so_and_no_more(tmp_path, elsewhere):
    run = _run()
    for name, mode in (("tool", 0o4755), ("own", 0o700), ("text", 0o644)):
        (run.paths.code / name).touch()
        (run.paths.code / name).chmod(mode)
    bundle = nbkit.export(run, tmp_path / "x.zip")
    elsewhere()

    before = os.umask(0o022)
    try:
        nbkit.import_bundle(bundle)
    finally:
        os.umask(before)

    code = StoredRun(runs_folder() / run.run_id).paths.code
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in code.iterdir()}
    assert modes == {"tool": 0o755, "own": 0o700, "text": 0o644}


def test_an_import_removes_what_killed_ones_have_left(tmp_path, elsewhere):
    bundle = nbkit.export(_run(), tmp_path / "x.zip")
    elsewhere()
    me = ProcessIdentity.of().to_dict()
    writers = {
        "killed": {**me, "start_ticks": -1},
        "writing": me,
        "unseen": {**me, "host": "elsewhere", "boot_id": "b"},
    }
    for name, writer in writers.items():
        staging = runs_folder() / f".import-{name}"
        (staging / "runs").mkdir(parents=True)
        write_json(staging / "process.json", writer)

    nbkit.import_bundle(bundle)

    left = sorted(path.name for path in runs_folder().glob(".import-*"))
    assert left == [".import-unseen", ".import-writing"]
