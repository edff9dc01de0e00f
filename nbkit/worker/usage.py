"""Raw counts of a rank's resources so far: CPU time, memory."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from nbkit.telemetry.host import busy_and_all

if TYPE_CHECKING:
    import torch


def cpu_seconds() -> float:
    """Return user and system time of this process and its loading processes so far."""
    me = psutil.Process()
    total = 0.0
    for process in (me, *me.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    ended = me.cpu_times()
    return total + ended.children_user + ended.children_system


def host_cpu_seconds() -> float:
    """Return the busy time so far of all CPUs of the host, with any work."""
    return busy_and_all(psutil.cpu_times())[0]


def cpu_queue_seconds() -> float | None:
    """Return the time so far that this thread was runnable and waited for a CPU."""
    # None where the kernel does not tell.
    # https://docs.kernel.org/scheduler/sched-stats.html (/proc/<pid>/schedstat)
    try:
        fields = Path("/proc/thread-self/schedstat").read_text().split()
    except OSError:
        return None
    # A kernel that does not count writes zeros: no thread gets here without running.
    return int(fields[1]) / 1e9 if int(fields[0]) else None


def peak_memory(device: torch.device) -> dict[str, int | None]:
    """Return the largest memory so far, in bytes: on the device and resident."""
    import torch

    on_gpu = device.type == "cuda"
    return {
        "peak_memory_allocated_bytes": (
            torch.cuda.max_memory_allocated(device) if on_gpu else None
        ),
        "peak_memory_reserved_bytes": (
            torch.cuda.max_memory_reserved(device) if on_gpu else None
        ),
        # Linux counts in KiB: https://man7.org/linux/man-pages/man2/getrusage.2.html
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
