"""A lock is of one process, and ends with it."""

from __future__ import annotations

import errno
import fcntl
import os

from nbkit.store.locks import locked


def test_locked_once_at_a_time(tmp_path):
    path = tmp_path / "lock"

    with locked(path) as first, locked(path) as second:
        assert (first, second) == (True, False)


def test_locked_does_not_stay_with_a_fork(tmp_path):
    path = tmp_path / "lock"
    reads, writes = os.pipe()
    with locked(path):
        child = os.fork()
        if not child:
            os.read(reads, 1)
            os._exit(0)

    with locked(path) as again:
        os.write(writes, b"1")
        os.waitpid(child, 0)
    assert again is True


def test_locked_without_locks(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)

    with locked(tmp_path / "lock") as is_locked:
        assert is_locked is None
