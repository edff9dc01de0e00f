"""The Slurm of the tests is real, and reads what nbkit writes for it."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from nbkit.config import ExperimentConfig
from nbkit.launch.slurm.batch_script import sbatch_script, srun_argv
from nbkit.store.paths import RunPaths
from tests.slurm.cluster import NODES, SlurmCluster
from tests.waiting import patient, wait_until

Submit = Callable[..., str]

EVERYWHERE = ["srun", "--nodes=2", "--ntasks-per-node=1"]

HOSTILE = [
    "with blank",
    'it\'s "quoted"',
    "$(touch foo) `touch foo` $HOME",
    "100%j #1; touch foo &",
    "-n --wrap=foo",
    "back\\slash %j",
    "ünïcode ☃",
]


@pytest.fixture
def submit(slurm: SlurmCluster, tmp_path: Path) -> Submit:
    """Return what hands a line of shell, with options, to sbatch as a job."""

    def hand_over(line: str, *options: str) -> str:
        script = tmp_path / "job.sh"
        script.write_text(f"#!/bin/bash\n{line}\n")
        log = f"--output={tmp_path}/%j.log"
        return slurm.command("sbatch", "--parsable", log, *options, str(script)).strip()

    return hand_over


@pytest.fixture
def stub(tmp_path: Path) -> Path:
    """Return a program that prints its arguments, each ended."""
    program = tmp_path / "py thon's"
    program.write_text("#!/bin/bash\nprintf '%s\\0' \"$@\"\n")
    program.chmod(0o755)
    return program


def test_a_step_runs_on_both_nodes_with_their_gpus(slurm: SlurmCluster):
    say = 'echo "$SLURMD_NODENAME $CUDA_VISIBLE_DEVICES"'

    said = slurm.command(*EVERYWHERE, "--gpus-per-node=2", "sh", "-c", say)

    assert sorted(said.splitlines()) == ["n1 0,1", "n2 0,1"]


def test_a_job_waits_for_gpus(slurm: SlurmCluster, submit: Submit):
    first = submit("exec sleep 600", "--nodes=2", "--gpus-per-node=2")
    slurm.wait_for_job(first, "RUNNING")

    second = submit("true", "--gpus-per-node=1")

    wait_until(lambda: slurm.job(second)["Reason"] == "Resources", "it waits for one")
    slurm.command("scancel", first)
    slurm.wait_for_job(second, "COMPLETED")


def test_a_requeued_job_starts_again(slurm: SlurmCluster, submit: Submit, tmp_path):
    again = 'echo "start $SLURM_RESTART_COUNT"; '
    # A child that starts while Slurm ends its parent gets away.
    again += '[ "$SLURM_RESTART_COUNT" ] || exec sleep 600'

    job = submit(again, "--nodes=2", "--requeue", "--open-mode=append")
    log = tmp_path / f"{job}.log"
    wait_until(lambda: log.exists() and "start" in log.read_text(), "its first line")
    slurm.command("scontrol", "requeue", job)

    slurm.wait_for_job(job, "COMPLETED")
    said = log.read_text().splitlines()
    assert [line for line in said if line.startswith("start")] == ["start ", "start 1"]


def test_a_job_makes_way_for_one_of_a_higher_partition(
    slurm: SlurmCluster, submit: Submit
):
    low = submit("exec sleep 600", "--partition=spot", "--nodes=2", "--exclusive")
    slurm.wait_for_job(low, "RUNNING")

    high = submit("exec sleep 600", "--partition=high", "--nodes=2", "--exclusive")

    slurm.wait_for_job(high, "RUNNING")
    assert slurm.wait_for_job(low, "PENDING")["Restarts"] == "1"


def test_what_gets_away_from_its_job_is_ended_and_named(
    slurm: SlurmCluster, submit: Submit
):
    job = submit("setsid --fork sleep 600", "--nodes=1")
    slurm.wait_for_job(job, "COMPLETED")

    (left,) = slurm.clear()

    assert "sleep 600" in left
    wait_until(lambda: not slurm.processes(), "the end of what was killed")


def test_a_node_is_lost_with_all_that_ran_there(slurm: SlurmCluster, submit: Submit):
    # One leaves the tree and the session of its step.
    line = "[ $SLURMD_NODENAME = n1 ] || setsid --fork sleep 601; sleep 600"
    job = submit(shlex.join([*EVERYWHERE, "sh", "-c", line]), "--nodes=2")
    slurm.wait_for_job(job, "RUNNING")
    wait_until(lambda: _sleepers(slurm) == {"n1": 1, "n2": 2}, "both nodes sleep")

    slurm.kill_node("n2", noticed=True)

    assert slurm.processes("n2") == []
    slurm.wait_for_job(job, "PENDING")
    # With a star once Slurm has noticed by itself that it does not answer.
    assert slurm.node_states()["n2"].rstrip("*") == "down"
    slurm.restart_node("n2")
    slurm.wait_for_job(job, "RUNNING")
    slurm.clear()  # what gets away from its job does so once more


def _sleepers(slurm: SlurmCluster) -> dict[str, int]:
    return {
        node: sum(_name(process) == "sleep" for process in slurm.processes(node))
        for node in NODES
    }


def _name(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess):
        return process.name()
    return ""  # such as the first one of setsid --fork, which ends at once


def test_slurm_reads_any_name_as_it_is(slurm: SlurmCluster, stub, tmp_path):
    jobs = {name: _submit_run(slurm, name, stub, tmp_path / name) for name in HOSTILE}

    for name, job_id in jobs.items():
        job = slurm.wait_for_job(job_id, "COMPLETED")
        assert job["JobName"] == name
        (log,) = (tmp_path / name / "logs").iterdir()
        # With a backslash in it, Slurm fills in no number.
        assert log.name == ("slurm.log" if "\\" in name else f"slurm-{job_id}.log")
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


def test_nothing_is_left_of_a_slurm_that_ends(slurm: SlurmCluster):
    other = SlurmCluster()
    stubborn = "trap '' TERM; exec sleep 600"
    argv = [*EVERYWHERE, "sh", "-c", stubborn]
    other.start()
    with subprocess.Popen(argv, env=other.environment, stderr=subprocess.DEVNULL):
        try:
            wait_until(lambda: _sleepers(other) == {"n1": 1, "n2": 1}, "both sleep")
            daemons = [psutil.Process(pid) for pid in other.pids.values()]
            watched = wait_until(
                lambda: found if len(found := other.processes()) == 4 else [],
                "a watcher and a sleeper on each node",
            )
            everything = [*daemons, *watched]
            # The first is as it was, beside the other.
            assert set(slurm.node_states().values()) == {"idle"}
        finally:
            other.stop()

    # Slurm's watchers are no children of these tests: somebody else collects them.
    assert psutil.wait_procs(everything, timeout=patient(10))[1] == []
    assert not other.root.exists()


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
