"""What a run asks of Slurm, in submitit's words where it has one."""

from __future__ import annotations

import re
from typing import Annotated, TypeAlias

from pydantic import Field, field_validator

from nbkit.config.model import Model

__all__ = ["SlurmConfig"]

AdditionalValue: TypeAlias = bool | int | str

_OPTION = re.compile(r"[a-z][a-z0-9-]*")

_OWN_OPTIONS = {
    "chdir": "the folder of the launch",
    "cpus-per-task": "cpus_per_task",
    "error": "the run's logs",
    "export": "the environment of the launch",
    "gpus-per-node": "gpus_per_node",
    "job-name": "name",
    "nodes": "nnodes",
    "no-requeue": "slurm_requeue",
    "ntasks": "gpus",
    "ntasks-per-node": "gpus",
    "open-mode": "the run's logs",
    "output": "the run's logs",
    "requeue": "slurm_requeue",
    "signal": "slurm_signal_delay_s",
    "time": "timeout_min",
    "wrap": "the run itself",
}
"""Options of sbatch that follow from something else: by what."""


class SlurmConfig(Model):
    """What ``engine="slurm"`` asks of Slurm; what is left out is the cluster's default.

    References
    ----------
    https://slurm.schedmd.com/sbatch.html, https://github.com/facebookincubator/submitit
    """

    slurm_partition: str = ""
    """Partition, or several separated by commas."""
    slurm_account: str = ""
    """Account that is charged."""
    slurm_qos: str = ""
    """Quality of service."""
    slurm_reservation: str = ""
    """Reservation to run in."""
    slurm_constraint: str = ""
    """Features that the nodes must have, such as ``a100&nvlink``."""
    slurm_nodelist: str = ""
    """Nodes that must be among those of the run."""
    slurm_exclude: str = ""
    """Nodes that must not."""
    slurm_exclusive: bool = False
    """Share the nodes with no other job."""
    timeout_min: Annotated[int, Field(ge=1, le=525_600)] | None = None
    """Time limit in minutes; None takes the partition's."""
    gpus_per_node: Annotated[int, Field(ge=0, le=1_024)] | None = None
    """GPUs to ask of each node; None asks for one a rank where the ranks compute on
    GPUs, and for none where they do not."""
    cpus_per_task: Annotated[int, Field(ge=1, le=4_096)] | None = None
    """CPUs of each rank, its loading processes included; None leaves it to Slurm."""
    mem_gb: Annotated[float, Field(gt=0, le=1_000_000)] | None = None
    """Memory of each node, in GiB; None takes the partition's default."""
    slurm_signal_delay_s: Annotated[int, Field(ge=1, le=65_535)] | None = None
    """How long before the time limit a run saves a checkpoint and ends; None takes
    ``stop_grace_seconds`` and a minute more."""
    slurm_requeue: bool = True
    """Let Slurm start the run again from its checkpoint: after its time limit, and when
    it is preempted or loses a node."""
    slurm_max_num_timeout: Annotated[int, Field(ge=0, le=10_000)] = 3
    """How often a run that reached its time limit, or lost a node, is put into the
    queue again."""
    setup: tuple[str, ...] = ()
    """Shell lines before the ranks start, on every node: ``module load cuda`` or
    ``conda activate torch``."""
    container: str = ""
    """Image through which the ranks run (Apptainer or Singularity), such as
    ``/images/pytorch.sif``; nbkit must be installed in it, in this version."""
    container_args: tuple[str, ...] = ()
    """Further arguments of ``apptainer exec``, such as ``--bind=/data``."""
    slurm_srun_args: tuple[str, ...] = ()
    """Further arguments of srun."""
    slurm_additional_parameters: dict[str, AdditionalValue] = Field(
        default_factory=dict
    )
    """Further options of sbatch by their long names, ``{"licenses": "matlab:1"}``; true
    gives an option without a value, and false leaves it out."""

    @field_validator(
        "slurm_partition",
        "slurm_account",
        "slurm_qos",
        "slurm_reservation",
        "slurm_constraint",
        "slurm_nodelist",
        "slurm_exclude",
        "container",
    )
    @classmethod
    def _is_one_line(cls, value: str) -> str:
        _refuse_line_ends(value)
        return value

    @field_validator("setup", "container_args", "slurm_srun_args")
    @classmethod
    def _are_lines(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for line in value:
            _refuse_line_ends(line)
        return value

    @field_validator("slurm_additional_parameters")
    @classmethod
    def _are_options(
        cls, value: dict[str, AdditionalValue]
    ) -> dict[str, AdditionalValue]:
        names = {name: name.replace("_", "-") for name in value}
        for name, option in names.items():
            if not _OPTION.fullmatch(option):
                message = f"{name!r} is no option's name; use sbatch's long names"
                raise ValueError(message)
            if option in _OWN_OPTIONS:
                message = f"{name!r} follows from {_OWN_OPTIONS[option]}; set that"
                raise ValueError(message)
            if isinstance(value[name], str):
                _refuse_line_ends(str(value[name]))
        return {names[name]: given for name, given in value.items()}


def _refuse_line_ends(value: str) -> None:
    if "\n" in value or "\r" in value or "\0" in value:
        message = "goes over more than one line; give one line an item"
        raise ValueError(message)
