"""Number of CPUs that this process may use: affinity and cgroup quota."""

from __future__ import annotations

import math
import os
from pathlib import Path

from nbkit.telemetry.control_groups import group_folders


def usable_cpus(root: Path = Path("/")) -> float:
    """Return how many CPUs this process may keep busy."""
    # The smaller of the CPUs that the scheduler may put it on (affinity, cpuset, as
    # Slurm and taskset set them) and of the CPU time that its control groups grant
    # (``docker run --cpus 1.5`` gives 1.5).
    # https://docs.kernel.org/admin-guide/cgroup-v2.html (cpu.max)
    # https://docs.kernel.org/scheduler/sched-bwc.html (cpu.cfs_quota_us)
    if hasattr(os, "sched_getaffinity"):
        cpus = len(os.sched_getaffinity(0))
    else:
        cpus = os.cpu_count() or 1
    return min(float(cpus), cpu_quota(root) or math.inf)


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Return the CPU time that this process's control groups grant, in CPUs."""
    # None where neither its own nor one above it sets a limit.
    quotas = [_quota(folder) for folder in group_folders("cpu", root)]
    return min((quota for quota in quotas if quota is not None), default=None)


def _quota(folder: Path) -> float | None:
    """Return a group's own quota in CPUs; None if it has none."""
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()[:2]
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text()
            period = (folder / "cpu.cfs_period_us").read_text()
    except OSError:
        return None
    if quota == "max" or int(quota) <= 0:
        return None
    return int(quota) / int(period)
