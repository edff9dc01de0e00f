"""`nbkit try`, with scripts in a repository."""

from __future__ import annotations

import json
import subprocess

import pytest

from nbkit.cli.main import main

SCRIPT = """
import os, random, sys
from part import FACTOR
noise = random.Random(f"{FACTOR} {os.environ['STUDY_REPEAT']}").gauss(0, 0.002)
print("loss:", FACTOR * (1 + noise) * float(sys.argv[1]))
"""


@pytest.fixture
def repository(tmp_path, monkeypatch):
    def git(*arguments):
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)

    folder = tmp_path / "repository"
    (folder / "code").mkdir(parents=True)
    (folder / "code" / "train.py").write_text(SCRIPT)
    (folder / "code" / "part.py").write_text("FACTOR = 0.5\n")
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "-m", "first")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path / "store"))
    return folder


def run(*arguments):
    metric = ("--metric", "loss", "--better", "lower", "--device", "cpu")
    return main(["try", "code/train.py", *metric, *arguments, "--", "2"])


def test_try_compares_the_files_of_now_with_a_commit(repository, capsys):
    (repository / "code" / "part.py").write_text("from other import FACTOR\n")
    (repository / "code" / "other.py").write_text("FACTOR = 0.4\n")

    code = run("--repeats", "2", "--json")

    result = json.loads(capsys.readouterr().out)
    assert (code, result["verdict"]) == (1, "not enough runs")
    base, new = (sum(row["values"]) / 2 for row in result["rows"])
    assert base == pytest.approx(1.0, rel=0.02)
    assert new == pytest.approx(0.8, rel=0.02)
    listed = subprocess.run(
        ["git", "worktree", "list"], capture_output=True, text=True, check=True
    ).stdout
    assert listed.count("\n") == 1  # the copies are gone


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "are the same as at HEAD"),
        (("--against", "v9"), "git rev-parse --verify v9"),
    ],
)
def test_try_refuses_what_cannot_be_compared(repository, capsys, arguments, words):
    assert run(*arguments) == 2
    assert words in capsys.readouterr().err
