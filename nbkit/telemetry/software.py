"""Software versions that must be equal on all hosts of a run."""

from __future__ import annotations

import platform
from collections.abc import Mapping

from nbkit.health import installed
from nbkit.packages import DISTRIBUTION


def software() -> dict[str, str | None]:
    """Return the versions that must be equal on all nodes; None if missing."""
    return {
        "python": platform.python_version(),
        "nbkit": installed(DISTRIBUTION),
        "torch": installed("torch"),
    }


def software_differences(
    expected: Mapping[str, str | None], installed: Mapping[str, str | None]
) -> list[str]:
    """Return the differences of a host's versions, in words; empty if none."""
    return [
        f"{name} {installed.get(name) or 'missing'} (expected {version})"
        for name, version in expected.items()
        if version is not None and installed.get(name) != version
    ]
