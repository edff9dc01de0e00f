"""Software versions that must be equal on all hosts of a run."""

from __future__ import annotations

import platform
from collections.abc import Mapping

from nbkit.health import installed
from nbkit.packages import DISTRIBUTION


def software() -> dict[str, str | None]:
    """Return the versions that have to be the same on every node; None is missing."""
    return {
        "python": platform.python_version(),
        "nbkit": installed(DISTRIBUTION),
        "torch": installed("torch"),
    }


def software_differences(
    expected: Mapping[str, str | None], installed: Mapping[str, str | None]
) -> list[str]:
    """Return what a host has otherwise than it should, in words; empty if nothing."""
    return [
        f"{name} {installed.get(name) or 'missing'} (expected {version})"
        for name, version in expected.items()
        if version is not None and installed.get(name) != version
    ]
