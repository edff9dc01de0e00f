"""Detection of the kernel's out-of-memory killer."""

from __future__ import annotations

from pathlib import Path


class OomKills:
    """Detects whether the kernel has killed a process for lack of memory."""

    def __init__(self) -> None:
        self._before = _oom_kills()

    def have_grown(self) -> bool:
        """Return whether there were kills since the creation; False if unknown."""
        now = _oom_kills()
        return None not in (now, self._before) and now != self._before


def _oom_kills() -> int | None:
    """Return how many there were since boot, on all of the host."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return None
    counts = [line.split()[1] for line in lines if line.startswith("oom_kill ")]
    return int(counts[0]) if counts else None
