"""What nbkit is installed as, and how to install what it needs.

Its distribution is not called nbkit: on the package index that is another project. So
no command that is shown names nbkit: it names the packages that are missing, or the
wheel.
"""

from __future__ import annotations

from importlib import metadata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.requirements import Requirement

__all__ = [
    "DISTRIBUTION",
    "NAMESAKE",
    "REINSTALL",
    "packages_of",
    "pip_install",
    "version",
]

DISTRIBUTION = "jupyterlab-nbkit"
NAMESAKE = "nbkit"
"""Another project's distribution on the package index."""
REINSTALL = "pip install --force-reinstall --no-deps jupyterlab_nbkit-*.whl"
"""Installs nbkit anew. It names a file, so pip never asks the package index for it."""


def version() -> str:
    """Return the version of nbkit."""
    return metadata.version(DISTRIBUTION)


def packages_of(extra: str) -> list[str]:
    """Return the names of the packages that an extra of nbkit brings on this machine.

    Parameters
    ----------
    extra
        Such as ``train``.
    """
    return [
        one.name
        for one in _requirements()
        if one.marker is not None and one.marker.evaluate({"extra": extra})
    ]


def pip_install(*packages: str, options: str = "") -> str:
    """Return a command for a shell that installs packages.

    Parameters
    ----------
    *packages
        Names, each for the versions that nbkit asks for; or with versions of their own,
        such as ``torch<2.11``. The last of one name counts.
    options
        Of pip, such as ``--upgrade``.

    Raises
    ------
    KeyError
        If nbkit itself asks for no such package: nothing else is advised.
    """
    from packaging.requirements import Requirement

    asked = {one.name: f"{one.name}{one.specifier}" for one in _requirements()}
    chosen: dict[str, str] = {}
    for package in packages:
        wanted = Requirement(package)
        ours = asked[wanted.name]
        chosen[wanted.name] = package if wanted.specifier else ours
    words = ["pip install", options, *(f'"{one}"' for one in chosen.values())]
    return " ".join(filter(None, words))


def _requirements() -> list[Requirement]:
    """Return what the metadata of the distribution says that nbkit needs."""
    from packaging.requirements import Requirement

    return [Requirement(line) for line in metadata.requires(DISTRIBUTION) or ()]
