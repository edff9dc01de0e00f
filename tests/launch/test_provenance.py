"""What code and packages a run is recorded with."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from nbkit.launch.code.provenance import describe_code, describe_environment
from nbkit.store.paths import RunPaths
from tests.checkouts import commit_all, git

BEFORE = {
    "latin.py": b"# caf\xe9\nx = 1\n",
    "lines.py": b"x = 1\r\ny = 2\r\n",
    "notes.txt": b"one\ntwo\nthree\nfour\nfive\n",
    "zeros.npy": bytes(4000),
}
AFTER = {
    "latin.py": b"# caf\xe9s\nx = 2\n",
    "lines.py": b"x = 1\r\ny = 3\r\n",
    "notes.txt": b"one\ntwo\n3\nfour\nfive",
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


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    (tmp_path / "run").mkdir()
    return RunPaths(tmp_path / "run")


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """Return a checkout with a folder of notebooks, and all committed."""
    top = tmp_path / "checkout"
    (top / "notebooks").mkdir(parents=True)
    (top / "notebooks" / "a.ipynb").write_text("{}\n")
    (top / "mine.py").write_text("x = 1\n")
    commit_all(top)
    return top


def test_describe_code_untracked_files(top, paths):
    (top / "new.py").touch()
    (top / "notebooks" / "new.py").touch()
    (top / "__pycache__").mkdir()
    (top / "__pycache__" / "mine.pyc").touch()

    code = describe_code(top / "notebooks", paths)

    assert (code["untracked"], code["dirty"]) == (2, True)


def test_describe_code_keeps_the_index(top, paths):
    os.utime(top / "mine.py", (1, 1))
    index = top / ".git" / "index"
    before = index.read_bytes()

    code = describe_code(top, paths)

    assert code["dirty"] is False
    assert index.read_bytes() == before


def test_describe_code_older_git(top, paths, tmp_path, monkeypatch):
    older = tmp_path / "bin" / "git"
    older.parent.mkdir()
    older.write_text(
        '#!/bin/sh\nfor one; do [ "$one" = --no-relative ] && exit 129; done\n'
        f'exec {shutil.which("git")} "$@"\n'
    )
    older.chmod(0o755)
    monkeypatch.setenv("PATH", str(older.parent), prepend=os.pathsep)
    (top / "mine.py").write_text("x = 2\n")

    code = describe_code(top, paths)

    assert (code["diff"], code["dirty"]) == ("code/diff.patch", True)


def _write(top: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (top / name).write_bytes(content)


@pytest.mark.parametrize("settings", [{}, FOR_READING], ids=["plain", "for reading"])
def test_describe_code_applicable_diff(top, paths, settings):
    _write(top, {**BEFORE, ".gitattributes": b"*.txt diff=notes\n"})
    commit_all(top)
    for name, value in settings.items():
        git(top, "config", name, value)
    _write(top, AFTER)

    describe_code(top / "notebooks", paths)

    git(top, "reset", "-q", "--hard")
    git(top, "apply", "--whitespace=nowarn", str(paths.code / "diff.patch"))
    assert {name: (top / name).read_bytes() for name in AFTER} == AFTER


def test_describe_code_stale_diff(top, paths):
    (top / "mine.py").write_text("x = 2\n")
    assert describe_code(top, paths)["diff"] == "code/diff.patch"
    commit_all(top)

    code = describe_code(top, paths)

    assert (code["diff"], code["dirty"]) == (None, False)
    assert not (paths.code / "diff.patch").exists()


def test_describe_environment_shadowed_version(tmp_path, paths, monkeypatch):
    for version in ("1.0", "2.0"):  # the last one comes first
        info = tmp_path / version / f"shadowed-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Name: shadowed\nVersion: {version}\n")
        monkeypatch.syspath_prepend(info.parent)

    describe_environment(paths, {})

    lines = (paths.code / "packages.txt").read_text().splitlines()
    assert [one for one in lines if one.startswith("shadowed=")] == ["shadowed==2.0"]


def test_describe_environment_removed_run(paths):
    paths.root.rmdir()
    with pytest.raises(FileNotFoundError):
        describe_environment(paths, {})
    assert not paths.root.exists()
