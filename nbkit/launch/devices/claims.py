"""Claims on devices, read from files that other users may have written."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nbkit.launch.devices.pool_folder import (
    READ_FLAGS,
    allocating,
    lock,
    pool_errors,
    pool_folder,
    unlock,
)
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import DAMAGE_ERRORS
from nbkit.telemetry.processes import user_name

SCHEMA = 1
"""Version of a claim's file; whatever else is found there is left alone."""

PATIENCE_SECONDS = 10.0
"""For the pool's lock, which is never held for more than milliseconds."""

_MOST_BYTES = 1 << 20
_LONGEST_NAME = 60
_NAME = re.compile(r"[\w.-]+")


@dataclass(frozen=True)
class ClaimEntry:
    """One claim."""

    number: int
    run_id: str
    name: str | None
    """What the run is called, if its claim tells that."""
    user: str
    kind: str
    candidates: frozenset[str]
    granted: tuple[str, ...] | None
    """What it holds; None while it waits."""
    is_alive: bool
    """Whether its process runs. Ranks may hold devices for longer."""

    @property
    def waits(self) -> bool:
        """Whether it is in the queue."""
        return self.is_alive and self.granted is None

    @property
    def place(self) -> tuple[int, str]:
        """Its place in the queue, before that of all that are greater."""
        return self.number, self.run_id

    @property
    def who(self) -> str:
        """The run and its user."""
        return f"{self.name or self.run_id} of {self.user}"


def leases(kind: str) -> dict[str, tuple[str, ...]]:
    """Return ids of the runs that hold devices of this host, by name of the device.

    Runs of every user count.
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


def read_entries(pool: Path) -> list[ClaimEntry]:
    """Return every claim that waits or holds something, in their order.

    Called under the pool's lock: checking a lock takes it for a moment. Files of claims
    that have ended are removed where this user may.
    """
    living: list[ClaimEntry] = []
    ended: list[tuple[Path, ClaimEntry | None]] = []
    for path in (pool / "claims").glob("*.json"):
        try:
            descriptor = os.open(path, READ_FLAGS)
        except OSError:
            continue  # it ended meanwhile
        is_locked = not lock(descriptor, fcntl.LOCK_SH)
        try:
            entry = _parse(descriptor, path, is_locked)
        except DAMAGE_ERRORS:
            entry = None  # half written, of another version, or nonsense
        finally:
            unlock(descriptor)
        if entry is not None and entry.is_alive:
            living.append(entry)
        elif entry is not None or not is_locked:
            ended.append((path, entry))
    entries = living + _leftover_claims(pool, living, ended)
    return sorted(entries, key=lambda entry: entry.place)


def _leftover_claims(
    pool: Path, living: list[ClaimEntry], ended: list[tuple[Path, ClaimEntry | None]]
) -> list[ClaimEntry]:
    """Return what processes of ended claims hold still; remove the other claims."""
    held = {(claim.kind, name) for claim in living for name in claim.granted or ()}
    leftovers: list[ClaimEntry] = []
    for path, entry in ended:
        names: list[str] = []
        if entry is not None:
            # A device that another run has by now says nothing of this claim.
            names = [
                name
                for name in entry.granted or ()
                if (entry.kind, name) not in held and _is_held(pool, entry.kind, name)
            ]
        if entry is not None and names:
            leftovers.append(replace(entry, granted=tuple(names)))
        else:
            with contextlib.suppress(OSError):  # another user's
                path.unlink()
    return leftovers


def _parse(descriptor: int, path: Path, is_locked: bool) -> ClaimEntry:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        message = "not a regular file"
        raise ValueError(message)
    values: dict[str, Any] = json.loads(os.pread(descriptor, _MOST_BYTES, 0))
    if values["schema"] != SCHEMA:
        message = f"schema {values['schema']} is not {SCHEMA}"
        raise ValueError(message)
    number, run_id = values["number"], check_name(values["run_id"])
    if type(number) is not int or number < 1:
        message = f"number {number!r:.40} is not a positive integer"
        raise ValueError(message)
    if path.name != claim_file(path.parents[1], number, run_id).name:
        message = f"{path.name} is not the file of claim {number} of {run_id}"
        raise ValueError(message)
    granted = values["granted"]
    is_alive = is_locked
    # A forked child may have the file open after its process ended. Of
    # other users' processes /proc may tell nothing: there the lock alone decides.
    if values["process"] is not None and status.st_uid == os.geteuid():
        process = ProcessIdentity.from_dict(values["process"])
        is_alive = is_locked and process.is_alive() is not False
    return ClaimEntry(
        number,
        run_id,
        _printable_name(values.get("name")),
        user_name(status.st_uid),
        check_name(values["kind"]),
        frozenset(check_name(name) for name, _ in values["candidates"]),
        None if granted is None else tuple(map(check_name, granted)),
        is_alive,
    )


def _printable_name(name: object) -> str | None:
    """Return a name as it may be shown to other users: short, and in one line."""
    if not isinstance(name, str):
        return None
    text = "".join(letter for letter in name if letter.isprintable()).strip()
    return text[:_LONGEST_NAME] or None


def check_name(name: str) -> str:
    """Return a name if a file may be called so."""
    if not _NAME.fullmatch(name):
        message = f"{name!r} has characters other than letters, digits, '.', '_', '-'"
        raise ValueError(message)
    return name


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
    """Return the file that the holder of a device has locked."""
    # What is replayed may bear the UUID of a GPU that is there as well.
    prefix = "replay-" if kind == "replay" else ""
    return pool / "devices" / f"{prefix}{check_name(name)}"


def holders_of(name: str, kind: str, entries: Sequence[ClaimEntry]) -> str:
    """Return who holds a device, in words."""
    who = [
        entry.who
        for entry in entries
        if entry.kind == kind and name in (entry.granted or ())
    ]
    left_over = "an orphaned process (nbkit.sweep() kills it if it is your own and not "
    left_over += "detached)"
    return " and ".join(who) or left_over
