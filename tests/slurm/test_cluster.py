"""The Slurm of the tests is real, and reads what nbkit writes for it."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from nbkit.config import ExperimentConfig
from nbkit.launch.slurm.batch_script import sbatch_script, srun_argv
from nbkit.store.paths import RunPaths
from tests.slurm.cluster import SlurmCluster

HOSTILE = [
    "with blank",
    'it\'s "quoted"',
    "$(touch foo) `touch foo` $HOME",
    "100%j #1; touch foo &",
    "-n --wrap=foo",
    "ünïcode ☃",
]


@pytest.fixture
def stub(tmp_path: Path) -> Path:
    """Return a program that prints its arguments, each ended."""
    program = tmp_path / "py thon's"
    program.write_text("#!/bin/bash\nprintf '%s\\0' \"$@\"\n")
    program.chmod(0o755)
    return program


def test_slurm_reads_any_name_as_it_is(slurm: SlurmCluster, stub, tmp_path):
    jobs = {name: _submit_run(slurm, name, stub, tmp_path / name) for name in HOSTILE}

    for name, job_id in jobs.items():
        job = slurm.wait_for_job(job_id, "COMPLETED")
        assert job["JobName"] == name
        (log,) = (tmp_path / name / "logs").iterdir()
        assert log.name == f"slurm-{job_id}.log"
        command = ["-P", "-m", "nbkit.launch.slurm.job", str(tmp_path / name), ""]
        assert log.read_text().split("\0") == command
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {stub.name, "job.sbatch", *HOSTILE}


def test_slurm_understands_every_option(slurm: SlurmCluster, stub, tmp_path):
    fields = {
        "slurm_partition": "low,debug",
        "slurm_account": "physics",
        "slurm_exclude": "n2",
        "slurm_exclusive": True,
        "timeout_min": 90,
        "cpus_per_task": 2,
        "mem_gb": 1.5,
        "slurm_requeue": False,
        "slurm_additional_parameters": {"hold": True, "comment": "a #1 'comment'"},
    }

    job_id = _submit_run(
        slurm, "run", stub, tmp_path / "run", gpus_per_node=2, **fields
    )

    job = slurm.job(job_id)
    expected = {
        "JobName": "run",
        "Partition": "low,debug",
        "Account": "physics",
        "ExcNodeList": "n2",
        "OverSubscribe": "NO",
        "TimeLimit": "01:30:00",
        "NumNodes": "1-1",
        "NumTasks": "1",
        "CPUs/Task": "4",
        "Requeue": "0",
        "Comment": "a #1 'comment'",
        "Reason": "JobHeldUser",
    }
    assert {name: job.get(name) for name in expected} == expected
    # Both by the version of Slurm.
    assert job["MinMemoryNode"] in ("1.50G", "1536M")
    assert job["TresPerNode"] in ("gres:gpu:2", "gres/gpu:2")


@pytest.mark.parametrize(
    "fields",
    [
        {"slurm_exclusive": True},
        {"cpus_per_task": 2, "mem_gb": 1.5, "slurm_exclusive": True},
        {"cpus_per_task": 2, "setup": ("echo loaded; export LOADED=yes", "cat")},
    ],
    ids=["exclusive", "asked", "setup"],
)
def test_a_step_has_all_that_its_job_has(slurm: SlurmCluster, tmp_path, fields):
    python = tmp_path / "python"
    python.write_text(
        '#!/bin/bash\necho "$SLURMD_NODENAME $(wc -c) $LOADED"\n'
        'echo "$CUDA_VISIBLE_DEVICES" >&2\n'
        "scontrol show step $SLURM_JOB_ID.0 >&2\n"
    )
    python.chmod(0o755)
    config = _config("run", nnodes=2, **fields)
    argv = srun_argv(config, tmp_path, 0, python=str(python), nnodes=2, port=1)
    supervisor = tmp_path / "supervisor"
    supervisor.write_text(f"#!/bin/bash\n{shlex.join(argv)} >{tmp_path}/heard\n")
    supervisor.chmod(0o755)

    job = _submit_run(
        slurm, "run", supervisor, tmp_path / "run", nnodes=2, gpus_per_node=2, **fields
    )

    slurm.wait_for_job(job, "COMPLETED")
    loaded = "yes" if "setup" in fields else ""
    heard = sorted((tmp_path / "heard").read_text().splitlines())
    assert heard == [f"0: n1 0 {loaded}", f"1: n2 0 {loaded}"]
    said = (tmp_path / "run" / "logs" / f"slurm-{job}.log").read_text()
    assert said.count("0,1\n") == 2
    assert said.count("CPUs=8 ") == 2
    assert said.count("loaded\n") == (3 if "setup" in fields else 0)


def _config(name: str, nnodes: int = 1, **fields: object) -> ExperimentConfig:
    return ExperimentConfig(
        name=name, device="cpu", gpus=2, nnodes=nnodes, slurm=fields, oversubscribe=True
    )


def _submit_run(
    slurm: SlurmCluster,
    name: str,
    python: Path,
    root: Path,
    *,
    nnodes: int = 1,
    gpus_per_node: int = 0,
    **fields: object,
) -> str:
    """Submit the script of a run; a stub stands for its supervisor."""
    paths = RunPaths(root)
    paths.logs.mkdir(parents=True)
    script = root.parent / "job.sbatch"
    script.write_text(
        sbatch_script(
            _config(name, nnodes, **fields),
            paths,
            python=str(python),
            gpus_per_node=gpus_per_node,
        )
    )
    return slurm.command("sbatch", "--parsable", str(script)).strip()
