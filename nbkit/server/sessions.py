"""Kernels of the server, and the notebook of each."""

from __future__ import annotations

import time
from typing import Any

from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from jupyter_client.session import Session
from jupyter_core.utils import ensure_async

from nbkit.telemetry.holders import Kernel


class Kernels:
    """The server's kernels, and since when each has been idle."""

    def __init__(self, kernel_manager: Any, session_manager: Any) -> None:
        self._kernels = kernel_manager
        self._sessions = session_manager
        self._cells: dict[str, _Cells] = {}

    async def running(self) -> list[Kernel]:
        """Return every kernel; the request does not count as activity."""
        paths: dict[str, str] = {}
        for session in await ensure_async(self._sessions.list_sessions()):
            if session["type"] == "notebook" and session.get("kernel"):
                paths.setdefault(session["kernel"]["id"], session["path"])
        ids = list(self._kernels.list_kernel_ids())
        for ended in self._cells.keys() - ids:
            self._cells.pop(ended).close()
        kernels: list[Kernel] = []
        for kernel_id in ids:
            try:
                kernel = self._kernels.get_kernel(kernel_id)
            except KeyError:  # it has just ended
                continue
            kernels.append(
                Kernel(
                    kernel_id=kernel_id,
                    pid=_pid(kernel),
                    name=str(getattr(kernel, "kernel_name", "")),
                    path=paths.get(kernel_id),
                    idle_since=self._idle_since(kernel_id, kernel),
                )
            )
        return kernels

    def close(self) -> None:
        """Let go of all kernels."""
        while self._cells:
            self._cells.popitem()[1].close()

    def _idle_since(self, kernel_id: str, kernel: Any) -> float | None:
        pid = _pid(kernel)
        # Set by the kernel's first message.
        moment = getattr(kernel, "last_activity", None)
        if pid is None or moment is None:
            moment = moment and moment.timestamp()
        else:
            cells = self._cells.get(kernel_id)
            if cells is None or cells.pid != pid:
                if cells is not None:  # of a kernel before its restart
                    cells.close()
                cells = self._cells[kernel_id] = _Cells(kernel, pid)
            moment = cells.newest
        if moment is None or getattr(kernel, "execution_state", None) != "idle":
            return None
        return round(moment, 3)


class _Cells:
    """When a kernel of this machine executed its newest cell.

    Jupyter's ``last_activity`` also counts each message of a widget.
    """

    def __init__(self, kernel: Any, pid: int) -> None:
        self.pid = pid
        self.newest: float = kernel.last_activity.timestamp()
        """Unix time in seconds; of the cells before this object, Jupyter's."""
        self._session = Session(config=kernel.session.config, key=kernel.session.key)
        self._stream = kernel.connect_iopub()
        self._stream.on_recv(self._take)

    def close(self) -> None:
        self._stream.close()

    def _take(self, parts: list[bytes]) -> None:
        _, frames = self._session.feed_identities(parts)
        message = self._session.deserialize(frames, content=False)
        # Both ends of a cell: what its output sends later has the same parent.
        of_cell = message["parent_header"].get("msg_type") == "execute_request"
        if message["header"]["msg_type"] == "status" and of_cell:
            self.newest = time.time()


def _pid(kernel: Any) -> int | None:
    """Return the pid where it means a living process of this machine."""
    provisioner = getattr(kernel, "provisioner", None)
    if not isinstance(provisioner, LocalProvisioner):
        return None
    process = provisioner.process
    if process is None or process.returncode is not None:
        return None
    return provisioner.pid
