"""Real runs, run again and moved to another store."""

from __future__ import annotations

import importlib
import json
import sys
from types import SimpleNamespace

import pytest

import nbkit
from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError, RunError
from nbkit.launch.code.provenance import describe_environment
from nbkit.launch.code.variables import rank_variables
from nbkit.reproduction.repetition import ReproductionPlan, differences_now
from nbkit.store.paths import RunPaths
from nbkit.store.record import write_json
from tests.checkouts import commit_all, git

# Every module that this process has loaded is a source of a run.
pytestmark = pytest.mark.filterwarnings("ignore:the bundle may contain secrets")

MODULE = """
VALUE = {value}

def train():
    import nbkit
    for step in range(3):
        nbkit.log({{"loss": VALUE / (step + 3), "images_per_second": 10.0}})
    return VALUE, __file__
"""


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """Return a git checkout with a module; this process works in a folder of it."""
    top = tmp_path / "checkout"
    (top / "sub").mkdir(parents=True)
    (top / "mine_here.py").write_text(MODULE.format(value=1))
    commit_all(top)
    monkeypatch.chdir(top / "sub")
    monkeypatch.syspath_prepend(str(top))
    yield top
    sys.modules.pop("mine_here", None)


def launch(what, **fields):
    return nbkit.launch(what, gpus=1, device="cpu", **fields)


def test_a_function_runs_again_with_the_modules_of_now(checkout, tmp_path, monkeypatch):
    module = checkout / "mine_here.py"
    original = launch(importlib.import_module("mine_here").train).wait()
    module.write_text(MODULE.format(value=3))
    git(checkout, "commit", "-qam", "two")

    with pytest.raises(RunError, match="set strict=False"):
        nbkit.reproduce(original, strict=True)
    assert [run.run_id for run in nbkit.runs()] == [original.run_id]
    with pytest.warns(UserWarning, match=r"(?s)original +now.*commit.*mine_here"):
        now = nbkit.reproduce(original, progress=False)
    git(checkout, "reset", "-q", "--hard", "HEAD~1")
    then = nbkit.reproduce(original.run_id, strict=True, progress=False)

    assert now.run.returns[0] == (3, str(module))
    assert (now.losses.first_step, now.losses.original) == (0, 1 / 3)
    assert "first differ at step 0: 0.3333333333333333 in the original " in now.sentence
    assert {"commit", str(module)} <= {one.name for one in now.differences}
    assert now.run.record["tags"] == {"reproduces": original.run_id}
    assert then.run.returns[0] == (1, str(module))
    assert "The losses of 3 steps are bitwise equal." in str(then)
    assert then.differences == ()
    assert then.ratio.estimate == 1
    assert "single run, without a CI" in then.sentence
    bundle = nbkit.export(then.run, tmp_path / "f.zip", include_arguments=True)
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path / "elsewhere"))
    (run_id,) = nbkit.import_bundle(bundle).run_ids
    moved = nbkit.attach(run_id)
    assert moved.load_returns(trust=True) == then.run.returns
    values = json.loads(moved.paths.entry.read_text())
    write_json(moved.paths.entry, {**values, "python": "3.9.1"})
    with pytest.raises(RunError, match=r"was pickled by Python 3\.9\.1"):
        nbkit.reproduce(moved, trust=True)


def _differences_of(folder, engine, record):
    """Return parts and names of what differs now from a run with this record."""
    config = ExperimentConfig(device="cpu", engine=engine)
    original = SimpleNamespace(
        run_id="then",
        config=config,
        paths=RunPaths(folder),
        record=record,
        submission={},
    )
    given = {"permit": None, "entry": None, "cwd": folder}
    plan = ReproductionPlan(original, config=config, **given)
    return {(one.part, one.name) for one in differences_now(plan)}


def test_a_job_is_not_compared_with_the_machine_that_it_is_started_from(tmp_path):
    record = {"machine": {"num_cpus": 96_000}}

    found = _differences_of(tmp_path, "local", record)

    assert ("machine", "num_cpus") in found
    assert "machine" not in dict(_differences_of(tmp_path, "slurm", record))


def test_the_names_of_another_job_of_slurm_are_no_difference(tmp_path):
    paths = RunPaths(tmp_path)
    variables = rank_variables(ExperimentConfig(device="cpu"), paths)
    job = {
        "SLURM_JOB_ID": "7",
        "SLURM_JOBID": "7",
        "SLURM_JOB_NAME": "night",
        "SLURM_JOB_NODELIST": "node[1-2]",
        "SLURM_JOB_START_TIME": "1577836800",
        "SLURM_TASK_PID": "77",
        "SLURMD_NODENAME": "node1",
    }

    def found(engine, **more):
        environment = describe_environment(paths, {**variables, **more})
        every = _differences_of(tmp_path, engine, {"environment": environment})
        return {name for part, name in every if part == "environment"}

    assert found("local", **job) == set()
    # What it was given may make a difference, and a login node was given nothing.
    given = {"SLURM_CPUS_ON_NODE": "8"}
    assert found("local", **job, **given) == {"variables.SLURM_CPUS_ON_NODE"}
    assert found("slurm", **job, **given) == set()


def test_a_study_moves_with_its_runs_and_one_is_reproduced_within_its_arm(
    small, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)  # in no checkout, whose files might change meanwhile
    variables = {"NCCL_DEBUG": "WARN", "OMP_NUM_THREADS": "1"}
    arms = {"small": small(steps=6, gpus=1)}
    study = nbkit.Study.create("moves", arms, repeats=2, environment=variables)
    study.run(progress=False)
    bundle = nbkit.export(study, tmp_path / "study.zip")
    here = [run.summary for run in study.runs_by_arm()["small"]]
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path / "elsewhere"))
    imported = nbkit.import_bundle(bundle)

    runs = nbkit.Study.open(imported.study_id).runs_by_arm()["small"]
    done = nbkit.reproduce(runs[0], strict=True, progress=False, trust=True)

    assert [run.summary for run in runs] == here
    assert nbkit.compare(*runs).differences == ()
    assert done.differences == ()
    assert (done.ratio.n_a, done.ratio.n_b) == (1, 2)
    assert (done.between_runs.n, done.losses.first_step) == (2, None)
    assert "Median of the original's 2 runs" in done.sentence
    names = [run.record["name"] for run in (runs[0], done.run)]
    assert names[1] == f"again: {names[0]}"
    assert "95% CI [" in done.sentence
    assert "losses of 6 steps are bitwise equal" in done.sentence
    _refuses_what_cannot_be_run_again(runs[0])


def _refuses_what_cannot_be_run_again(run):
    with pytest.raises(ConfigError, match="repeats=0 is below 1"):
        nbkit.reproduce(run, repeats=0, trust=True)
    config = json.loads(run.paths.config.read_text())
    write_json(run.paths.config, {**config, "data": str(run.paths.root / "gone")})
    with pytest.raises(ConfigError, match="is not a folder"):
        nbkit.reproduce(run.run_id, trust=True)
    write_json(run.paths.record, {**run.record, "state": "failed"})
    with pytest.raises(RunError, match="is failed"):
        nbkit.reproduce(run, trust=True)
