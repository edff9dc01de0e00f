"""Answers that a user's processes on a host share: one of them asks for all.

A server and the kernels of its notebooks would else ask the same, each for itself.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from nbkit.errors import NbkitError, StoreError
from nbkit.store.processes import boot_id
from nbkit.store.record import DAMAGE_ERRORS, read_json, write_json
from nbkit.store.user_cache import cache_file

_LOOK_SECONDS = 0.05


@dataclass(frozen=True)
class Answer:
    """What was answered."""

    text: str
    asked_at: float
    """On this host's monotonic clock."""
    asked_time: float
    """The same moment in Unix time, to compare with what others have written down."""
    ended_at: float
    """On the monotonic clock."""
    trouble: str | None = None
    """Why there is no answer, in words."""
    boot_id: str = ""
    """The host's when it was asked: its monotonic clock begins again."""


def ask_shared(
    key: str,
    ask: Callable[[], str],
    *,
    max_age_seconds: float,
    limit_seconds: float,
    error: type[NbkitError],
) -> Answer:
    """Return another process's answer if it is new enough, else ask."""
    began = time.monotonic()
    file = cache_file("answer", key)
    if file is None:
        return _told(_asked(ask, error), error)
    known = _kept(file)
    if known is None or not _is_new(known, began, max_age_seconds):
        with _one_at_a_time(file.with_suffix(".lock"), limit_seconds):
            known = _kept(file)
            if known is None or not _is_new(known, began, max_age_seconds):
                known = _asked(ask, error)
                # A cache that cannot be written is none.
                with suppress(OSError, StoreError):
                    write_json(file, asdict(known), 0o600)
    return _told(known, error)


def _asked(ask: Callable[[], str], error: type[NbkitError]) -> Answer:
    text, trouble = "", None
    asked_at, asked_time = time.monotonic(), time.time()
    try:
        text = ask()
    except error as found:
        trouble = str(found)
    return Answer(text, asked_at, asked_time, time.monotonic(), trouble, boot_id())


def _is_new(known: Answer, began: float, max_age_seconds: float) -> bool:
    if known.trouble is not None:
        # Only of a question that this call has waited for.
        return known.ended_at > began
    return known.asked_at > began - max_age_seconds


def _told(answer: Answer, error: type[NbkitError]) -> Answer:
    if answer.trouble is not None:
        raise error(answer.trouble)
    return answer


def _kept(file: Path) -> Answer | None:
    """Return the last answer; None if there is none of this boot of the host."""
    with suppress(StoreError, *DAMAGE_ERRORS):
        found = Answer(**(read_json(file) or {}))
        times = float(found.asked_at), float(found.ended_at), float(found.asked_time)
        is_text = isinstance(found.text, str)
        now = time.monotonic()
        if is_text and found.boot_id == boot_id() and max(times[:2]) <= now:
            return found
    return None


@contextmanager
def _one_at_a_time(lock: Path, limit_seconds: float) -> Iterator[None]:
    """Hold a lock; without it where there are none, or its holder was stopped."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        lock.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(lock, flags, 0o600)
    except OSError:
        yield
        return
    try:
        ends = time.monotonic() + limit_seconds
        while not _is_locked(descriptor) and time.monotonic() < ends:
            time.sleep(_LOOK_SECONDS)
        yield
    finally:
        # A process that was forked meanwhile has the file open, too.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _is_locked(descriptor: int) -> bool:
    """Return whether there is nothing to wait for: a lock, or no locks at all."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # this file system has none
    return True
