"""Answers that a user's processes on a host share: one of them asks for all.

A server and the kernels of its notebooks would else ask the same, each for itself.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from nbkit.errors import StoreError
from nbkit.store.processes import boot_id
from nbkit.store.record import DAMAGE_ERRORS, read_json, write_json
from nbkit.store.user_cache import cache_file

__all__ = ["Answer", "ask_shared"]

_LOOK_SECONDS = 0.05


@dataclass(frozen=True)
class Answer:
    """What was answered."""

    text: str
    asked_at: float
    """On this host's monotonic clock."""


def ask_shared(
    key: str,
    ask: Callable[[], str],
    *,
    max_age_seconds: float,
    limit_seconds: float,
    clock: Callable[[], float] = time.monotonic,
) -> Answer:
    """Return another process's answer if it is new enough, else ask.

    Parameters
    ----------
    key
        What is asked, and of whom.
    ask
        Returns the answer; what it raises is raised, and shared with nobody.
    max_age_seconds
        How long before this call the question may have been put.
    limit_seconds
        How long another process that is asking is waited for.
    clock
        Seconds on a clock that all processes of the host have.
    """
    least = clock() - max_age_seconds
    file = cache_file("answer", f"{boot_id()}:{key}")
    if file is None:
        return _asked(ask, clock)
    if (known := _kept(file, least, clock())) is not None:
        return known
    with _one_at_a_time(file.with_suffix(".lock"), limit_seconds):
        if (known := _kept(file, least, clock())) is not None:
            return known
        answer = _asked(ask, clock)
        # A cache that cannot be written is none.
        with suppress(OSError, StoreError):
            write_json(file, {"text": answer.text, "asked_at": answer.asked_at}, 0o600)
        return answer


def _asked(ask: Callable[[], str], clock: Callable[[], float]) -> Answer:
    began = clock()
    return Answer(ask(), began)


def _kept(file: Path, least: float, now: float) -> Answer | None:
    with suppress(StoreError, *DAMAGE_ERRORS):
        found = read_json(file) or {}
        answer = Answer(str(found["text"]), float(found["asked_at"]))
        return answer if least < answer.asked_at <= now else None
    return None


@contextmanager
def _one_at_a_time(lock: Path, limit_seconds: float) -> Iterator[None]:
    """Hold a lock; without it after a while: whoever has it may have been stopped."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        lock.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(lock, flags, 0o600)
    except OSError:
        yield
        return
    try:
        ends = time.monotonic() + limit_seconds
        while time.monotonic() < ends:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                time.sleep(_LOOK_SECONDS)
            else:
                break
        yield
    finally:
        os.close(descriptor)
