"""Being another user of this host for a moment."""

from __future__ import annotations

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
    ends = folder, Path(__file__).parent, Path(sys.prefix)
    places = {path for end in ends for path in (end, *end.parents)}
    modes = [(path, path.stat().st_mode) for path in places]
    closed = [(path, mode) for path, mode in modes if not mode & 0o001]
    for path, mode in closed:
        path.chmod(mode | 0o001)
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
        for path, mode in closed:
            path.chmod(mode)
