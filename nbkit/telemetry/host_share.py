"""CPU and memory limits of this process (affinity, cgroup)."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from nbkit.telemetry.control_groups import smallest_limit
from nbkit.telemetry.cpus import usable_cpus

_SECONDS = 30.0
"""Between two looks: each reads every mount of the host, and limits hardly change."""


@dataclass(frozen=True)
class HostShare:
    """A part of the host."""

    cpus: float
    """CPUs that the process may keep busy, by affinity and control group."""
    memory_bytes: int | None
    """Memory that its control group grants; None without a limit. It may be more than
    the host has.
    """


class HostShareReader:
    """Looks now and then at what this process may use."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._share: HostShare | None = None
        self._due = 0.0

    def read(self) -> HostShare:
        """Return the share as it was at most half a minute ago."""
        now = time.monotonic()
        if self._share is None or now >= self._due:
            self._due = now + _SECONDS
            memory_bytes = smallest_limit("memory", self._root)
            self._share = HostShare(usable_cpus(self._root), memory_bytes)
        return self._share
