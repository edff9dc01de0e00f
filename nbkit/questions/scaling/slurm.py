"""What a notebook's parameters ask of Slurm: a few by their names, the rest by one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nbkit.errors import ConfigError

SLURM_PARAMETERS = (
    "slurm_partition",
    "slurm_account",
    "timeout_min",
    "cpus_per_task",
)
"""Fields of `nbkit.config.SlurmConfig` that are parameters themselves; ``slurm`` has
the others."""


def slurm_fields(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a run's ``slurm`` that parameters give."""
    named = {
        name: parameters[name]
        for name in SLURM_PARAMETERS
        if parameters[name] is not None
    }
    fields: dict[str, Any] = parameters["slurm"] or {}
    lines = [
        f"{name}={named[name]!r}, but slurm says {fields[name]!r}; set it once."
        for name in named
        if name in fields
    ]
    engine = parameters["engine"]
    if engine != "slurm":
        given = {**named, **({"slurm": fields} if fields else {})}
        lines += [
            f"{name}={value!r} is for engine='slurm', but this is engine={engine!r}; "
            "add -p engine slurm, or omit it."
            for name, value in given.items()
        ]
    if lines:
        raise ConfigError("\n".join(lines))
    return {**fields, **named}
