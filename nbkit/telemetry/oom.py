"""Whether the kernel has run out of memory."""

from __future__ import annotations

from pathlib import Path

__all__ = ["oom_kills"]


def oom_kills() -> int | None:
    """Return how many processes the kernel has killed for lack of memory since boot."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return None
    counts = [line.split()[1] for line in lines if line.startswith("oom_kill ")]
    return int(counts[0]) if counts else None
