"""Leases of GPUs and CPU slots, shared by every user and notebook of one host.

::

    <pool>/pool.lock          held while somebody allocates
    <pool>/devices/<name>     one file a device: whoever holds it has locked it
    <pool>/claims/<number>-<run_id>.json   who waits or holds: locked by its supervisor

A device is held as long as any process has its file locked (``flock``, shared). The
supervisor locks it and every rank inherits the descriptor, so that the last of them to
end frees it, whatever was killed. An exclusive lock that can be taken says that nobody
holds the device; it is tried only under the pool's lock. Claims are served in the order
of their numbers; a claim whose own lock is free belongs to a process that is gone.

Locks of a network file system would be another host's business too: the pool lies in
memory or on a local disk.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from nbkit.launch.pool_folder import (
    READ_FLAGS,
    allocating,
    lock,
    open_shared,
    pool_folder,
)
from nbkit.store.record import utc_now

__all__ = ["Claim", "Lease", "Waiting", "leases"]

_PATIENCE_SECONDS = 10.0
_MOST_BYTES = 1 << 20
_NOUNS = {"cuda": "GPU", "replay": "replayed GPU", "cpu": "CPU"}

Look = Callable[[Sequence[str]], Mapping[str, str]]


@dataclass(frozen=True)
class Waiting:
    """Why a claim is not served yet."""

    position: int
    """1 is next."""
    length: int
    """Claims that wait for devices of the same kind."""
    reason: str


@dataclass(frozen=True)
class Lease:
    """Devices that this process holds until `release`, or until its last heir ends."""

    devices: tuple[str, ...]
    """Names: UUIDs of GPUs or MIG instances, or slots such as ``cpu-3``."""
    descriptors: tuple[int, ...]
    """Open files to hand on to ranks; each keeps its device held."""
    shared: bool
    """Whether ranks share a device with each other or with another run."""

    def release(self) -> None:
        """Let go; a rank that still runs goes on holding."""
        for descriptor in self.descriptors:
            os.close(descriptor)


@dataclass
class _Entry:
    """A claim as its file tells it."""

    path: Path
    number: int
    values: dict[str, Any]
    is_alive: bool

    @property
    def waits(self) -> bool:
        return self.is_alive and self.values["granted"] is None

    @property
    def granted(self) -> list[str]:
        return self.values["granted"] or []

    @property
    def who(self) -> str:
        return f"{self.values['run_id']} of {self.values['user']}"


class Claim:
    """The place of one run in the queue, as long as any process has its file open.

    `enter` makes it, in the launcher; the supervisor inherits the open file.

    Parameters
    ----------
    descriptor
        The claim's file, locked.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._pool = pool_folder()
        self._values = json.loads(os.pread(descriptor, _MOST_BYTES, 0))
        self.kind: str = self._values["kind"]
        self._number: int = self._values["number"]
        self._labels = dict(self._values["candidates"])
        self._count: int = self._values["count"]
        self._oversubscribe: bool = self._values["oversubscribe"]

    @classmethod
    def enter(cls, run_id: str, request: Mapping[str, Any]) -> Self:
        """Join the queue behind everybody who is in it.

        Parameters
        ----------
        run_id
            Whose claim it is.
        request
            ``kind`` (``cuda``, ``replay`` or ``cpu``: names of different kinds are
            different devices), ``candidates`` (name and label of each device that will
            do, in the order in which they are taken), ``count``, and ``oversubscribe``
            (whether devices that others hold will do, and fewer than wanted: such a
            claim waits for nobody).

        Raises
        ------
        DeviceError
            If the pool cannot be used.
        """
        pool = pool_folder()
        with allocating(pool, _PATIENCE_SECONDS):
            entries = _entries(pool)
            number = max((entry.number for entry in entries), default=0) + 1
            path = _claim_file(pool, number, run_id)
            descriptor = os.open(
                path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644
            )
            os.fchmod(descriptor, 0o644)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            values = {
                "number": number,
                "run_id": run_id,
                "user": _user(),
                "since": utc_now(),
                "kind": request["kind"],
                "candidates": request["candidates"],
                "count": request["count"],
                "oversubscribe": request["oversubscribe"],
                "granted": None,
            }
            _write(descriptor, values)
        return cls(descriptor)

    @property
    def since(self) -> str:
        """When it was made: UTC, ISO 8601."""
        return self._values["since"]

    def attempt(self, look: Look | None = None) -> Lease | Waiting:
        """Take the devices if it is this claim's turn and they are free.

        Parameters
        ----------
        look
            Asked about devices that nobody holds, by their names: returns those that
            processes outside the pool use, with what to say of each.

        Raises
        ------
        DeviceError
            If the pool cannot be used.
        """
        with allocating(self._pool) as alone:
            if not alone:
                return Waiting(1, 1, "another run is choosing its devices")
            entries = _entries(self._pool)
            others = [
                entry
                for entry in entries
                if entry.waits and entry.number != self._number and self._meets(entry)
            ]
            ahead = [entry for entry in others if entry.number < self._number]
            if ahead and not self._oversubscribe:
                reason = f"{ahead[0].who} is next"
                return Waiting(len(ahead) + 1, len(others) + 1, reason)
            return self._take(entries, len(others) + 1, look)

    def close(self) -> None:
        """Leave the queue; what was granted is not touched."""
        path = _claim_file(self._pool, self._number, self._values["run_id"])
        path.unlink(missing_ok=True)
        self.hand_over()

    def hand_over(self) -> None:
        """Close the file here; whoever inherited it has the claim."""
        os.close(self.descriptor)

    def _meets(self, entry: _Entry) -> bool:
        """Return whether another claim wants devices that this one would take."""
        names = {name for name, _ in entry.values["candidates"]}
        same = entry.values["kind"] == self.kind
        return same and not names.isdisjoint(self._labels)

    def _take(
        self, entries: list[_Entry], length: int, look: Look | None
    ) -> Lease | Waiting:
        """Lock as many devices as are wanted, or none."""
        with contextlib.ExitStack() as opened:
            files: dict[str, int] = {}
            for name in self._labels:
                path = _device_file(self._pool, self.kind, name)
                files[name] = open_shared(path)
                opened.callback(os.close, files[name])
            free = [name for name, file in files.items() if lock(file, fcntl.LOCK_EX)]
            enough = len(free) >= self._count and not self._oversubscribe
            busy = look(free) if look is not None and enough else {}
            free = [name for name in free if name not in busy]
            held = [name for name in files if name not in free]
            chosen = free[: self._count]
            if self._oversubscribe:
                chosen = [*free, *held][: self._count]
            elif len(chosen) < self._count:
                return Waiting(1, length, self._reason(len(free), held, busy, entries))
            for name in chosen:
                # Nobody else tries meanwhile: they all wait for the pool's lock.
                fcntl.flock(files[name], fcntl.LOCK_SH)
            self._values["granted"] = chosen
            _write(self.descriptor, self._values)
            shared = len(chosen) < self._count or not set(chosen).isdisjoint(held)
            # A duplicate keeps the lock when the first descriptor is closed.
            heirs = tuple(os.dup(files[name]) for name in chosen)
            return Lease(tuple(chosen), heirs, shared)

    def _reason(
        self,
        n_free: int,
        held: Sequence[str],
        busy: Mapping[str, str],
        entries: list[_Entry],
    ) -> str:
        labels = self._labels
        holders: dict[str, list[str]] = {}
        for name in held:
            who = busy.get(name) or _holder(name, self.kind, entries)
            holders.setdefault(who, []).append(labels[name])
        wanted = f"{self._count} {_NOUNS[self.kind]}{'s' if self._count > 1 else ''}"
        told = "; ".join(
            f"{who} holds {_and(devices)}" for who, devices in holders.items()
        )
        return f"{wanted} wanted, {n_free} of {len(labels)} free: {told}"


def leases() -> dict[str, tuple[str, ...]]:
    """Return ids of the runs that hold devices of this host, by name of the device.

    Runs of every user count; slots of CPUs are named like ``cpu-3``.

    Raises
    ------
    DeviceError
        If the pool cannot be used, or somebody keeps it locked.
    """
    pool = pool_folder()
    with allocating(pool, _PATIENCE_SECONDS):
        return _granted(_entries(pool))


def _granted(entries: Sequence[_Entry]) -> dict[str, tuple[str, ...]]:
    holders: dict[str, list[str]] = {}
    for entry in entries:
        for name in entry.granted:
            holders.setdefault(name, []).append(entry.values["run_id"])
    return {name: tuple(runs) for name, runs in holders.items()}


def _claim_file(pool: Path, number: int, run_id: str) -> Path:
    return pool / "claims" / f"{number:08d}-{run_id}.json"


def _write(descriptor: int, values: dict[str, Any]) -> None:
    # In place: a new file would not be locked. Readers have the pool's lock.
    data = json.dumps(values).encode()
    os.pwrite(descriptor, data, 0)
    os.ftruncate(descriptor, len(data))


def _device_file(pool: Path, kind: str, name: str) -> Path:
    # What is replayed may bear the UUID of a GPU that is there as well.
    return pool / "devices" / (f"replay-{name}" if kind == "replay" else name)


def _entries(pool: Path) -> list[_Entry]:
    """Return every claim that waits or holds something, in their order.

    Called under the pool's lock: a look at a lock takes it for a moment. What ended
    claims left behind is removed where this user may.
    """
    found: list[_Entry] = []
    for path in sorted((pool / "claims").glob("*.json")):
        try:
            descriptor = os.open(path, READ_FLAGS)
        except OSError:
            continue  # it ended meanwhile
        try:
            is_alive = not lock(descriptor, fcntl.LOCK_SH)
            values = json.loads(os.pread(descriptor, _MOST_BYTES, 0))
            entry = _Entry(path, int(path.name.partition("-")[0]), values, is_alive)
        except ValueError:
            continue  # it was just made, or its maker was killed as it wrote
        finally:
            os.close(descriptor)
        if is_alive or any(
            _is_held(pool, entry.values["kind"], name) for name in entry.granted
        ):
            found.append(entry)
        else:
            with contextlib.suppress(OSError):  # another user's
                path.unlink()
    return found


def _is_held(pool: Path, kind: str, name: str) -> bool:
    descriptor = open_shared(_device_file(pool, kind, name))
    try:
        return not lock(descriptor, fcntl.LOCK_EX)
    finally:
        os.close(descriptor)


def _holder(name: str, kind: str, entries: list[_Entry]) -> str:
    who = [
        entry.who
        for entry in entries
        if entry.values["kind"] == kind and name in entry.granted
    ]
    return " and ".join(who) or "a process of a run that is gone"


def _and(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run as a user without a name
        return str(os.getuid())
