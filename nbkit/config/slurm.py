"""Slurm options of a run, with submitit's names where it has one."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Annotated, Any, Self, TypeAlias

from pydantic import Field, PrivateAttr, field_validator

from nbkit.config.model import Model, reads_store

SIGNAL_DELAY_LIMIT = 65_535
"""Seconds that sbatch's ``--signal`` takes at most."""

AdditionalValue: TypeAlias = bool | int | str

_OPTION = re.compile(r"[a-z][a-z0-9-]*")

_OWN_OPTIONS = {
    "account": "slurm_account",
    "chdir": "nbkit (the folder of the launch)",
    "constraint": "slurm_constraint",
    "cpus-per-task": "cpus_per_task",
    "error": "nbkit (the run's logs)",
    "exclude": "slurm_exclude",
    "exclusive": "slurm_exclusive",
    "export": "nbkit (the environment of the launch)",
    "export-file": "nbkit (the environment of the launch)",
    "gpus-per-node": "gpus_per_node",
    "job-name": "name",
    "mem": "mem_gb",
    "nodelist": "slurm_nodelist",
    "nodes": "nnodes",
    "no-requeue": "slurm_requeue",
    "ntasks": "gpus",
    "ntasks-per-node": "gpus",
    "open-mode": "nbkit (the run's logs)",
    "output": "nbkit (the run's logs)",
    "partition": "slurm_partition",
    "qos": "slurm_qos",
    "requeue": "slurm_requeue",
    "reservation": "slurm_reservation",
    "signal": "slurm_signal_delay_s",
    "time": "timeout_min",
    "wrap": "nbkit (the run itself)",
}
"""Options of sbatch that follow from something else: by what."""

_NO_SUBMISSION = {
    *("array", "help", "input", "parsable", "test-only", "usage", "version", "wait"),
}
"""Options with which sbatch does not submit one job immediately."""


class SlurmConfig(Model):
    """Slurm options of ``engine="slurm"``; unset options use the cluster's defaults.

    References
    ----------
    https://slurm.schedmd.com/sbatch.html, https://github.com/facebookincubator/submitit
    """

    _came_from: Path | None = PrivateAttr(default=None)

    slurm_partition: str = ""
    """Partition, or several separated by commas."""
    slurm_account: str = ""
    """Account to charge."""
    slurm_qos: str = ""
    """Quality of service."""
    slurm_reservation: str = ""
    """Reservation to run in."""
    slurm_constraint: str = ""
    """Features that the nodes must have, such as ``a100&nvlink``."""
    slurm_nodelist: str = ""
    """Nodes that the job must include."""
    slurm_exclude: str = ""
    """Nodes that the job must not use."""
    slurm_exclusive: bool = False
    """Do not share the nodes with other jobs."""
    timeout_min: Annotated[int, Field(ge=1, le=525_600)] | None = None
    """Time limit in minutes; None uses the partition's default."""
    gpus_per_node: Annotated[int, Field(ge=0, le=1_024)] | None = None
    """GPUs per node; None requests one per rank if the ranks use GPUs, and
    otherwise none."""
    cpus_per_task: Annotated[int, Field(ge=1, le=4_096)] | None = None
    """CPUs for each rank and its loading processes; None requests 1 CPU if the run
    requests neither GPUs nor whole nodes, and otherwise uses Slurm's default."""
    mem_gb: Annotated[float, Field(gt=0, le=1_000_000)] | None = None
    """Memory of each node, in GiB; None uses the partition's default."""
    slurm_signal_delay_s: Annotated[int, Field(ge=1, le=SIGNAL_DELAY_LIMIT)] | None = (
        None
    )
    """Seconds before the time limit at which a run saves a checkpoint and ends; None
    uses ``stop_grace_seconds`` plus 60 s."""
    slurm_requeue: bool = True
    """Requeue the run, from its checkpoint, after its time limit, a preemption or the
    loss of a node."""
    slurm_max_num_timeout: Annotated[int, Field(ge=0, le=10_000)] = 3
    """Maximum number of requeues after time limits and lost nodes; preemptions do not
    count."""
    setup: tuple[str, ...] = ()
    """Shell lines to run on every node before the ranks start, such as ``module load
    cuda`` or ``conda activate torch``."""
    container: str = ""
    """Container image of the ranks (Apptainer or Singularity), such as
    ``/images/pytorch.sif``; it must contain the same version of nbkit."""
    container_args: tuple[str, ...] = ()
    """Further arguments of ``apptainer exec``, such as ``--bind=/data``."""
    slurm_srun_args: tuple[str, ...] = ()
    """Further arguments of srun."""
    slurm_additional_parameters: dict[str, AdditionalValue] = Field(
        default_factory=dict
    )
    """Further options of sbatch by long name, such as ``{"licenses": "matlab:1"}``;
    true adds an option without a value, and false omits it."""

    @field_validator(
        "slurm_partition",
        "slurm_account",
        "slurm_qos",
        "slurm_reservation",
        "slurm_constraint",
        "slurm_nodelist",
        "slurm_exclude",
        "container",
        "setup",
        "container_args",
        "slurm_srun_args",
    )
    @classmethod
    def _are_lines(cls, value: Any) -> Any:
        for line in [value] if isinstance(value, str) else value:
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
                how = "Use the long name without leading dashes, such as 'licenses'"
                message = f"{name!r} is not a valid sbatch option name. {how}"
                raise ValueError(message)
            if option in _OWN_OPTIONS and not reads_store.get():
                message = f"{name!r} is set by {_OWN_OPTIONS[option]}. Remove it"
                raise ValueError(message)
            if option in _NO_SUBMISSION and not reads_store.get():
                message = f"{name!r} is not supported by nbkit. Remove it"
                raise ValueError(message)
            if isinstance(value[name], str):
                _refuse_line_ends(str(value[name]))
        return {names[name]: given for name, given in value.items()}

    @property
    def came_from(self) -> Path | None:
        """Folder of the run or study it was read from, which others may own."""
        return self._came_from

    def coming_from(self, folder: Path) -> None:
        """Record the folder that it was read from, here and in copies of this object.

        A new object from its values, as of ``model_dump()``, belongs to the user.
        """
        self._came_from = folder

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, validated again.

        Raises
        ------
        ConfigError
            If the changed configuration is not valid.
        """
        changed = super().replace(**changes)
        changed._came_from = self._came_from
        return changed

    def signal_delay_seconds(self, stop_grace_seconds: float) -> int:
        """Return how many seconds before its time limit a run must save and end."""
        delay = self.slurm_signal_delay_s
        if delay is None:
            delay = math.ceil(stop_grace_seconds) + 60
        return min(delay, SIGNAL_DELAY_LIMIT)


def _refuse_line_ends(value: str) -> None:
    if "\n" in value or "\r" in value or "\0" in value:
        message = "contains a line break or null character. Pass single lines"
        raise ValueError(message)
