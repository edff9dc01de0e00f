"""Command line of ranks in a container image (Apptainer or Singularity).

References
----------
https://apptainer.org/docs/user/latest/
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nbkit.config import ExperimentConfig


def in_container(
    config: ExperimentConfig,
    argv: Sequence[str],
    folders: Iterable[str | Path],
    *,
    cwd: str | Path,
    device_type: str,
    program: str = "apptainer",
) -> list[str]:
    """Return the command of one rank, through the image if the run has one."""
    # Both programs hand down open descriptors, the network and process ids, and
    # neither PATH, HOME nor LD_LIBRARY_PATH; they pass signals on, and end as the rank.
    if not config.slurm.container:
        return list(argv)
    binds = sorted({str(folder) for folder in [*folders, cwd]})
    return [
        program,
        "exec",
        *(["--nv"] if device_type == "cuda" else []),
        *(word for folder in binds for word in ("--bind", folder)),
        "--pwd",
        str(cwd),
        *config.slurm.container_args,
        config.slurm.container,
        "python",
        *argv[1:],
    ]


def container_environment(
    environment: Mapping[str, str], names: Iterable[str], *, program: str = "apptainer"
) -> dict[str, str]:
    """Return the environment with which a rank gets through to its image."""
    # An image or a cluster may set or drop variables. Those that a rank cannot do
    # without are given again under the program's prefix, which goes before both.
    prefix = f"{program.upper()}ENV_"
    # In a value after the prefix a shell replaces what begins with these.
    special = set('$`"\\')
    return {**environment} | {
        prefix + name: environment[name]
        for name in names
        if name in environment and not special & set(environment[name])
    }
