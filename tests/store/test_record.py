"""The record is replaced whole; a request is made once."""

from __future__ import annotations

import errno
import itertools
import os
import threading

import pytest

from nbkit.errors import StoreError
from nbkit.store.record import read_json, write_json, write_json_once


def test_write_json_atomic(tmp_path):
    path = tmp_path / "record.json"
    versions = [{"n": n, "text": str(n) * 5_000} for n in range(10)]
    write_json(path, versions[0])
    has_read, done = threading.Event(), threading.Event()

    def replace_many_times():
        for turn in itertools.count():
            write_json(path, versions[turn % 10])
            if turn >= 300 and has_read.is_set():
                break
        done.set()

    writer = threading.Thread(target=replace_many_times)
    writer.start()
    wrong = []
    while not done.is_set():
        if (found := read_json(path)) not in versions:
            wrong.append(found)
        has_read.set()
    writer.join()

    assert wrong == []
    assert [file.name for file in tmp_path.iterdir()] == ["record.json"]


def test_write_json_once(tmp_path):
    path = tmp_path / "stop.json"
    written = []

    def ask(who):
        if write_json_once(path, {"by": who}):
            written.append(who)

    askers = [threading.Thread(target=ask, args=(n,)) for n in range(16)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()

    assert len(written) == 1
    assert read_json(path) == {"by": written[0]}
    assert [file.name for file in tmp_path.iterdir()] == ["stop.json"]


def test_read_json_without_file(tmp_path):
    assert read_json(tmp_path / "none.json") is None


def test_read_json_not_utf8(tmp_path):
    values = {"name": os.fsdecode(b"caf\xe9.jpg")}
    write_json(tmp_path / "worker.json", values)

    assert read_json(tmp_path / "worker.json") == values


def test_read_json_stale_handle(tmp_path, monkeypatch):
    path = tmp_path / "record.json"
    write_json(path, {"n": 1})
    read = os.read

    def replaced(times):
        """Make a file be replaced on its server so often while it is read."""
        answers = iter([OSError(errno.ESTALE, os.strerror(errno.ESTALE))] * times)

        def stale(*arguments):
            for error in answers:
                raise error
            return read(*arguments)

        monkeypatch.setattr(os, "read", stale)

    replaced(2)
    assert read_json(path) == {"n": 1}

    replaced(3)
    with pytest.raises(StoreError, match="Stale file handle"):
        read_json(path)
