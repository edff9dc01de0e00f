"""Processes on a GPU: process -> kernel -> notebook -> run.

The driver names pids. Kernels and runs are passed in; a process belongs to the
run whose marker its environment carries, or to the nearest ancestor that is a rank or a
kernel. Whatever cannot be proved is "outside": an unknown holder is better than a wrong
name. So

- a pid means nothing without its start time: one that is used again is another process;
- in a container with its own pids, the driver's may be the host's, and the number may
  belong here to another process. There, a process counts only if it can be seen to
  use CUDA, and one of a run only on a GPU that the run reports;
- what a run reports of itself counts where the driver names none of its processes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nbkit.telemetry.processes import (
    LocalProcess,
    Parent,
    is_own,
    parent_of,
    pids_are_the_hosts,
)
from nbkit.telemetry.sample import GpuProcess

_MOST_ANCESTORS = 64

_DOUBT_SECONDS = 10.0
"""How often a process is looked at again that was not seen to use CUDA."""


@dataclass(frozen=True)
class Kernel:
    """A kernel of the Jupyter server, of any language."""

    kernel_id: str
    pid: int | None = None
    """Process id; None if it runs on another or an unknown machine."""
    name: str | None = None
    path: str | None = None
    """Path of its notebook, relative to the server's root; None for a console."""
    idle_since: float | None = None
    """End of its newest cell: Unix time in seconds; None unless it is idle."""


@dataclass(frozen=True)
class ReportedRun:
    """A run of this machine, and what it reports of itself."""

    run_id: str
    name: str | None = None
    devices: Sequence[str] = ()
    """UUIDs of its GPUs or MIG instances."""
    pids: Sequence[int] = ()
    """Process ids of its ranks, in their own pid namespace."""
    path: str | None = None
    """Notebook that owns the run."""


@dataclass(frozen=True)
class _Root:
    """A process of a kernel or a run, as it was passed in."""

    kind: str
    name: str
    """Id of the kernel or the run."""
    start_ticks: int


@dataclass
class _Known:
    """A process that was looked at, and what was found."""

    process: LocalProcess
    uses_cuda: bool | None = None
    looked_at: float = 0.0
    marker: str | None = None
    version: int = -1
    """Of the known kernels and runs when the owner was looked for."""
    kernel_id: str | None = None
    run_id: str | None = None


class HolderFinder:
    """Finds who holds GPUs, and remembers what it found."""

    def __init__(
        self, run_marker: str | None = None, *, host_pids: bool | None = None
    ) -> None:
        self._run_marker = run_marker
        self._host_pids = pids_are_the_hosts() if host_pids is None else host_pids
        # By default: a command line may hold a secret.
        self.hide_commands_of_others = True
        self._kernels: dict[str, Kernel] = {}
        self._runs: dict[str, ReportedRun] = {}
        self._roots: dict[int, _Root] = {}
        self._version = 0
        self._known: dict[int, _Known] = {}

    def set_kernels(self, kernels: Iterable[Kernel]) -> None:
        """Replace the known kernels."""
        self._kernels = {kernel.kernel_id: kernel for kernel in kernels}
        self._note_roots()

    def set_runs(self, runs: Iterable[ReportedRun]) -> None:
        """Replace the known runs."""
        self._runs = {run.run_id: run for run in runs}
        self._note_roots()

    def find(
        self,
        uuid: str | None,
        processes: Sequence[GpuProcess] | None,
        *,
        instances: Sequence[str] = (),
        pids_are_here: bool = True,
        reported_holders: Mapping[int, dict[str, Any]] | None = None,
    ) -> tuple[list[dict[str, Any]] | None, list[int | None]]:
        """Return the holders of a GPU, and the bytes that each holds."""
        holders: list[dict[str, Any]] = []
        memory: list[int | None] = []
        # By pid; those whose pid the driver hides come last.
        for process in sorted(
            processes or (),
            key=lambda p: (p.pid is None, p.pid or 0, p.mig_uuid or ""),
        ):
            holder = self._holder(uuid, process, pids_are_here)
            if reported_holders and process.pid is not None:
                holder |= reported_holders.get(process.pid, {})
            holders.append(holder)
            memory.append(process.memory_used_bytes)
        run_ids = {holder["run_id"] for holder in holders}
        for run in self._runs.values():
            parts = [part for part in instances if part in run.devices]
            is_here = bool(parts) or (uuid is not None and uuid in run.devices)
            if is_here and run.run_id not in run_ids:
                reported = {
                    "own": any(map(is_own, run.pids)),
                    "mig_uuid": parts[0] if parts else None,
                    "reported_by": "run",
                }
                holders.append(_OUTSIDE | _run_fields(run.run_id, run) | reported)
                memory.append(None)
        unknown = processes is None and not holders
        return (None if unknown else holders), memory

    def forget_all_but(self, pids: Iterable[int]) -> None:
        """Forget processes that no longer use a GPU."""
        used = set(pids)
        self._known = {pid: known for pid, known in self._known.items() if pid in used}

    def _note_roots(self) -> None:
        """Note the processes of kernels and runs, with their start times."""
        # A new pid is trusted the first time; later, another start time shows that
        # another process has the pid by now.
        kernels = self._kernels.values()
        reported = [
            ("kernel", kernel.kernel_id, kernel.pid)
            for kernel in kernels
            if kernel.pid is not None
        ]
        reported += [
            ("run", run.run_id, pid) for run in self._runs.values() for pid in run.pids
        ]
        roots: dict[int, _Root] = {}
        for kind, name, pid in reported:
            before = self._roots.get(pid)
            if before is not None and (before.kind, before.name) == (kind, name):
                roots[pid] = before
            elif (status := parent_of(pid)) is not None:
                roots[pid] = _Root(kind, name, status.start_ticks)
        if roots != self._roots:
            self._roots = roots
            self._version += 1

    def _holder(
        self, uuid: str | None, process: GpuProcess, pids_are_here: bool
    ) -> dict[str, Any]:
        holder = _OUTSIDE | {"pid": process.pid, "mig_uuid": process.mig_uuid}
        if not pids_are_here or process.pid is None:
            return holder
        record = self._look_up_process(process.pid)
        if record is None or not self._is_proved(record, {uuid, process.mig_uuid}):
            return holder
        local = record.process
        hidden = self.hide_commands_of_others and not local.own
        holder |= {
            "start_ticks": local.start_ticks,
            "user": local.user,
            "command": None if hidden else local.command,
            "own": local.own,
        }
        if record.run_id is not None:
            return holder | _run_fields(record.run_id, self._runs.get(record.run_id))
        if record.kernel_id in self._kernels:
            kernel = asdict(self._kernels[record.kernel_id])
            return holder | {**kernel, "kind": "kernel", "pid": process.pid}
        return holder

    def _look_up_process(self, pid: int) -> _Known | None:
        status = parent_of(pid)
        if status is None:
            return None
        record = self._known.get(pid)
        if record is None or record.process.start_ticks != status.start_ticks:
            record = _Known(LocalProcess.of(pid, status.start_ticks))
            if self._run_marker is not None:
                record.marker = record.process.variable(self._run_marker)
            self._known[pid] = record
        if record.version != self._version:
            record.version = self._version
            record.kernel_id, record.run_id = self._owner(record, status)
        return record

    def _is_proved(self, record: _Known, names: set[str | None]) -> bool:
        """Tell whether the process here is the one that the driver means."""
        if self._host_pids:
            return True
        now = time.monotonic()
        if not record.uses_cuda and now - record.looked_at >= _DOUBT_SECONDS:
            record.looked_at = now
            record.uses_cuda = record.process.uses_cuda()
        if not record.uses_cuda:
            return False
        run = self._runs.get(record.run_id or "")
        return run is None or not run.devices or not names.isdisjoint(run.devices)

    def _owner(self, record: _Known, status: Parent) -> tuple[str | None, str | None]:
        """Return the kernel or the run that a process descends from."""
        if record.marker:
            return None, record.marker
        pid = record.process.pid
        for _ in range(_MOST_ANCESTORS):
            root = self._roots.get(pid)
            if root is not None and root.start_ticks == status.start_ticks:
                return (root.name, None) if root.kind == "kernel" else (None, root.name)
            pid = status.parent_pid
            parent = parent_of(pid) if pid > 1 else None
            if parent is None or parent.start_ticks > status.start_ticks:
                break  # No process is older than its parent: that pid is used again.
            status = parent
        return None, None


_OUTSIDE: dict[str, Any] = {
    "pid": None,
    "start_ticks": None,
    "user": None,
    "command": None,
    "own": False,
    "kind": "outside",
    "kernel_id": None,
    "path": None,
    "idle_since": None,
    "run_id": None,
    "name": None,
    "mig_uuid": None,
    "reported_by": "driver",
}


def _run_fields(run_id: str, run: ReportedRun | None) -> dict[str, Any]:
    return {
        "kind": "run",
        "run_id": run_id,
        "path": run.path if run else None,
        "name": run.name if run else None,
    }
