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
    """Return the command of one rank, through the image if the run has one.

    Notes
    -----
    Both hand down every open descriptor, the network and process ids: heartbeat,
    lifeline, rendezvous socket and leases reach the rank. Neither hands down ``PATH``,
    ``HOME`` and ``LD_LIBRARY_PATH``; for all else see `container_environment`. The
    child is the program, which waits for the rank and passes signals on, and whose end
    is the rank's.
    """
    if not config.slurm.container:
        return list(argv)
    binds = [_bind(folder) for folder in _outermost([*folders, cwd])]
    return [
        program,
        "exec",
        *(["--nv"] if device_type == "cuda" else []),
        *(word for bind in binds for word in bind),
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
    """Return the environment with which a rank gets through to its image.

    Variables reach the image as they are, unless it sets them itself or the cluster
    asks for a clean environment. Those that a rank cannot do without are given a second
    time under the program's prefix, which goes before both.
    """
    prefix = f"{program.upper()}ENV_"
    # In a value after the prefix a shell replaces what begins with these.
    special = set('$`"\\')
    return {**environment} | {
        prefix + name: environment[name]
        for name in names
        if name in environment and not special & set(environment[name])
    }


def _outermost(folders: Iterable[str | Path]) -> list[Path]:
    """Return the folders without those inside others of them."""
    paths = sorted({Path(folder) for folder in folders})
    outermost: list[Path] = []
    for path in paths:
        if not any(path.is_relative_to(other) for other in outermost):
            outermost.append(path)
    return outermost


def _bind(folder: Path) -> list[str]:
    text = str(folder)
    if text == text.strip() and not set(text) & set(',:^\\"'):
        return ["--bind", text]
    # Only here can every character be written; programs before 2021 lack it.
    parts = ["type=bind", f"source={text}", f"destination={text}"]
    quoted = ('"' + part.replace('"', '""') + '"' for part in parts)
    return ["--mount", ",".join(quoted)]
