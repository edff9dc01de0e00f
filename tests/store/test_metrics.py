"""Lines of JSON survive torn writes, killed writers and impatient readers."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
from pathlib import Path

import pytest

from nbkit.errors import StoreError
from nbkit.store.metrics import (
    JsonLinesReader,
    JsonLinesWriter,
    read_json_lines,
    without_repeats,
)


def test_reader_keeps_half_line(tmp_path):
    path = tmp_path / "metrics.jsonl"
    reader = JsonLinesReader(path)
    assert reader.read() == []
    path.write_bytes(b'{"step":1}\n{"st')

    first = reader.read()
    with path.open("ab") as file:
        file.write(b'ep":2}\n')
    second = reader.read()

    assert first == [{"step": 1}]
    assert second == [{"step": 2}]
    assert reader.read() == []


@pytest.mark.parametrize("before", [b"", b'{"step":1}\n'])
@pytest.mark.parametrize("half", [b'{"step":2', b"x" * 200_000])
def test_writer_cuts_half_line(tmp_path, before, half):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(before + half)

    with JsonLinesWriter(path) as writer:
        assert path.read_bytes() == before
        writer.write({"step": 2})

    assert path.read_bytes() == before + b'{"step":2}\n'


@pytest.mark.parametrize(
    ("kind", "step", "marks", "kept"),
    [
        ("log", 1, {}, [0]),
        ("returned", 0, {}, [0, 1, 2]),
        ("log", 0, {"at_end": True}, [0, 1, 2]),
        ("log", 0, {"beside_steps": True}, [0, 1, 2]),
    ],
)
def test_without_repeats_of_a_later_attempt(kind, step, marks, kept):
    lines = [{"kind": "log", "attempt": 0, "step": step} for step in range(3)]
    later = {"kind": kind, "attempt": 1, "step": step, **marks}

    assert without_repeats([*lines, later]) == [*(lines[it] for it in kept), later]


def test_writer_nan_is_null(tmp_path):
    path = tmp_path / "metrics.jsonl"

    with JsonLinesWriter(path) as writer:
        writer.write({"loss": float("nan"), "ranks": [{"x": float("inf")}, 1.5]})

    text = path.read_text()
    assert json.loads(text) == {"loss": None, "ranks": [{"x": None}, 1.5]}
    assert "NaN" not in text


def test_writer_removed_folder(tmp_path):
    writer = JsonLinesWriter(tmp_path / "metrics.jsonl")
    writer.write({"step": 1})
    shutil.rmtree(tmp_path)

    with pytest.raises(StoreError, match="the run folder was removed"):
        writer.write({"step": 2})
    writer.close()


def test_writer_sync_error():
    # The kernel refuses to force this one.
    with (
        JsonLinesWriter(Path("/dev/full")) as writer,
        pytest.raises(StoreError, match=r"/dev/full cannot be written.*NBKIT_HOME"),
    ):
        writer.sync()


def test_writer_full_disk(tmp_path):
    path = tmp_path / "events.jsonl"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    with JsonLinesWriter(path) as writer:
        writer.write({"step": 1})
        # The kernel then writes a part of the lines and refuses the rest, as it does
        # on a full disk.
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 15, hard))
        try:
            with pytest.raises(StoreError, match="cannot be written"):
                writer.write({"step": 2}, {"step": 3})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert path.read_bytes() == b'{"step":1}\n'
        writer.write({"step": 2})

    assert read_json_lines(path) == [{"step": 1}, {"step": 2}]


def test_writer_cuts_half_line_later(tmp_path, monkeypatch):
    path, write, cut, failed = tmp_path / "events.jsonl", os.write, os.ftruncate, []

    def write_half(fd, data):
        if failed:
            return write(fd, data)
        if len(data) == len(b'{"step":1}\n'):
            return write(fd, data[:4])
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def cut_later(fd, length):
        if failed:
            return cut(fd, length)
        failed.append(length)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "write", write_half)
    monkeypatch.setattr(os, "ftruncate", cut_later)
    with JsonLinesWriter(path) as writer:
        with pytest.raises(StoreError):
            writer.write({"step": 1})
        assert path.read_bytes() == b'{"st'
        writer.write({"step": 1})

    assert read_json_lines(path) == [{"step": 1}]
