"""Being another user of this host for a moment."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["STRANGER", "as_stranger", "needs_root"]

STRANGER = 54_321
"""A user without a name."""

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can be another user"
)


@contextmanager
def as_stranger(folder: Path) -> Iterator[None]:
    """Look at files as a stranger, who may enter all folders above the one given.

    And those above nbkit, which may lie where its owner alone can enter.
    """
    with _in_turn(), _entered(folder):
        user, group, groups = os.geteuid(), os.getegid(), os.getgroups()
        os.setgroups([])
        os.setegid(STRANGER)
        os.seteuid(STRANGER)
        try:
            yield
        finally:
            os.seteuid(user)
            os.setegid(group)
            os.setgroups(groups)


@contextmanager
def _in_turn() -> Iterator[None]:
    """Wait for other tests that are strangers: they open and close the same folders."""
    turn = os.open("/", os.O_RDONLY)
    try:
        fcntl.flock(turn, fcntl.LOCK_EX)
        yield
    finally:
        os.close(turn)


@contextmanager
def _entered(folder: Path) -> Iterator[None]:
    ends = folder, Path(__file__).parent, Path(sys.prefix)
    places = {path for end in ends for path in (end, *end.parents)}
    modes = [(path, path.stat().st_mode) for path in places]
    closed = [(path, mode) for path, mode in modes if not mode & 0o001]
    for path, mode in closed:
        path.chmod(mode | 0o001)
    try:
        yield
    finally:
        for path, mode in closed:
            path.chmod(mode)
