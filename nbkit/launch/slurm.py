"""The engine of a cluster: a Slurm job whose first node supervises the run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError, DeviceError, LaunchError
from nbkit.launch.command import RUN_ID_VARIABLE
from nbkit.launch.local import passed_on
from nbkit.launch.sbatch import sbatch_script, submission_environment
from nbkit.store.metrics import store_error
from nbkit.store.paths import RunPaths, store_folder
from nbkit.store.record import read_json
from nbkit.telemetry.software import software
from nbkit.telemetry.storage import describe_storage

__all__ = ["SlurmEngine"]

_COMMANDS = ("sbatch", "srun", "squeue", "scontrol", "scancel")
_SECONDS = 60.0
_IN_MEMORY = {"ramfs", "tmpfs"}
_OWN_FIELDS = ("devices", "cpus")
"""What Slurm chooses."""


class SlurmEngine:
    """Runs as jobs of a Slurm cluster."""

    def check(self, config: ExperimentConfig) -> dict[str, Any]:
        """Return what a run asks of Slurm.

        Raises
        ------
        ConfigError
            If it asks for what Slurm decides.
        LaunchError
            If there is no Slurm here, or torch is missing.
        DeviceError
            If the store is not for other nodes to see.
        """
        missing = [name for name in _COMMANDS if shutil.which(name) is None]
        if missing:
            message = (
                f"engine='slurm': {', '.join(missing)} is not installed here; launch "
                "on a login node of the cluster, or use engine='local' or 'manual'."
            )
            raise LaunchError(message)
        _refuse_what_slurm_decides(config)
        wanted = software()
        own_environment = not (config.slurm.setup or config.slurm.container)
        if own_environment and wanted["torch"] is None:
            message = (
                f"torch is not installed for {sys.executable}; pip install "
                '"nbkit[train]" adds it, or name the environment by slurm.setup.'
            )
            raise LaunchError(message)
        _refuse_memory(store_folder())
        device_type = _device_type(config)
        asked = config.slurm.gpus_per_node
        on_gpus = config.gpus if device_type == "cuda" else 0
        return {
            "device_type": device_type,
            "cpus_per_rank": config.slurm.cpus_per_task,
            "gpus_per_node": on_gpus if asked is None else asked,
            "request": {"kind": device_type},
            # With lines of its own a node may have another environment than this.
            "software": wanted if own_environment else {"nbkit": wanted["nbkit"]},
        }

    def submit(
        self, paths: RunPaths, attempt: int, wanted: dict[str, Any]
    ) -> dict[str, Any]:
        """Hand the run to Slurm; return which job it is.

        Raises
        ------
        LaunchError
            If Slurm refuses it, with Slurm's own words.
        """
        config = ExperimentConfig.from_store(paths.config.read_bytes())
        here = Path(sys.executable)
        python = "python" if config.slurm.setup else str(here)
        gpus_per_node = wanted["gpus_per_node"]
        text = sbatch_script(config, paths, python=python, gpus_per_node=gpus_per_node)
        try:
            paths.logs.mkdir(exist_ok=True)
            paths.job_script.write_text(text, encoding="utf-8")
        except OSError as error:
            raise store_error(paths.job_script, error) from error
        variables = submission_environment(passed_on(), text) | {
            "NBKIT_HOME": str(store_folder()),
            RUN_ID_VARIABLE: paths.run_id,
            # What lines of its own do not choose is as it is here.
            "PATH": f"{here.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        }
        said = _ask(["sbatch", "--parsable", str(paths.job_script)], variables)
        job_id, _, cluster = said.strip().splitlines()[-1].partition(";")
        return {"supervisor": None, "job": {"id": job_id, "cluster": cluster or None}}

    def nudge(self, paths: RunPaths) -> None:
        """End a job that has not begun; wake up the supervisor of one that has."""
        job = _job(paths)
        if job is not None:
            # Slurm knows which of the two it is, also if that changes right now.
            _try(["scancel", *job, "--state=PENDING"])
            _try(["scancel", *job, "--batch", "--signal=USR2"])

    def reap(self, paths: RunPaths) -> None:
        """End a job whose supervisor does not answer; Slurm ends all its processes."""
        job = _job(paths)
        if job is not None:
            _try(["scancel", *job])


def _job(paths: RunPaths) -> list[str] | None:
    """Return what names a run's job for Slurm's commands."""
    job = (read_json(paths.submission) or {}).get("job")
    if job is None:
        return None
    clusters = [f"--clusters={job['cluster']}"] if job["cluster"] else []
    return [*clusters, job["id"]]


def _ask(argv: list[str], variables: dict[str, str] | None = None) -> str:
    """Return what one of Slurm's commands answers.

    Raises
    ------
    LaunchError
        If it fails, with its own words.
    """
    try:
        done = subprocess.run(
            argv,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        message = (
            f"{argv[0]} did not answer within {_SECONDS:.0f} s; see whether "
            "`scontrol ping` reaches Slurm's controller."
        )
        raise LaunchError(message) from None
    if done.returncode:
        words = done.stderr.strip().replace(f"{argv[0]}: error: ", "")
        message = (
            f"Slurm refuses ({argv[0]}: {words}); what was asked for is in `slurm` "
            "and nnodes, gpus: `sinfo` lists what there is."
        )
        raise LaunchError(message)
    return done.stdout


def _try(argv: list[str]) -> None:
    """Run a command; whether the job had ended before does not matter."""
    try:
        subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        message = f"{argv[0]} did not answer within {_SECONDS:.0f} s; try again."
        raise LaunchError(message) from None


def _device_type(config: ExperimentConfig) -> str:
    """Return on what the ranks compute: ``cuda`` or ``cpu``."""
    if config.device != "auto":
        return config.device
    partition = config.slurm.slurm_partition
    where = [f"--partition={partition}"] if partition else []
    found = _ask(["sinfo", "--noheader", "--format=%G", *where])
    return "cuda" if re.search(r"\bgpu\b", found) else "cpu"


def _refuse_what_slurm_decides(config: ExperimentConfig) -> None:
    for field in _OWN_FIELDS:
        if getattr(config, field) is not None:
            message = (
                f"{field}={getattr(config, field)}: Slurm chooses them; leave {field} "
                "out, or ask for nodes by slurm.slurm_nodelist."
            )
            raise ConfigError(message)
    if config.device == "replay":
        message = "device='replay' is of this machine alone; use engine='local'."
        raise ConfigError(message)


def _refuse_memory(store: Path) -> None:
    """Raise if no other node can see the store; the rest the nodes find out."""
    there = next(path for path in (store, *store.parents) if path.exists())
    file_system = describe_storage(there)["file_system"]
    if file_system in _IN_MEMORY:
        message = (
            f"the store {store} is in this host's memory ({file_system}), which no "
            "other node sees; set NBKIT_HOME to a folder that all nodes share."
        )
        raise DeviceError(message)
