"""`nbkit try`, with scripts in a repository."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

import nbkit
from nbkit.cli.main import main
from nbkit.errors import ConfigError, RunError
from nbkit.launch.code.worktrees import find_change
from nbkit.questions.study_report import make
from nbkit.store.locks import locked
from nbkit.store.paths import store_folder, studies_folder, trial_lock
from nbkit.store.processes import hostname

SCRIPT = """
import os, random, signal, sys, time
from part import FACTOR
if FACTOR == 0.4 and os.environ["STUDY_REPEAT"] == os.environ.get("INTERRUPTED"):
    os.kill(int(os.environ["CALLER"]), signal.SIGINT)
    time.sleep(600)
noise = random.Random(f"{FACTOR} {os.environ['STUDY_REPEAT']}").gauss(0, 0.002)
for file in sys.argv[2:]:
    with open(file) as lines:
        FACTOR *= float(lines.read())
open("written.txt", "w").close()
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
    (folder / "config.txt").write_text("1.0")
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "-m", "first")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path / "store"))
    return folder


def run(*arguments, factor="2", files=()):
    metric = ("--metric", "loss", "--better", "lower", "--device", "cpu")
    return main(["try", "code/train.py", *metric, *arguments, "--", factor, *files])


def worktrees():
    command = ["git", "worktree", "list", "--porcelain"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    return listed.stdout.count("worktree ")


def test_try_compares_the_files_of_now_with_a_commit(repository, monkeypatch, capsys):
    # A package is imported as an editable installation does it.
    package = repository / "lib" / "constants.py"
    package.parent.mkdir()
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    package.write_text("FACTOR = 0.5\n")
    (repository / "code" / "part.py").write_text(
        "try:\n    from late import FACTOR\n"
        "except ImportError:\n"
        "    try:\n        from later import FACTOR\n"
        "    except ImportError:\n        from constants import FACTOR\n"
    )
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "--quiet", "-m", "package"], check=True)
    package.write_text("FACTOR = 0.4\n")
    (repository / "code" / "part.py").write_text("from other import FACTOR\n")
    (repository / "code" / "other.py").write_text(
        "from constants import FACTOR as HALF\nFACTOR = 2 * HALF\n"
    )
    # A new module is of the new version alone; new data are of both, staged or not.
    (repository / "code" / "late.py").write_text("FACTOR = 7.0\n")
    (package.parent / "later.py").write_text("FACTOR = 8.0\n")
    (repository / "config.txt").write_text("0.5")
    (repository / "data").mkdir()
    for folder in (repository / "data", repository.parent):
        (folder / "scale.txt").write_text("1.0")
    subprocess.run([*git, "add", "data"], check=True)
    files = ("config.txt", "data/scale.txt", "../scale.txt")
    others = [".nbkit-try-new-elsewhere", ".nbkit-try-new-running"]
    for name in (*others, ".nbkit-try-new-killed"):
        command = ["git", "worktree", "add", "--detach", f"../{name}", "HEAD"]
        subprocess.run(command, check=True, capture_output=True)
    locks = [trial_lock(hostname(), key) for key in ("killed", "running")]
    locks[0].parent.mkdir(parents=True)
    locks[0].touch()
    trial_lock("another-host", "elsewhere").touch()

    with locked(locks[1]):
        code = run("--repeats", "1", "--json", files=files)

    result = json.loads(capsys.readouterr().out)
    assert (code, result["verdict"]) == (1, "not enough runs")
    base, new = (row["values"][0] for row in result["rows"])
    assert base == pytest.approx(1.0, rel=0.02)
    assert new == pytest.approx(0.8, rel=0.02)
    assert worktrees() == 3  # the copies are gone
    left = [path.name for path in repository.parent.iterdir()]
    assert sorted(left) == [*others, "repository", "scale.txt", "store"]
    assert (repository / "data" / "scale.txt").read_text() == "1.0"
    assert not (repository / "written.txt").exists()


def test_try_imports_what_is_installed(repository, monkeypatch, capsys):
    # Of an environment and a store in the repository that git does not ignore, nothing
    # is of the change; setuptools' finder knows an editable package.
    packages = repository / "environment" / "lib" / "python3.11" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "halves.py").write_text("HALF = 0.5\n")
    constants = repository / "lib" / "constants"
    constants.mkdir(parents=True)
    (constants / "__init__.py").write_text("FACTOR = 2.0\n")
    (repository / "code" / "part.py").write_text(
        "import constants, halves\nFACTOR = constants.FACTOR * halves.HALF\n"
    )
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "add", "code", "lib"], check=True)
    subprocess.run([*git, "commit", "--quiet", "-m", "package"], check=True)
    (constants / "__init__.py").write_text("FACTOR = 1.6\n")
    finder = SimpleNamespace(MAPPING={"constants": str(constants)})
    monkeypatch.setitem(sys.modules, "__editable___constants_finder", finder)
    monkeypatch.syspath_prepend(str(packages))
    monkeypatch.setenv("NBKIT_HOME", str(repository / "results" / "store"))
    before = find_change(repository / "code" / "train.py", "HEAD").trees

    run("--repeats", "1", "--json", factor="1")

    result = json.loads(capsys.readouterr().out)
    base, new = (row["values"][0] for row in result["rows"])
    assert (base, new) == pytest.approx((1.0, 0.8), rel=0.02)
    assert find_change(repository / "code" / "train.py", "HEAD").trees == before


def test_try_continues_what_was_interrupted(repository, monkeypatch, capsys):
    (repository / "code" / "part.py").write_text("FACTOR = 0.4\n")
    factor = "2.0000000001"
    monkeypatch.setenv("CALLER", str(os.getpid()))
    monkeypatch.setenv("INTERRUPTED", "1")
    assert run("--repeats", "2", factor=factor) == 130
    printed = capsys.readouterr()
    command = "nbkit try code/train.py --metric loss --better lower --repeats 2"
    assert f"`{command} --device cpu -- ...` continues the study" in printed.out
    study = nbkit.Study.open(printed.err.split("study ")[1].split()[0])
    assert make(study).next_step.startswith(f"`{command}")
    study.paths.imported.write_text('{"time": "", "host": "", "exported": ""}')
    assert make(study).next_step.startswith("nbkit.Study.open(")
    study.paths.imported.unlink()
    assert factor not in study.paths.study.read_text()
    finished = study.runs_by_arm()["base"][0]
    for again in (study.resume, lambda: nbkit.reproduce(finished)):
        with pytest.raises(RunError, match=f"was removed. `{command}"):
            again()
    assert run("--repeats", "2", "--json", factor=factor) == 130
    assert f"`{command}" in capsys.readouterr().err
    for limits in (("--repeats", "1"), ("--repeats", "2", "--parallel", "1")):
        assert run(*limits, factor=factor) == 3
        words = f"{study.study_id} of this change was interrupted with repeats=2, paral"
        assert words in capsys.readouterr().err
    # What a killed process leaves, and what `import sklearn` sets.
    [lock] = (store_folder() / "trials").iterdir()
    (repository.parent / f".nbkit-try-base-{lock.name[-12:]}").mkdir()
    monkeypatch.setenv("KMP_INIT_AT_FORK", "FALSE")
    monkeypatch.delenv("INTERRUPTED")

    trial = nbkit.try_(
        "code/train.py",
        [factor],
        metric="loss",
        better="lower",
        margin=0,
        repeats=2,
        device="cpu",
        progress=False,
    )

    assert trial.study.study_id == study.study_id
    assert f"study {study.study_id} continues" in capsys.readouterr().err
    assert (trial.verdict, len(nbkit.runs())) == ("not enough runs", 6)
    base, new = (sum(row["values"]) / 2 for row in trial.report.result["rows"])
    assert base == pytest.approx(1.0, rel=0.02)
    assert new == pytest.approx(0.8, rel=0.02)
    assert worktrees() == 1


def test_try_gives_a_verdict_of_a_change_once_and_states_it(
    repository, monkeypatch, capsys
):
    part = repository / "code" / "part.py"
    part.write_text("FACTOR = 0.9\n")
    assert run() == 2  # worse, and ended early
    first = capsys.readouterr()
    study = nbkit.Study.open(first.err.split("study ")[1].split()[0])
    count = len(nbkit.runs())
    for name, content in (("20990101-a", "{"), ("20990102-b", '{"plan": [1]}')):
        folder = studies_folder() / name
        folder.mkdir()
        (folder / "study.json").write_text(content)

    assert run("--repeats", "7") == 2

    second = capsys.readouterr()
    assert first.out.endswith(second.out)
    assert len(nbkit.runs()) == count
    assert f"study {study.study_id} has measured this change" in second.err
    assert "has measured this change (repeats=5). Its stored result" in second.err
    [lock] = (store_folder() / "trials").iterdir()
    with locked(lock):
        assert run() == 3
    assert "is being measured by another process. Repeat" in capsys.readouterr().err
    [note] = [note for note in make(study).method if note.startswith("base: HEAD (")]
    assert "with uncommitted changes (1 file changed, 1 insertion(+), 1 dele" in note
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert run("--repeats", "1") == 1
    assert len(nbkit.runs()) == count + 2
    assert "-FACTOR = 0.5\n+FACTOR = 0.9\n" in study.paths.change.read_text()
    subprocess.run(["git", "apply", "--reverse", study.paths.change], check=True)
    assert part.read_text() == "FACTOR = 0.5\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "are unchanged since HEAD"),
        (("--against", "v9"), "against='v9' is not a commit of"),
    ],
)
def test_try_refuses_what_cannot_be_compared(repository, capsys, arguments, words):
    (repository / "model.pt").touch()  # a training's output is no change

    assert run(*arguments) == 3
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("missing.py", "missing.py is not a file. Pass a Python script"),
        ("new.py", "new.py does not exist at HEAD. Use a commit that contains it."),
        ("../outside.py", "outside.py is not in a git repository"),
    ],
)
def test_try_refuses_a_script_without_history(repository, capsys, name, words):
    (repository / "new.py").touch()
    (repository.parent / "outside.py").touch()
    arguments = ("--metric", "loss", "--better", "lower", "--device", "cpu")

    assert main(["try", name, *arguments]) == 3

    assert words in capsys.readouterr().err


def test_try_refuses_a_script_that_git_ignores_now(repository, capsys):
    (repository / ".gitignore").write_text("code/train.py\n")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "rm", "--quiet", "--cached", "code/train.py"], check=True)
    subprocess.run([*git, "add", ".gitignore"], check=True)
    subprocess.run([*git, "commit", "--quiet", "-m", "ignore"], check=True)

    assert run("--against", "HEAD~1") == 3

    assert "code/train.py is not tracked by git" in capsys.readouterr().err


def test_try_links_a_submodule_that_is_the_same_in_both(repository, capsys):
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    git += ["-c", "protocol.file.allow=always"]
    subprocess.run([*git, "clone", "--quiet", ".", "../library"], check=True)
    add = ["submodule", "--quiet", "add", "../library", "library"]
    subprocess.run([*git, *add], check=True)
    subprocess.run([*git, "commit", "--quiet", "-m", "library"], check=True)
    (repository / "code" / "part.py").write_text("FACTOR = 0.4\n")

    assert run("--repeats", "1", files=["library/config.txt"]) == 1
    capsys.readouterr()
    assert run("--against", "HEAD~1") == 3

    assert "a submodule of" in capsys.readouterr().err


def test_try_refuses_arguments_in_one_text(repository):
    with pytest.raises(ConfigError, match="args='--lr 1' is of type str"):
        nbkit.try_("code/train.py", "--lr 1", metric="loss", better="lower")


def test_try_distinguishes_a_crash_from_a_verdict(monkeypatch, capsys):
    monkeypatch.setattr("nbkit.questions.trial.try_", lambda *_, **__: [][0])

    assert main(["try", "train.py", "--metric", "loss", "--better", "lower"]) == 3

    assert "IndexError: list index out of range" in capsys.readouterr().err


def test_try_distinguishes_a_wrong_command_line_from_worse(capsys):
    with pytest.raises(SystemExit) as end:
        main(["try", "train.py", "--metric", "loss"])

    assert end.value.code == 3
    assert "required: --better" in capsys.readouterr().err
