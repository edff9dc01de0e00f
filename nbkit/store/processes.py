"""Identity of a process: pid and start time, since pids are reused.

A process is identified by pid, start time, host, boot id and pid namespace; every file
that names a process names these five. Linux is read through ``/proc``. What it does not
show, such as the processes of a container beside this one, is neither alive nor dead.
"""

from __future__ import annotations

import errno
import functools
import os
import re
import resource
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from nbkit.clock import boot_id
from nbkit.store.heartbeat import COLLECTIVES_SIGNAL, STACKS_SIGNAL

if TYPE_CHECKING:
    from nbkit.store.paths import RunPaths


_FORKING_ROUNDS = 2
_STACKS_SECONDS = 0.2
"""What a process has to print its stacks before the next one does."""
_MOST_LOADING = 16
"""Loading processes of a rank that are asked for their stacks."""

_CAUGHT = re.compile(rb"^SigCgt:\s*([0-9a-f]+)", re.MULTILINE)

RUN_ID_VARIABLE = "NBKIT_RUN_ID"
"""Marker of every process of a run; see `nbkit.launch.supervision.leftovers`."""

RUN_FOLDER_VARIABLE = "NBKIT_RUN_FOLDER"
"""Second marker: a copy of a run in another store has the same id."""

JOB_VARIABLE = "NBKIT_JOB"
"""Third marker: the scheduler's job in which the run itself is; empty without one."""

_SCHEDULER_JOBS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID")
"""A scheduler sets its own in every process of a job; the rest of the environment comes
from whoever submitted it (``sbatch --export=ALL`` is the default)."""

_TRACKER = re.compile(rb"\0from [\w.]*\bresource_tracker import main;")
"""In the command line of Python's and loky's."""


@dataclass(frozen=True)
class ProcessIdentity:
    """One process of one boot of one host."""

    pid: int
    start_ticks: int
    """Start time in clock ticks since boot (``/proc/PID/stat``, field 22)."""
    host: str
    boot_id: str
    pid_namespace: str | None = None
    """Which ``/proc`` shows it; None where the kernel does not tell."""

    @classmethod
    def of(cls, pid: int | None = None) -> Self:
        """Return the identity of a living process, by default this one."""
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
        return self._is_running(zombies=False)

    def exists(self) -> bool | None:
        """Return whether the process is in the process table, zombies included."""
        return self._is_running(zombies=True)

    def _is_running(self, *, zombies: bool) -> bool | None:
        if not self.is_here:
            # A process of an earlier boot of this host has ended.
            is_earlier = self.host == hostname() and self.boot_id != boot_id()
            return False if is_earlier else None
        try:
            status = _stat(self.pid)
        except PermissionError:
            return None  # hidepid=1: /proc tells of one's own only
        if status is None:
            return None if _is_hidden(self.pid) else False
        return status[1] == self.start_ticks and (zombies or status[0] != "Z")


def start_problem(error: BaseException) -> str | None:
    """Return why a process or thread could not be started; None for other errors."""
    number = getattr(error, "errno", None)
    if isinstance(error, RuntimeError) and "start new thread" in str(error):
        number = errno.EAGAIN
    most = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    shown = "unlimited" if most == resource.RLIM_INFINITY else f"{most:,}"
    remedies = {
        errno.EAGAIN: f"the limit of this user (ulimit -u is {shown}) or of the "
        "control group (pids.max) is reached: end some processes, or increase this "
        "limit",
        errno.ENOMEM: "end some processes, or use another host",
        errno.E2BIG: "unset the longest environment variables",
    }
    if number not in remedies:
        return None
    return f"cannot start a process ({os.strerror(number)}): {remedies[number]}."


def pidfd_problem() -> str | None:
    """Return why processes cannot be watched here, and what to do; None if they can."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError) as error:
        return (
            f"pidfd_open, which supervision requires, is not available ({error}). Use "
            "Linux 5.3 or newer; in a container, use a seccomp profile that allows it "
            "(Docker's default since 20.10)."
        )
    return None


def hostname() -> str:
    """Return this host's name."""
    return socket.gethostname()


@functools.cache
def pid_namespace() -> str | None:
    """Return which processes ``/proc`` shows here: ``pid:[4026531836]``."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return None


def _is_hidden(pid: int) -> bool:
    """Return whether ``/proc`` hides another user's process (hidepid=2)."""
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


def run_markers(paths: RunPaths) -> dict[str, str]:
    """Return the variables by which the processes of a run are found."""
    return {
        RUN_ID_VARIABLE: paths.run_id,
        RUN_FOLDER_VARIABLE: str(paths.root),
        JOB_VARIABLE: _job_id(os.environ),
    }


def is_of_another_job(environment: Mapping[str, str]) -> bool:
    """Return whether a rank has submitted a process as a job of its own."""
    job = _job_id(environment)
    return bool(job) and job != environment.get(JOB_VARIABLE, "")


def _job_id(environment: Mapping[str, str]) -> str:
    return next(filter(None, map(environment.get, _SCHEDULER_JOBS)), "")


def session_members(session: int) -> list[int]:
    """Return the pids of a session, its leader's too."""
    members = []
    for name in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208 - numbers
        with suppress(OSError):
            if os.getsid(int(name)) == session:
                members.append(int(name))
    return sorted(members)


def print_stacks(leaders: Sequence[int], *, collectives: bool = True) -> None:
    """Let ranks, and then their loading processes, print stacks and collectives."""
    numbers = [COLLECTIVES_SIGNAL] * collectives + [STACKS_SIGNAL]
    for pid in leaders:
        for number in numbers:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
    loading = [list(filter(prints_stacks, session_members(pid)[1:])) for pid in leaders]
    for pids in zip_longest(*(pids[:_MOST_LOADING] for pids in loading)):
        time.sleep(_STACKS_SECONDS)
        for pid in filter(None, pids):
            with suppress(ProcessLookupError):
                os.kill(pid, STACKS_SIGNAL)


def prints_stacks(pid: int) -> bool:
    """Return whether `STACKS_SIGNAL` makes a process print: else it ends it."""
    try:
        caught = _CAUGHT.search(Path(f"/proc/{pid}/status").read_bytes())
    except OSError:
        return False  # it has ended
    return bool(caught and int(caught[1], 16) >> (STACKS_SIGNAL - 1) & 1)


def is_cleaner(pid: int) -> bool:
    """Return whether a process removes shared memory by itself, as of torch or loky."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    program = command.partition(b"\0")[0]
    is_of_torch = program.rpartition(b"/")[2] == b"torch_shm_manager"
    return is_of_torch or _TRACKER.search(command) is not None


def kill(process: ProcessIdentity, number: signal.Signals = signal.SIGKILL) -> None:
    """Send a signal to a process, unless its pid means another one by now."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        return
    try:
        # The descriptor holds on to one process: what is checked is what is killed.
        if process.is_alive():
            signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        pass
    finally:
        os.close(descriptor)


def kill_session(leader: int) -> None:
    """Kill a rank and what it has started in its session, but cleaners."""
    for _ in range(_FORKING_ROUNDS):  # one may fork before it is killed
        for pid in sorted(session_members(leader), key=lambda pid: pid != leader):
            with suppress(OSError):  # it has ended, or is another user's (sudo)
                if pid == leader or not is_cleaner(pid):
                    kill(ProcessIdentity.of(pid))
