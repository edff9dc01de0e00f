"""The engine of a cluster: a Slurm job with the supervisor on its first node."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError, DeviceError, LaunchError
from nbkit.launch.local import passed_on
from nbkit.launch.slurm.batch_script import sbatch_script, submission_environment
from nbkit.packages import packages_of, pip_install
from nbkit.reading import read_file
from nbkit.store.jobs import Job
from nbkit.store.metrics import store_error
from nbkit.store.ownership import make_folder, was_submitted_elsewhere, write_file
from nbkit.store.paths import RunPaths, store_folder
from nbkit.store.processes import run_markers
from nbkit.store.record import RunState, read_json
from nbkit.store.slurm import SlurmSilentError, ask_slurm
from nbkit.telemetry.software import software
from nbkit.telemetry.storage import describe_storage

_COMMANDS = ("sbatch", "srun", "squeue", "scontrol", "scancel", "sinfo")
_SUBMIT_SECONDS = 60.0
_ANSWER_SECONDS = 30.0
_NO_SUCH_JOB = "Invalid job id"
"""In squeue's words for a job that ended some time ago."""
_IN_MEMORY = {"ramfs", "tmpfs"}
_OWN_FIELDS = ("devices", "cpus")
"""What Slurm chooses."""


class SlurmEngine:
    """Runs as jobs of a Slurm cluster."""

    def check(self, config: ExperimentConfig) -> dict[str, Any]:
        """Return what a run asks of Slurm."""
        missing = [name for name in _COMMANDS if shutil.which(name) is None]
        if missing:
            message = (
                f"engine='slurm' requires {', '.join(missing)} on PATH. Launch on a "
                "login node of the cluster, or use engine='local' or 'manual'."
            )
            raise LaunchError(message)
        _refuse_fields_of_slurm(config)
        versions = software()
        slurm = config.slurm
        own_environment = not (slurm.setup or slurm.container)
        if own_environment and versions["torch"] is None:
            message = (
                f"torch is not installed in the environment of {sys.executable}. Run "
                f"{pip_install(*packages_of('train'))}, or activate an environment in "
                "slurm.setup."
            )
            raise LaunchError(message)
        _refuse_memory(store_folder())
        device_type = _device_type(config)
        asked = slurm.gpus_per_node
        on_gpus = config.gpus if device_type == "cuda" else 0
        return {
            "device_type": device_type,
            "cpus_per_rank": slurm.cpus_per_task,
            "gpus_per_node": on_gpus if asked is None else asked,
            "request": {"kind": device_type},
            # With its own setup lines a node may have another environment than this.
            "software": versions if own_environment else {"nbkit": versions["nbkit"]},
        }

    def submit(
        self, paths: RunPaths, attempt: int, requirements: dict[str, Any]
    ) -> dict[str, Any]:
        """Hand the run to Slurm; return which job it is."""
        config = ExperimentConfig.from_store(read_file(paths.config))
        here = Path(sys.executable)
        python = "python" if config.slurm.setup else str(here)
        gpus_per_node = requirements["gpus_per_node"]
        text = sbatch_script(config, paths, python=python, gpus_per_node=gpus_per_node)
        try:
            make_folder(paths.logs)
            write_file(paths.job_script, text.encode())
        except OSError as error:
            raise store_error(paths.job_script, error) from error
        variables = submission_environment(passed_on(), text) | {
            "NBKIT_HOME": str(store_folder()),
            **run_markers(paths),
            # What its own setup lines do not choose is as it is here.
            "PATH": f"{here.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        }
        job_id, cluster = _submit(paths.job_script, variables)
        return {"supervisor": None, "job": {"id": job_id, "cluster": cluster}}

    def notify(self, paths: RunPaths) -> None:
        """End a job that has not begun; wake up the supervisor of one that has."""
        try:
            job = _job(paths)
            if job is None:
                return
            # Slurm knows which of the two it is, also if that changes right now.
            ask_slurm("scancel", "--state=PENDING", *job, limit_seconds=_ANSWER_SECONDS)
        except SlurmSilentError as error:
            if _has_begun(paths):
                return  # its supervisor looks for the request by itself
            raise _cancel_error(paths, error) from None
        # What has ended needs no waking up; what runs sees the request a little later.
        with contextlib.suppress(SlurmSilentError):
            wake = ("--batch", "--signal=USR2")
            ask_slurm("scancel", *wake, *job, limit_seconds=_ANSWER_SECONDS)

    def reap(self, paths: RunPaths) -> None:
        """End a job whose supervisor does not answer; Slurm ends all its processes."""
        try:
            if job := _job(paths):
                ask_slurm("scancel", *job, limit_seconds=_ANSWER_SECONDS)
        except SlurmSilentError as error:
            raise _cancel_error(paths, error) from None


def end_job(paths: RunPaths, job: dict[str, Any]) -> str:
    """End a job that is not wanted; return why Slurm does not, empty if it does."""
    named = [*_clusters(job["cluster"]), "--", job["id"]]
    try:
        ask_slurm("scancel", *named, limit_seconds=_ANSWER_SECONDS)
    except SlurmSilentError as error:
        return str(_cancel_error(paths, error))
    return ""


def _job(paths: RunPaths) -> list[str] | None:
    """Return what names a run's job for Slurm's commands; None if it has none."""
    job = (read_json(paths.submission) or {}).get("job")
    # Another cluster's number is another job here.
    if job is None or was_submitted_elsewhere(paths.submission, paths.imported):
        return None
    named = [*_clusters(job["cluster"]), "--", job["id"]]
    which = (*_clusters(job["cluster"]), f"--jobs={job['id']}")
    options = ("--noheader", "--states=all", "--format=%T|%o")
    try:
        answer = ask_slurm("squeue", *which, *options, limit_seconds=_ANSWER_SECONDS)
    except SlurmSilentError as error:
        if _NO_SUCH_JOB in str(error):
            return None
        raise
    state, _, script = answer.rstrip("\n").partition("|")
    # A cluster that was reinstalled counts from 1 again, too. The store may have
    # another path on this host; a run's id is not given twice.
    is_own = script.endswith(f"/{paths.run_id}/{paths.job_script.name}")
    return named if is_own and not Job(job["id"], state).has_ended else None


def _clusters(name: str | None) -> list[str]:
    return [f"--clusters={name}"] if name else []


def _has_begun(paths: RunPaths) -> bool:
    """Return whether the record says that the supervisor of the last job is at work."""
    record, submission = read_json(paths.record) or {}, read_json(paths.submission)
    begun = record.get("attempt", -1) >= (submission or {}).get("attempt", 0)
    return begun and record.get("state") != RunState.QUEUED


def _cancel_error(paths: RunPaths, error: SlurmSilentError) -> LaunchError:
    return LaunchError(
        f"Slurm did not cancel the job of run {paths.run_id} ({error}). Check Slurm "
        "with `scontrol ping`, and try again on a login node of the cluster."
    )


def _submit(script: Path, variables: dict[str, str]) -> tuple[str, str | None]:
    """Hand a script to sbatch; return the job's number, and its cluster if named."""
    try:
        done = subprocess.run(
            ["sbatch", "--parsable", str(script)],
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            # A plug-in of the site may speak in another encoding.
            encoding="utf-8",
            errors="replace",
            timeout=_SUBMIT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        message = (
            f"sbatch did not respond within {_SUBMIT_SECONDS:.0f} s. Check the Slurm "
            "controller with `scontrol ping`."
        )
        raise LaunchError(message) from None
    words = done.stderr.strip().replace("sbatch: error: ", "")
    if done.returncode:
        message = (
            f"Slurm rejected the job (sbatch: {words or 'no output'}). Check `slurm`, "
            "nnodes and gpus against the output of `sinfo`."
        )
        raise LaunchError(message)
    # A cluster's own sbatch may print more than this line.
    jobs = re.findall(r"^(\d+)(?:;(\S+))?$", done.stdout, re.MULTILINE)
    if not jobs:
        output = done.stdout.strip() or words
        message = (
            f"sbatch did not print a job id, but {output!r}. Check "
            "slurm_additional_parameters and the output of `squeue --me`."
        )
        raise LaunchError(message)
    job_id, cluster = jobs[-1]
    return job_id, cluster or None


def _device_type(config: ExperimentConfig) -> str:
    """Return on what the ranks compute: ``cuda`` or ``cpu``."""
    if config.device != "auto":
        return config.device
    asked = config.slurm.slurm_partition or os.environ.get("SBATCH_PARTITION", "")
    where = shutil.which("sinfo"), os.environ.get("SLURM_CONF")
    options = (
        *_clusters(_requested_cluster(config)),
        *([f"--partition={asked}"] if asked else []),
    )
    # Partition, and what its nodes have; the default one has a star after its name.
    minute = int(time.monotonic() // 60)
    rows = [row.partition("|") for row in _gres(where, options, minute)]
    gres_lists = [gres for name, _, gres in rows if asked or name.endswith("*")]
    has_gpus = any(re.search(r"\bgpu\b", gres) for gres in gres_lists)
    return "cuda" if has_gpus else "cpu"


def _requested_cluster(config: ExperimentConfig) -> str:
    """Return to which of several clusters sbatch would go; empty for this one."""
    further = config.slurm.slurm_additional_parameters.get("clusters")
    own = os.environ.get("SBATCH_CLUSTERS") or os.environ.get("SLURM_CLUSTERS")
    return str(further or own or "")


@functools.lru_cache(maxsize=8)
def _gres(
    cluster: tuple[str | None, ...], options: tuple[str, ...], minute: int
) -> list[str]:
    """Return what nodes have besides CPUs, asked once a minute, as forms ask often."""
    asked = ("--noheader", "--format=%P|%G", *options)
    try:
        return ask_slurm("sinfo", *asked, limit_seconds=_ANSWER_SECONDS).splitlines()
    except SlurmSilentError as error:
        message = (
            f"device='auto': Slurm did not report the GPUs of its nodes ({error}). "
            "Set device='cuda' or 'cpu'."
        )
        raise LaunchError(message) from None


def _refuse_fields_of_slurm(config: ExperimentConfig) -> None:
    for field in _OWN_FIELDS:
        if getattr(config, field) is not None:
            message = (
                f"{field}={getattr(config, field)} cannot be set, because Slurm "
                f"assigns {field}. Remove it, or request nodes with "
                "slurm.slurm_nodelist."
            )
            raise ConfigError(message)
    if config.device == "replay":
        message = "engine='slurm' cannot run device='replay'. Use engine='local'."
        raise ConfigError(message)


def _refuse_memory(store: Path) -> None:
    """Raise if no other node can see the store; the rest the nodes find out."""
    there = next(path for path in (store, *store.parents) if path.exists())
    file_system = describe_storage(there)["file_system"]
    if file_system in _IN_MEMORY:
        message = (
            f"the store {store} is in memory ({file_system}). Set NBKIT_HOME to a "
            "folder that all nodes share."
        )
        raise DeviceError(message)
