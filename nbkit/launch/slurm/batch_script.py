"""Text of a run's Slurm job script and job step, from its configuration.

References
----------
https://slurm.schedmd.com/sbatch.html and https://slurm.schedmd.com/srun.html
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nbkit.errors import StoreError

if TYPE_CHECKING:
    from nbkit.config import ExperimentConfig
    from nbkit.config.slurm import AdditionalValue
    from nbkit.store.paths import RunPaths
from nbkit.store.processes import JOB_VARIABLE

_OF_SLURM = ("SBATCH_", "SLURM_", "SLURMD_", "SRUN_")
"""How variables of Slurm begin."""

_KEPT_DEFAULTS = {
    "SBATCH_ACCOUNT": "account",
    "SBATCH_CLUSTERS": "clusters",
    "SBATCH_CONSTRAINT": "constraint",
    "SBATCH_PARTITION": "partition",
    "SBATCH_QOS": "qos",
    "SBATCH_RESERVATION": "reservation",
    "SBATCH_TIMELIMIT": "time",
    "SBATCH_WCKEY": "wckey",
}
"""Variables in which users keep their own defaults, by the options they set."""

_KEPT_SETTINGS = {
    "SLURM_CLUSTERS",
    "SLURM_CONF",
    "SLURM_CONF_SERVER",
    "SLURM_JWT",
    "SLURM_TIME_FORMAT",
}
"""Variables of Slurm that belong to no job."""


def sbatch_script(
    config: ExperimentConfig, paths: RunPaths, *, python: str, gpus_per_node: int
) -> str:
    """Return the whole job script of a run."""
    if not {"\n", "\r"}.isdisjoint(str(paths.root)):
        message = (
            f"{str(paths.root)!r} contains a line break, which sbatch does not "
            "support. Set NBKIT_HOME to another folder."
        )
        raise StoreError(message)
    given = _options(config, paths, gpus_per_node)
    command = _module(python, "nbkit.launch.slurm.job", str(paths.root))
    lines = [
        f"#!{shlex.join(_shell(config))}",
        f"# nbkit run {paths.run_id}",
        *(f"#SBATCH {option}" for option in given),
        "",
        # This signal says that a request to stop is written. It must not
        # end what does not listen yet, and a shell hands on what it ignores.
        "trap '' USR2",
        # A job that a rank submits gets this value, and another job id.
        f'export {JOB_VARIABLE}="$SLURM_JOB_ID"',
        *_body(config, command),
    ]
    return "\n".join(lines) + "\n"


def srun_argv(
    config: ExperimentConfig,
    root: Path,
    attempt: int,
    *,
    python: str,
    nnodes: int,
    port: int,
) -> list[str]:
    """Return the command of the step whose tasks are the torchruns of the nodes."""
    # With --cpus-per-task or --gpus-per-node the step would have no more than that.
    argv = [
        "srun",
        f"--nodes={nnodes}",
        f"--ntasks={nnodes}",
        "--ntasks-per-node=1",
        # A variable of the cluster may say otherwise, and nodes need the run's.
        "--export=ALL",
        # All memory of the job, whether it was asked for by node, by CPU or by GPU.
        "--mem=0",
        # Else a step waits until what the one before it held is cleaned up.
        "--overlap",
        "--cpu-bind=none",
        "--mpi=none",
        "--input=none",
        # `nbkit.launch.slurm.ranks` finds in what is printed which node has failed, and
        # decides what that means.
        "--label",
        "--kill-on-bad-exit=0",
        "--wait=0",
        *config.slurm.slurm_srun_args,
    ]
    command = _module(
        python, "nbkit.launch.slurm.node", str(root), str(attempt), str(port)
    )
    return [*argv, *_shell(config), "-c", "\n".join(_body(config, command))]


def submission_environment(inherited: Mapping[str, str], script: str) -> dict[str, str]:
    """Return the environment for sbatch: what is around must not change the job."""
    # A variable of sbatch goes before the script's own line, and those of a job
    # around this process would reach into the steps of the new one.
    kept = _KEPT_SETTINGS | {
        name
        for name, option in _KEPT_DEFAULTS.items()
        if f"#SBATCH --{option}=" not in script
    }
    return {
        name: value
        for name, value in inherited.items()
        if name in kept or not name.startswith(_OF_SLURM)
    }


def _options(
    config: ExperimentConfig, paths: RunPaths, gpus_per_node: int
) -> Iterator[str]:
    """Give the options of sbatch, quoted as it reads them in a script."""
    for name, value in _sbatch_options(config, paths, gpus_per_node).items():
        if value is True:
            yield f"--{name}"
        elif value is not False and value is not None:
            yield f"--{name}={_quoted(str(value))}"


def _sbatch_options(
    config: ExperimentConfig, paths: RunPaths, gpus_per_node: int
) -> dict[str, AdditionalValue | None]:
    """Return the options of sbatch; those that are False or None are not given."""
    slurm = config.slurm
    cpus = slurm.cpus_per_task
    if cpus is None and not (gpus_per_node or slurm.slurm_exclusive):
        # Else Slurm gives one to all ranks of a node, which are one task to it.
        cpus = 1
    mebibytes = None if slurm.mem_gb is None else math.ceil(slurm.mem_gb * 1024)
    return {
        "job-name": " ".join(config.title.split()) or None,
        "partition": slurm.slurm_partition or None,
        "account": slurm.slurm_account or None,
        "qos": slurm.slurm_qos or None,
        "reservation": slurm.slurm_reservation or None,
        "constraint": slurm.slurm_constraint or None,
        "nodelist": slurm.slurm_nodelist or None,
        "exclude": slurm.slurm_exclude or None,
        "exclusive": slurm.slurm_exclusive,
        "nodes": config.nnodes,
        # The one task is the torchrun that starts the node's ranks.
        "ntasks-per-node": 1,
        "cpus-per-task": cpus * config.gpus if cpus else None,
        "mem": f"{mebibytes}M" if mebibytes else None,
        "gpus-per-node": gpus_per_node or None,
        "time": slurm.timeout_min,
        "signal": f"B:USR1@{slurm.signal_delay_seconds(config.stop_grace_seconds)}",
        "requeue": slurm.slurm_requeue,
        "no-requeue": not slurm.slurm_requeue,
        "open-mode": "append",
        "output": f"{paths.logs}".replace("%", "%%") + "/slurm-%j.log",
        **slurm.slurm_additional_parameters,
    }


def _quoted(value: str) -> str:
    """Return a value as sbatch reads it in a script.

    That is not how a shell reads: a backslash also counts between single quotes, ``#``
    begins a comment anywhere, and nothing is replaced.
    """
    if value and not set(value) & set(" \t\v\f\"'\\#"):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _module(python: str, module: str, *arguments: str) -> list[str]:
    # -P keeps the current folder out of the import path.
    return [python, "-P", "-m", module, *arguments]


def _shell(config: ExperimentConfig) -> list[str]:
    # A login shell knows `module`, and reads what `conda init` has written.
    return ["/bin/bash", "-l"] if config.slurm.setup else ["/bin/bash"]


def _body(config: ExperimentConfig, command: Sequence[str]) -> list[str]:
    """Return the lines of shell that do the setup, then become the command."""
    body = [f"exec {shlex.join(command)}"]
    if not config.slurm.setup:
        return body
    return [
        "_nbkit_ended() {",
        '  echo "nbkit refuses: a slurm.setup line failed with exit status $?:'
        ' $_nbkit_line; correct it" >&2',
        "  exit 1",
        "}",
        # Also of one that calls exit.
        "trap _nbkit_ended EXIT",
        # Input and output belong to what comes after the setup.
        *(
            f"_nbkit_line={line}; eval {line} </dev/null >&2 || exit"
            for line in map(shlex.quote, config.slurm.setup)
        ),
        "trap - EXIT",
        *body,
    ]
