"""Leases of GPUs and CPUs, shared by every user and notebook of one host.

::

    <pool>/pool.lock          held while a process allocates
    <pool>/devices/<name>     one file a device: its holder has locked it
    <pool>/claims/<number>-<run_id>.json   who waits or holds: locked by its supervisor

A device is held as long as any process has its file locked (``flock``, shared). The
supervisor locks it and every rank inherits the descriptor, as do the loading processes
that a rank forks, so that the last of them to end frees it, whatever was killed. (A
spawned loading process does not: it ends with its rank.) An exclusive lock that can be
taken says that no process holds the device; it is tried only under the pool's lock.
Claims are served in the order of their numbers: a later one gets only devices that no
earlier one would take. One whose lock is free, or whose process is gone, is skipped.

Locks of a network file system would concern other hosts too: the pool is in
memory or on a local disk.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from nbkit.launch.devices.claims import (
    PATIENCE_SECONDS,
    SCHEMA,
    ClaimEntry,
    claim_file,
    device_file,
    holders_of,
    read_entries,
)
from nbkit.launch.devices.pool_folder import (
    allocating,
    lock,
    open_shared,
    pool_errors,
    pool_folder,
    unlock,
)
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import utc_now

_NOUNS = {"cuda": "GPU", "replay": "replayed GPU", "cpu": "CPU"}

ForeignProcesses = Callable[[Sequence[str]], Mapping[str, str]]
"""Asked about devices that no run holds, by their names: returns those that processes
outside the pool use, with what to say of each."""


@dataclass(frozen=True)
class Waiting:
    """Why a claim is not served yet."""

    position: int
    """1 is next."""
    length: int
    """Claims that wait, of those that want some of the same devices."""
    reason: str


@dataclass
class Lease:
    """Devices that this process holds until `release`, or until its last heir ends."""

    devices: tuple[str, ...]
    """Names: UUIDs of GPUs or MIG instances, or CPUs such as ``cpu-3``."""
    descriptors: tuple[int, ...]
    """Open files to hand on to ranks; each keeps its device held."""
    shared: bool
    """Whether ranks share a device with each other or with another run."""

    def release(self) -> None:
        """Let go; a rank that still runs continues to hold. A second call does nothing.

        The files are closed, not unlocked: that would be done for the ranks, too.
        """
        descriptors, self.descriptors = self.descriptors, ()
        for descriptor in descriptors:
            os.close(descriptor)


def _above_standard_files(descriptor: int) -> int:
    """Return a descriptor of the same file, above 2: a shell replaces 0 to 2.

    Where this process was started with closed standard files, these are free.
    """
    above = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(descriptor)
    return above


class QueueTicket:
    """The place of one run in the queue, as long as its process runs.

    `enter` makes it, in the launcher; the supervisor inherits the open, locked file.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._pool = pool_folder()
        size = os.fstat(descriptor).st_size
        self._values: dict[str, Any] = json.loads(os.pread(descriptor, size, 0))
        self.kind: str = self._values["kind"]
        self._number: int = self._values["number"]
        self._place = (self._number, self._values["run_id"])
        self._labels = dict(self._values["candidates"])
        self._count: int = self._values["count"]
        self._oversubscribe: bool = self._values["oversubscribe"]

    def take_over(self) -> None:
        """Say that the claim lives as long as this process; its supervisor does."""
        with pool_errors(self._pool):
            self._write(process=ProcessIdentity.of().to_dict())

    def call(self, name: str) -> None:
        """Say what the run is called, for runs that wait for its devices."""
        with pool_errors(self._pool):
            self._write(name=name)

    @classmethod
    def enter(cls, run_id: str, request: Mapping[str, Any]) -> Self:
        """Join the end of the queue."""
        pool = pool_folder()
        with pool_errors(pool), allocating(pool, PATIENCE_SECONDS):
            numbers = [entry.number for entry in read_entries(pool)]
            number = max(numbers, default=0) + 1
            values = {
                "schema": SCHEMA,
                "number": number,
                "run_id": run_id,
                "since": utc_now(),
                "kind": request["kind"],
                "candidates": request["candidates"],
                "count": request["count"],
                "oversubscribe": request["oversubscribe"],
                # Its supervisor's, once it has begun.
                "process": None,
                "granted": None,
            }
            path = claim_file(pool, number, run_id)
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            descriptor = _above_standard_files(os.open(path, flags, 0o644))
            try:
                os.fchmod(descriptor, 0o644)
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                os.pwrite(descriptor, json.dumps(values).encode(), 0)
                return cls(descriptor)
            except BaseException:
                # As long as it is locked, all later claims wait.
                path.unlink(missing_ok=True)
                unlock(descriptor)
                raise

    @property
    def since(self) -> str:
        """When it was made: UTC, ISO 8601."""
        return self._values["since"]

    def attempt(self, look: ForeignProcesses | None = None) -> Lease | Waiting | None:
        """Take the devices if it is this claim's turn and they are free."""
        if look is None or self._oversubscribe:
            return self._lease(self._labels, {})
        # What takes long is asked while no other process waits for it.
        free = self._lease(None, {})
        if not isinstance(free, list):
            return free
        busy = look(free)
        return self._lease([name for name in free if name not in busy], busy)

    def close(self) -> None:
        """Leave the queue; a second call does nothing. A lease is not touched."""
        if self.descriptor >= 0:
            with contextlib.suppress(OSError):
                claim_file(self._pool, self._number, self._values["run_id"]).unlink()
            unlock(self.descriptor)
            self.descriptor = -1

    def hand_over(self) -> None:
        """Close the file here; the supervisor, which inherited it, has the claim."""
        os.close(self.descriptor)
        self.descriptor = -1

    def _write(self, **changes: Any) -> None:
        # In place: a new file would not be locked. It never gets shorter than its
        # first form, so that blanks fill it up.
        self._values |= changes
        size = os.fstat(self.descriptor).st_size
        data = json.dumps(self._values).encode().ljust(size)
        os.pwrite(self.descriptor, data, 0)

    def _lease(self, approved: Collection[str] | None, busy: Mapping[str, str]) -> Any:
        """Take devices among those approved; with None, only say which could be."""
        with pool_errors(self._pool), allocating(self._pool) as alone:
            if not alone:
                return None
            entries = read_entries(self._pool)
            competitors = [
                entry
                for entry in entries
                if entry.waits
                and entry.place != self._place
                and entry.kind == self.kind
                and not entry.candidates.isdisjoint(self._labels)
            ]
            ahead = [entry for entry in competitors if entry.place < self._place]
            if self._oversubscribe:
                ahead = []  # it does not wait
            # What one of them would take is not for later claims; the rest is.
            spoken_for = {name for entry in ahead for name in entry.candidates}
            behind = None
            if ahead:
                reason = f"{ahead[0].who} is next"
                behind = Waiting(len(ahead) + 1, len(competitors) + 1, reason)
                if len(self._labels.keys() - spoken_for) < self._count:
                    return behind
            with _Files(self, self._pool, entries) as files:
                free = [name for name in files.free if name not in spoken_for]
                if approved is None and len(free) >= self._count:
                    return free
                if approved is not None:
                    free = [name for name in free if name in approved]
                held = [name for name in self._labels if name not in free]
                chosen = free[: self._count]
                if self._oversubscribe:
                    names = [n for it in entries if it.granted for n in it.granted]
                    chosen = [*free, *sorted(held, key=names.count)][: self._count]
                elif len(chosen) < self._count and behind is not None:
                    return behind
                elif len(chosen) < self._count:
                    reason = self._wait_reason(len(free), held, busy, entries)
                    return Waiting(1, len(competitors) + 1, reason)
                descriptors = files.share(chosen)
                self._write(granted=chosen)
            shared = len(chosen) < self._count or not set(chosen).isdisjoint(held)
            return Lease(tuple(chosen), descriptors, shared)

    def _wait_reason(
        self,
        n_free: int,
        held: Sequence[str],
        busy: Mapping[str, str],
        entries: list[ClaimEntry],
    ) -> str:
        holders: dict[str, list[str]] = {}
        for name in held:
            who = busy.get(name) or holders_of(name, self.kind, entries)
            holders.setdefault(who, []).append(self._labels[name])
        requested = f"{self._count} {_NOUNS[self.kind]}{'s' if self._count > 1 else ''}"
        uses = "; ".join(
            f"{who} holds {_join_words(devices)}" for who, devices in holders.items()
        )
        return f"{requested} requested, {n_free} of {len(self._labels)} free: {uses}"


class _Files(contextlib.AbstractContextManager["_Files"]):
    """The files of a claim's candidates, those that are free locked."""

    def __init__(
        self, claim: QueueTicket, pool: Any, entries: Sequence[ClaimEntry]
    ) -> None:
        # A file that was removed under a run is free, and its device is not.
        taken = {
            name
            for entry in entries
            if entry.kind == claim.kind
            for name in entry.granted or ()
        }
        self.free: list[str] = []
        """Names of the devices that no run holds."""
        self._files: dict[str, int] = {}
        self._shared: set[str] = set()
        for name in claim._labels:
            file = self._files[name] = open_shared(device_file(pool, claim.kind, name))
            if lock(file, fcntl.LOCK_EX) and name not in taken:
                self.free.append(name)

    def share(self, names: Sequence[str]) -> tuple[int, ...]:
        """Hold devices as others may, too; return descriptors that keep them held."""
        for name in names:
            # No other process tries meanwhile: they all wait for the pool's lock.
            fcntl.flock(self._files[name], fcntl.LOCK_SH)
        self._shared.update(names)
        # A duplicate keeps the lock when the first descriptor is closed.
        return tuple(os.dup(self._files[name]) for name in names)

    def __exit__(self, *_: object) -> None:
        for name, file in self._files.items():
            if name in self._shared:
                os.close(file)
            else:
                unlock(file)


def _join_words(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
