"""Processors, memory, disks, network and a run's processes on this host.

Every `HostReader` keeps its own baseline: psutil's own ``cpu_percent`` has one for the
whole process, so that two readers of it spoil each other's numbers.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from nbkit.telemetry.sample import HostSample

_TREE_SECONDS = 5.0
"""How often the run's process tree is walked: that reads a file of every process of
the host, whereas the known members cost a few files each.
"""


class HostReader:
    """Reads the host."""

    def __init__(
        self, process_roots: Sequence[int] = (), *, per_core: bool = False
    ) -> None:
        self._per_core = per_core
        self._cpu_seconds: list[tuple[float, float]] = []
        self._disks = hardware_in(Path("/sys/block"))
        self._processes = _ProcessTrees(process_roots) if process_roots else None

    def read(self) -> HostSample:
        """Return one reading."""
        memory = psutil.virtual_memory()
        disks = psutil.disk_io_counters(perdisk=True, nowrap=False) or {}
        counters = [disks[name] for name in disks if name in self._disks]
        disk_read, disk_write = _sums(counters, "read_bytes", "write_bytes")
        net_rx, net_tx = _network_bytes()
        return HostSample(
            **self._cpu_percent(),
            load_average_1_minute=round(os.getloadavg()[0], 2),
            memory_used_bytes=memory.total - memory.available,
            memory_available_bytes=memory.available,
            disk_read_bytes=disk_read,
            disk_write_bytes=disk_write,
            net_rx_bytes=net_rx,
            net_tx_bytes=net_tx,
            processes_cpu_seconds=(
                self._processes.read_cpu_seconds() if self._processes else None
            ),
        )

    def _cpu_percent(self) -> dict[str, Any]:
        if self._per_core:
            cores = [busy_and_all(times) for times in psutil.cpu_times(percpu=True)]
            whole = (sum(busy for busy, _ in cores), sum(total for _, total in cores))
            now = [whole, *cores]
        else:
            now = [busy_and_all(psutil.cpu_times())]
        before, self._cpu_seconds = self._cpu_seconds, now
        if len(before) != len(now):  # The first time, or a CPU was switched on or off.
            return {}
        shares = list(map(_percent, before, now))
        cores = tuple(None if share is None else round(share) for share in shares[1:])
        whole = None if shares[0] is None else round(shares[0], 1)
        return {"cpu_percent": whole, "cores_percent": cores if cores else None}


def busy_and_all(times: Any) -> tuple[float, float]:
    """Return the seconds in which a CPU worked, and all of them."""
    # "guest" times are contained in "user" and "nice" already.
    total = sum(times) - getattr(times, "guest", 0) - getattr(times, "guest_nice", 0)
    return total - times.idle - getattr(times, "iowait", 0), total


def _percent(before: tuple[float, float], now: tuple[float, float]) -> float | None:
    if now[1] <= before[1]:
        return None
    share = (now[0] - before[0]) / (now[1] - before[1])
    return 100 * min(max(share, 0), 1)


def _network_bytes() -> tuple[int | None, ...]:
    cards = psutil.net_io_counters(pernic=True, nowrap=False) or {}
    cards.pop("lo", None)
    # Looked up each time, since cards come and go. A container has none
    # but sees its interfaces.
    hardware = hardware_in(Path("/sys/class/net")) & cards.keys() or cards.keys()
    return _sums([cards[name] for name in hardware], "bytes_recv", "bytes_sent")


def hardware_in(folder: Path) -> set[str]:
    """Return the names of the devices in a folder of /sys that are hardware."""
    # Bonds, bridges, logical volumes, RAID sets and loop devices pass on what a
    # hardware device carries: to add them would count the same bytes again.
    if not folder.is_dir():
        return set()
    return {
        entry.name
        for entry in folder.iterdir()
        if (entry / "device").exists()
        # NVMe multipath and virtual cards with a pass-through card pass on, too.
        and "nvme-subsystem" not in entry.resolve().parts
        and not (entry / "master" / "device").exists()
    }


def _sums(counters: list[Any], *fields: str) -> tuple[int | None, ...]:
    return tuple(
        sum(getattr(counter, field) for counter in counters) if counters else None
        for field in fields
    )


class _ProcessTrees:
    """The processes of a run: some roots and all that descend from them."""

    def __init__(self, roots: Sequence[int]) -> None:
        self._roots: list[psutil.Process] = []
        for pid in roots:
            try:
                self._roots.append(psutil.Process(pid))
            except psutil.NoSuchProcess:
                continue  # It ended before the first reading.
        self._root_seconds: dict[int, float] = {}
        self._members: list[psutil.Process] = []
        self._walked_at = -_TREE_SECONDS

    def read_cpu_seconds(self) -> float:
        now = time.monotonic()
        if now - self._walked_at >= _TREE_SECONDS:
            self._walked_at = now
            self._members = self._walk()
        seconds = 0.0
        for process in self._members:
            with suppress(psutil.Error):  # It ended; its parent in the tree has it.
                seconds += self._cpu_seconds(process)
        for root in self._roots:
            if root.pid != os.getpid():
                with suppress(psutil.Error):  # Its last reading counts.
                    self._root_seconds[root.pid] = self._cpu_seconds(root)
        return round(seconds + sum(self._root_seconds.values()), 2)

    @staticmethod
    def _cpu_seconds(process: psutil.Process) -> float:
        """Return a process's time, and that of its children that it has collected."""
        if not process.is_running():  # Its pid may be another process's by now.
            raise psutil.NoSuchProcess(process.pid)
        return sum(process.cpu_times()[:4])

    def _walk(self) -> list[psutil.Process]:
        """Return the descendants of the roots, this process left out."""
        members: dict[int, psutil.Process] = {}
        for root in self._roots:
            try:
                descendants = root.children(recursive=True)
            except psutil.NoSuchProcess:
                continue
            members |= {process.pid: process for process in descendants}
        for pid in (os.getpid(), *(root.pid for root in self._roots)):
            members.pop(pid, None)
        return list(members.values())
