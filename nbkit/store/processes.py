"""Which process is meant: a pid alone is not enough, since pids are used again.

A process is identified by pid, start time, host, boot id and pid namespace; every file
that names a process names these five. Linux is read through ``/proc``. What it does not
show, such as the processes of a container beside this one, is neither alive nor dead.
"""

from __future__ import annotations

import functools
import os
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from nbkit.clock import boot_id

__all__ = ["ProcessIdentity", "boot_id", "hostname", "pid_namespace", "pidfd_problem"]


@dataclass(frozen=True)
class ProcessIdentity:
    """One process of one boot of one host."""

    pid: int
    start_ticks: int
    """Start time in clock ticks since boot (``/proc/PID/stat``, field 22)."""
    host: str
    boot_id: str
    pid_namespace: str | None = None
    """Which ``/proc`` shows it; None where an earlier version has not said."""

    @classmethod
    def of(cls, pid: int | None = None) -> Self:
        """Return the identity of a living process, by default this one.

        Raises
        ------
        ProcessLookupError
            If there is no such process.
        """
        pid = os.getpid() if pid is None else pid
        status = _stat(pid)
        if status is None:
            message = f"no process with pid {pid}"
            raise ProcessLookupError(message)
        return cls(pid, status[1], hostname(), boot_id(), pid_namespace())

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the identity that `to_dict` described."""
        return cls(
            int(values["pid"]),
            int(values["start_ticks"]),
            str(values["host"]),
            str(values["boot_id"]),
            values.get("pid_namespace"),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the five parts as JSON values."""
        return asdict(self)

    @property
    def is_here(self) -> bool:
        """Whether ``/proc`` shows it here, so that the pid means something."""
        if self.boot_id != boot_id():
            return False
        if self.pid_namespace is None or not self.boot_id:
            return self.host == hostname()
        return self.pid_namespace == pid_namespace()

    def is_alive(self) -> bool | None:
        """Return whether the process runs; None if that cannot be known here.

        A zombie does not run. A process of an earlier boot of this host is dead.
        """
        return self._stands(zombies=False)

    def exists(self) -> bool | None:
        """Return whether the process is in the process table, zombies included."""
        return self._stands(zombies=True)

    def _stands(self, *, zombies: bool) -> bool | None:
        if not self.is_here:
            return self._is_earlier
        try:
            status = _stat(self.pid)
        except PermissionError:
            return None  # hidepid=1: /proc tells of one's own only
        if status is None:
            return None if _is_hidden(self.pid) else False
        return status[1] == self.start_ticks and (zombies or status[0] != "Z")

    @property
    def _is_earlier(self) -> bool | None:
        """False of a process of an earlier boot of this host, None of any other."""
        is_earlier = self.host == hostname() and self.boot_id != boot_id()
        return False if is_earlier else None


def pidfd_problem() -> str | None:
    """Return why processes cannot be watched here, and what to do; None if they can."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError) as error:
        return (
            f"this system has no pidfd_open ({error}), by which nbkit watches a run's "
            "processes: it needs Linux 5.3 or newer, and in a container a seccomp "
            "profile that allows pidfd_open (Docker's own since 20.10)."
        )
    return None


def hostname() -> str:
    """Return this host's name."""
    return socket.gethostname()


@functools.cache
def pid_namespace() -> str | None:
    """Return which processes ``/proc`` shows here: ``pid:[4026531836]``.

    Each container has its own, as a rule; None where the kernel does not tell.
    """
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return None


def _is_hidden(pid: int) -> bool:
    """Return whether another user's process has a pid that ``/proc`` does not show.

    With hidepid=2 it shows one's own only.
    """
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        pass
    return False


def _stat(pid: int) -> tuple[str, int] | None:
    """Return state letter and start time in ticks, or None if there is no process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command's name may hold blanks and brackets, and is cut at 15 bytes, within a
    # letter too: fields follow the last ")".
    fields = text.rpartition(b")")[2].split()
    return fields[0].decode(), int(fields[19])
