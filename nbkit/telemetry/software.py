"""Which software this Python has, as far as all hosts of a run must have it alike."""

from __future__ import annotations

import platform
from importlib import metadata

__all__ = ["software"]


def software() -> dict[str, str | None]:
    """Return the versions that have to be the same on every node; None is missing."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in ("nbkit", "torch"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    return found
