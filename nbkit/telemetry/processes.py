"""Facts of processes, from ``/proc``."""

from __future__ import annotations

import functools
import os
import pwd
import re
from dataclasses import dataclass
from pathlib import Path

from nbkit.visible import visible

_COMMAND_BYTES = 256
"""Longest command line that is kept: what follows is often data, or a secret."""

_INITIAL_PID_NAMESPACE = "pid:[4026531836]"
"""PROC_PID_INIT_INO of the kernel (include/linux/proc_ns.h)."""

_CUDA = re.compile(rb"/libcuda\.so")
"""The driver's library, which every process with a CUDA context maps."""


@dataclass(frozen=True)
class Parent:
    """Parent and start time of a process, from ``/proc/PID/stat``."""

    parent_pid: int
    start_ticks: int
    """Start time in clock ticks since boot: with the pid, it names one process."""


def parent_of(pid: int) -> Parent | None:
    """Return a process's parent and start time; None if there is no such process."""
    try:
        text = _read(f"/proc/{pid}/stat")
    except OSError:
        return None
    # The command's name may hold blanks and brackets: fields follow the last ")".
    fields = text.rpartition(b")")[2].split()
    return Parent(int(fields[1]), int(fields[19]))


def is_own(pid: int) -> bool:
    """Return whether the process exists and belongs to this user."""
    try:
        return os.stat(f"/proc/{pid}").st_uid == os.getuid()  # noqa: PTH116
    except OSError:
        return False


@dataclass(frozen=True)
class LocalProcess:
    """Constant facts of a process of this machine."""

    pid: int
    start_ticks: int
    user: str | None
    command: str | None
    """The command line, truncated; None if it cannot be read."""
    own: bool
    """Whether it belongs to the user of this process."""

    @classmethod
    def of(cls, pid: int, start_ticks: int) -> LocalProcess:
        """Return the facts of a process; None for those that cannot be read."""
        try:
            uid = os.stat(f"/proc/{pid}").st_uid  # noqa: PTH116  (every second)
        except OSError:
            return cls(pid, start_ticks, None, None, own=False)
        name = user_name(uid)
        return cls(pid, start_ticks, name, _command(pid), own=uid == os.getuid())

    def uses_cuda(self) -> bool | None:
        """Return whether the process uses CUDA; None if it cannot be read."""
        try:
            with os.scandir(f"/proc/{self.pid}/fd") as descriptors:
                if any(map(_is_gpu, descriptors)):
                    return True
            return _maps_cuda(self.pid)
        except OSError:
            return None

    def variable(self, name: str) -> str | None:
        """Return an environment variable of the process, if it can be read."""
        try:
            environment = _read(f"/proc/{self.pid}/environ")
        except OSError:
            return None
        mark = f"{name}=".encode()
        for entry in environment.split(b"\0"):
            if entry.startswith(mark):
                return entry[len(mark) :].decode(errors="replace")
        return None


def has_cuda_loaded(pid: int) -> bool:
    """Tell whether a process may have a CUDA context; NVML alone loads less."""
    try:
        return _maps_cuda(pid)
    except OSError:
        return False


def _maps_cuda(pid: int) -> bool:
    return _CUDA.search(_read(f"/proc/{pid}/maps")) is not None


@functools.cache
def pids_are_the_hosts() -> bool:
    """Return whether this process has the driver's pids: in no container."""
    try:
        return str(Path("/proc/self/ns/pid").readlink()) == _INITIAL_PID_NAMESPACE
    except OSError:
        return False


@functools.cache
def user_name(uid: int) -> str:
    """Return a user's name, or the uid without a name, as in a container."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)  # as ps shows it


def _command(pid: int) -> str | None:
    try:
        line = _read(f"/proc/{pid}/cmdline", _COMMAND_BYTES + 1)
    except OSError:
        return None
    words = line[:_COMMAND_BYTES].rstrip(b"\0").replace(b"\0", b" ")
    # A letter that the cut divides is left out.
    text = words.decode(errors="ignore" if len(line) > _COMMAND_BYTES else "replace")
    return visible(text) or None


def _is_gpu(descriptor: os.DirEntry[str]) -> bool:
    try:
        target = os.readlink(descriptor.path)  # noqa: PTH115  (every second)
    except FileNotFoundError:
        return False  # It was closed a moment ago.
    return target.startswith("/dev/nvidia")


def _read(path: str, size: int = -1) -> bytes:
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123  (every second)
        return file.read(size)
