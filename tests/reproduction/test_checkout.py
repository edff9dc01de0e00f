"""The code of a written run, restored from its commit and its saved diff."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import nbkit
from nbkit.errors import RunError
from nbkit.launch.code.provenance import describe_code, describe_environment
from nbkit.launch.code.variables import rank_variables
from nbkit.launch.run import Run
from nbkit.reproduction.checkout import Checkout
from nbkit.reproduction.comparison import run_facts
from nbkit.store.record import write_json
from nbkit.telemetry.machine import describe_machine
from tests.checkouts import commit_all, git
from tests.hostile.written import write_run

BEFORE = {
    "latin.py": b"# caf\xe9\nx = 1\n",
    "lines.py": b"x = 1\r\ny = 2\r\n",
    "sub/notes.txt": b"one\ntwo\nthree\nfour\nfive\n",
    "zeros.npy": bytes(4000),
}
AFTER = {
    "latin.py": b"# caf\xe9s\nx = 2\n",
    "lines.py": b"x = 1\r\ny = 3\r\n",
    "sub/notes.txt": b"one\ntwo\n3\nfour\nfive",
    "zeros.npy": bytes(range(256)) * 16,
}
FOR_READING = {
    "color.ui": "always",
    "diff.context": "0",
    "diff.external": "echo",
    "diff.notes.textconv": "wc -l",
    "diff.noprefix": "true",
    "diff.relative": "true",
    "diff.submodule": "log",
}


def _write(top: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_bytes(content)


@pytest.fixture
def top(tmp_path: Path) -> Path:
    top = tmp_path / "checkout"
    _write(top, {**BEFORE, ".gitattributes": b"*.txt diff=notes\n"})
    commit_all(top)
    return top


def _run_in(folder: Path) -> Run:
    """Write a run that was launched in a folder, as it is now."""
    run = write_run("finished", task="function")
    described = {
        "code": describe_code(folder, run.paths),
        "environment": describe_environment(
            run.paths, rank_variables(run.config, run.paths)
        ),
        "machine": describe_machine(gpus=False),
    }
    write_json(run.paths.record, {**run.record, **described})
    write_json(run.paths.submission, {**run.submission, "cwd": str(folder)})
    return run


def _record_code(run: Run, **fields: object) -> None:
    code = {**run.record["code"], **fields}
    write_json(run.paths.record, {**run.record, "code": code})


@pytest.mark.parametrize("settings", [{}, FOR_READING], ids=["plain", "for reading"])
def test_changed_files_are_restored_to_the_last_byte(top, settings):
    for name, value in settings.items():
        git(top, "config", name, value)
    _write(top, AFTER)
    run = _run_in(top / "sub")
    _write(top, BEFORE)

    Checkout.of(run).write(run.paths.worktree, run)

    restored = {name: (run.paths.worktree / name).read_bytes() for name in AFTER}
    assert restored == AFTER
    # One encoding for all files does not exist, and all the same they are compared.
    assert "+x = 2" in run_facts(run).code["diff.patch"]


def test_strict_refuses_a_run_whose_uncommitted_changes_are_unknown(top):
    run = _run_in(top)
    _record_code(run, diff=None, dirty=None)  # git did not answer in time

    with pytest.raises(RunError, match=r"uncommitted changes +diff +– +not kept"):
        nbkit.reproduce(run, code="original", strict=True)


def test_a_run_goes_to_its_folder_in_another_checkout(top, tmp_path, monkeypatch):
    run = _run_in(top / "sub")
    other = tmp_path / "other"
    git(tmp_path, "clone", "-q", str(top), str(other))
    shutil.rmtree(top)
    monkeypatch.chdir(other)

    checkout = Checkout.of(run)
    checkout.write(run.paths.worktree, run)

    assert checkout.original == top
    assert checkout.folder(run.paths.worktree) == run.paths.worktree / "sub"


def test_a_record_names_no_folder_outside_the_restored_files(top):
    run = _run_in(top)
    _record_code(run, folder="../..")

    checkout = Checkout.of(run)
    checkout.write(run.paths.worktree, run)

    assert checkout.folder(run.paths.worktree) == run.paths.worktree


def test_a_diff_that_the_record_does_not_name_is_not_compared(top):
    run = _run_in(top)
    (run.paths.code / "diff.patch").write_text("+x = 2\n")

    assert "diff.patch" not in run_facts(run).code
