"""What the engine asks of Slurm's programs, and what it makes of their answers."""

from __future__ import annotations

import pytest

from nbkit.config import ExperimentConfig
from nbkit.errors import LaunchError
from nbkit.launch.code.trust import permit_new
from nbkit.launch.slurm.engine import SlurmEngine
from nbkit.launch.submit import submit
from nbkit.store.record import RunState, write_json
from nbkit.store.stored_runs import StoredRun, create_run_folder
from tests.slurm_programs import SlurmPrograms

CPU = ExperimentConfig(engine="slurm", device="cpu")
AUTO = CPU.replace(device="auto")


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    programs = SlurmPrograms(tmp_path, monkeypatch)
    for name in ("sbatch", "srun", "squeue", "scontrol", "scancel", "sinfo"):
        programs.tell(name)
    for name in ("SBATCH_PARTITION", "SBATCH_CLUSTERS", "SLURM_CLUSTERS"):
        monkeypatch.delenv(name, raising=False)
    return programs


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Return a run that was handed to Slurm as job 7."""
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path / "store"))
    run = StoredRun(create_run_folder(CPU).root)
    job = {"id": "7", "cluster": None}
    write_json(run.paths.submission, {"attempt": 0, "supervisor": None, "job": job})
    return run


def test_notify_and_reap(run, slurm):
    # The store may have another path on this host.
    slurm.tell("squeue", f"RUNNING|/mnt/runs/{run.run_id}/job.sbatch")

    SlurmEngine().notify(run.paths)
    assert slurm.calls("scancel") == [
        "--state=PENDING -- 7",
        "--batch --signal=USR2 -- 7",
    ]
    SlurmEngine().reap(run.paths)
    assert slurm.calls("scancel")[2:] == ["-- 7"]


@pytest.mark.parametrize("act", [SlurmEngine().notify, SlurmEngine().reap])
@pytest.mark.parametrize(
    "whose", ["another run's", "forgotten", "of another cluster", "ended"]
)
def test_notify_job_of_another(run, slurm, act, whose):
    slurm.tell("squeue", "RUNNING|/store/runs/20260101-120000-resnet50-abc/job.sbatch")
    if whose == "forgotten":
        words = "slurm_load_jobs error: Invalid job id specified"
        slurm.tell("squeue", status=1, words=words)
    if whose == "of another cluster":
        slurm.tell("squeue", f"RUNNING|{run.paths.job_script}")
        run.paths.imported.write_text("{}")
    if whose == "ended":
        slurm.tell("squeue", f"COMPLETED|{run.paths.job_script}")

    act(run.paths)

    assert slurm.calls("scancel") == []


def test_notify_resumed_import(run, slurm):
    slurm.tell("squeue", f"PENDING|{run.paths.job_script}")
    write_json(run.paths.imported, {"submitted": [0, "2020-01-01T00:00:00.000Z"]})

    SlurmEngine().notify(run.paths)

    assert "--state=PENDING -- 7" in slurm.calls("scancel")
    slurm.tell("squeue", "7|CANCELLED|N/A||None")
    assert run.state is RunState.STOPPED


def test_notify_without_slurm(run, slurm):
    slurm.tell("squeue", status=1, words="Unable to contact slurm controller")
    with pytest.raises(LaunchError, match=r"Unable to contact.* try again on a login"):
        SlurmEngine().notify(run.paths)

    write_json(run.paths.record, {"attempt": 0, "state": "running"})

    SlurmEngine().notify(run.paths)
    with pytest.raises(LaunchError, match="Unable to contact"):
        SlurmEngine().reap(run.paths)


@pytest.mark.parametrize(
    ("attempt", "status", "is_told"),
    # A first attempt without a watcher has no folder soon, and ends by itself.
    [(1, 1, True), (1, 0, False), (0, 1, False)],
)
def test_submit_job_without_owner_watch(
    run, slurm, monkeypatch, attempt, status, is_told
):
    def detach(*_):
        raise BlockingIOError

    monkeypatch.setattr("nbkit.launch.submit.detach", detach)
    slurm.tell("sbatch", "8")
    slurm.tell("scancel", status=status, words="Unable to contact" if status else "")

    with pytest.raises(LaunchError, match="requires a process") as raised:
        submit(
            CPU,
            run.paths,
            permit_new(run.paths),
            attempt=attempt,
            on_owner_exit="stop",
            parameter_sources={},
            tags={},
            environment={},
        )

    told = getattr(raised.value, "__notes__", [])
    assert [("Unable to contact" in one, "stop()" in one) for one in told] == (
        [(True, True)] * is_told
    )
    assert slurm.calls("scancel") == ["-- 8"]


def test_reap_ignores_user_settings(run, slurm, monkeypatch):
    said = f"RUNNING|{run.paths.job_script}"
    slurm.tell("squeue", said, also='[ -z "$SQUEUE_FORMAT" ] || exit 1')
    slurm.tell("scancel", also='[ -z "$SCANCEL_STATE" ] || exit 1')
    monkeypatch.setenv("SQUEUE_FORMAT", "%i")
    monkeypatch.setenv("SCANCEL_STATE", "PENDING")

    SlurmEngine().reap(run.paths)

    assert slurm.calls("scancel") == ["-- 7"]


@pytest.mark.parametrize(
    ("lines", "job"),
    [
        (("7",), {"id": "7", "cluster": None}),
        (("7;east",), {"id": "7", "cluster": "east"}),
        (("Welcome.", "7", "Be kind."), {"id": "7", "cluster": None}),
    ],
)
def test_submit_job_id(run, slurm, lines, job):
    slurm.tell("sbatch", *lines)

    assert SlurmEngine().submit(run.paths, 0, {"gpus_per_node": 0})["job"] == job
    slurm.tell("sbatch", words="sbatch: Job 3 to start at noon")
    with pytest.raises(LaunchError, match=r"did not print a job id, .*at noon"):
        SlurmEngine().submit(run.paths, 0, {"gpus_per_node": 0})


ROWS = ("debug*|(null)", "gpu|gpu:a100:8(S:0-1)", "gpu2|gpu:2")


@pytest.mark.parametrize(
    ("rows", "partition", "default", "device"),
    [
        (ROWS, "", None, "cpu"),
        (("gpu*|(null)",), "", None, "cpu"),
        (("gpu*|gpu:2", "cpus|(null)"), "", None, "cuda"),
        (ROWS[1:2], "gpu", None, "cuda"),
        (ROWS[1:2], "", "gpu", "cuda"),
    ],
)
def test_check_device_of_partition(
    slurm, tmp_path, monkeypatch, rows, partition, default, device
):
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path / "store"))
    slurm.tell("sinfo", *rows)
    if default:
        monkeypatch.setenv("SBATCH_PARTITION", default)
    config = AUTO.replace(slurm={"slurm_partition": partition})

    assert SlurmEngine().check(config)["device_type"] == device
    (asked,) = slurm.calls("sinfo")
    assert ("--partition=gpu" in asked) is bool(partition or default)


def test_check_device_without_sinfo(slurm):
    slurm.tell("sinfo", status=1, words="slurm_load_partitions: no contact")

    with pytest.raises(LaunchError, match=r"no contact.*Set device='cuda' or 'cpu'"):
        SlurmEngine().check(AUTO)


def test_without_sinfo_nothing_is_launched(slurm, tmp_path):
    (tmp_path / "slurm" / "sinfo").unlink()

    with pytest.raises(LaunchError, match="requires sinfo on PATH"):
        SlurmEngine().check(CPU)


@pytest.mark.parametrize("status", [0, 1])
def test_submit_other_encoding(run, slurm, status):
    slurm.tell("sbatch", "8", also="printf 'f\\374r' >&2", status=status)

    if status:
        with pytest.raises(LaunchError, match="sbatch: f\ufffdr"):
            SlurmEngine().submit(run.paths, 0, {"gpus_per_node": 0})
    else:
        told = SlurmEngine().submit(run.paths, 0, {"gpus_per_node": 0})
        assert told["job"] == {"id": "8", "cluster": None}
