"""Claims on devices as their files tell them; other users may have written these."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbkit.launch.pool_folder import (
    READ_FLAGS,
    allocating,
    lock,
    pool_errors,
    pool_folder,
    unlock,
)
from nbkit.store.processes import ProcessIdentity

__all__ = [
    "PATIENCE_SECONDS",
    "SCHEMA",
    "Entry",
    "check_name",
    "claim_file",
    "device_file",
    "holders_of",
    "leases",
    "read_entries",
]

SCHEMA = 1
"""Version of a claim's file; whatever else is found there is left alone."""

PATIENCE_SECONDS = 10.0
"""For the pool's lock, which nobody holds for more than milliseconds."""

_MOST_BYTES = 1 << 20
_NAME = re.compile(r"[\w.-]+")


@dataclass(frozen=True)
class Entry:
    """One claim."""

    number: int
    run_id: str
    user: str
    kind: str
    candidates: frozenset[str]
    granted: tuple[str, ...] | None
    """What it holds; None while it waits."""
    is_alive: bool
    """Whether its process runs. Ranks may hold devices beyond that."""

    @property
    def waits(self) -> bool:
        """Whether it is in the queue."""
        return self.is_alive and self.granted is None

    @property
    def who(self) -> str:
        """The run and its user."""
        return f"{self.run_id} of {self.user}"


def leases(kind: str) -> dict[str, tuple[str, ...]]:
    """Return ids of the runs that hold devices of this host, by name of the device.

    Runs of every user count.

    Parameters
    ----------
    kind
        ``cuda`` for GPUs and MIG instances by UUID, ``replay`` for replayed ones, or
        ``cpu`` for CPUs, named like ``cpu-3``.

    Raises
    ------
    DeviceError
        If the pool cannot be used, or somebody keeps it locked.
    """
    pool = pool_folder()
    with pool_errors(pool), allocating(pool, PATIENCE_SECONDS):
        entries = read_entries(pool)
    holders: dict[str, tuple[str, ...]] = {}
    for entry in entries:
        if entry.kind == kind:
            for name in entry.granted or ():
                holders[name] = (*holders.get(name, ()), entry.run_id)
    return holders


def read_entries(pool: Path) -> list[Entry]:
    """Return every claim that waits or holds something, in their order.

    Called under the pool's lock: a look at a lock takes it for a moment. What ended
    claims left behind is removed where this user may.
    """
    found: list[Entry] = []
    for path in sorted((pool / "claims").glob("*.json")):
        try:
            descriptor = os.open(path, READ_FLAGS)
        except OSError:
            continue  # it ended meanwhile
        is_locked = not lock(descriptor, fcntl.LOCK_SH)
        try:
            entry = _parse(os.pread(descriptor, _MOST_BYTES, 0), is_locked)
        except (ValueError, TypeError, KeyError, AttributeError):
            entry = None  # half written, of another version, or nonsense
        finally:
            unlock(descriptor)
        if entry is not None and (entry.is_alive or _holds(pool, entry)):
            found.append(entry)
        elif not is_locked:
            with contextlib.suppress(OSError):  # another user's
                path.unlink()
    return sorted(found, key=lambda entry: entry.number)


def _parse(data: bytes, is_locked: bool) -> Entry:
    values: dict[str, Any] = json.loads(data)
    if values["schema"] != SCHEMA:
        message = f"schema {values['schema']} is not {SCHEMA}"
        raise ValueError(message)
    granted = values["granted"]
    process = ProcessIdentity.from_dict(values["process"])
    return Entry(
        int(values["number"]),
        check_name(values["run_id"]),
        str(values["user"])[:64],
        check_name(values["kind"]),
        frozenset(check_name(name) for name, _ in values["candidates"]),
        None if granted is None else tuple(map(check_name, granted)),
        # A child that somebody forked may have the file open after its process ended.
        is_locked and process.is_alive() is not False,
    )


def check_name(name: str) -> str:
    """Return a name if a file may be called so.

    Raises
    ------
    ValueError
        If not: it would lead out of the pool.
    """
    if not _NAME.fullmatch(name):
        message = f"{name!r} is not made of letters, digits, '.', '_' and '-'"
        raise ValueError(message)
    return name


def _holds(pool: Path, entry: Entry) -> bool:
    return any(_is_held(pool, entry.kind, name) for name in entry.granted or ())


def _is_held(pool: Path, kind: str, name: str) -> bool:
    try:
        descriptor = os.open(device_file(pool, kind, name), READ_FLAGS)
    except OSError:
        return False
    try:
        return not lock(descriptor, fcntl.LOCK_EX)
    finally:
        unlock(descriptor)


def claim_file(pool: Path, number: int, run_id: str) -> Path:
    """Return the file of a claim."""
    return pool / "claims" / f"{number:08d}-{check_name(run_id)}.json"


def device_file(pool: Path, kind: str, name: str) -> Path:
    """Return the file that whoever holds a device has locked."""
    # What is replayed may bear the UUID of a GPU that is there as well.
    prefix = "replay-" if kind == "replay" else ""
    return pool / "devices" / f"{prefix}{check_name(name)}"


def holders_of(name: str, kind: str, entries: Sequence[Entry]) -> str:
    """Return who holds a device, in words."""
    who = [
        entry.who
        for entry in entries
        if entry.kind == kind and name in (entry.granted or ())
    ]
    return " and ".join(who) or "a left-over process (nbkit.sweep() ends your own)"
