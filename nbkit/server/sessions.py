"""Kernels of the server, and the notebook of each."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from jupyter_core.utils import ensure_async


@dataclass(frozen=True)
class JupyterKernel:
    """One kernel of the server, of any language."""

    kernel_id: str
    pid: int | None
    """None if it runs on another or an unknown machine."""
    name: str
    path: str | None
    """The notebook, relative to the server's root; None for a console."""
    idle_since: float | None
    """Seconds since 1970; None unless it is idle."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)


async def list_kernels(
    kernel_manager: Any, session_manager: Any
) -> list[JupyterKernel]:
    """Return every kernel; the request does not count as activity."""
    paths: dict[str, str] = {}
    for session in await ensure_async(session_manager.list_sessions()):
        if session["type"] == "notebook" and session.get("kernel"):
            paths.setdefault(session["kernel"]["id"], session["path"])
    kernels: list[JupyterKernel] = []
    for kernel_id in kernel_manager.list_kernel_ids():
        try:
            kernel = kernel_manager.get_kernel(kernel_id)
        except KeyError:  # it has just ended
            continue
        kernels.append(
            JupyterKernel(
                kernel_id=kernel_id,
                pid=_pid(kernel),
                name=str(getattr(kernel, "kernel_name", "")),
                path=paths.get(kernel_id),
                idle_since=_idle_since(kernel),
            )
        )
    return kernels


def _pid(kernel: Any) -> int | None:
    """Return the pid where it means a living process of this machine."""
    provisioner = getattr(kernel, "provisioner", None)
    if not isinstance(provisioner, LocalProvisioner):
        return None
    process = provisioner.process
    if process is None or process.returncode is not None:
        return None
    return provisioner.pid


def _idle_since(kernel: Any) -> float | None:
    # Both are set by the kernel's first message.
    moment = getattr(kernel, "last_activity", None)
    if moment is None or getattr(kernel, "execution_state", None) != "idle":
        return None
    return round(moment.timestamp(), 3)
