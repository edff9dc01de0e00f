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
from nbkit.store.metrics import JsonLinesReader, JsonLinesWriter, read_json_lines


def test_a_reader_keeps_half_a_line_back_until_its_end_arrives(tmp_path):
    path = tmp_path / "metrics.jsonl"
    reader = JsonLinesReader(path)
    path.write_bytes(b'{"step":1}\n{"st')

    first = reader.read()
    with path.open("ab") as file:
        file.write(b'ep":2}\n')
    second = reader.read()

    assert first == [{"step": 1}]
    assert second == [{"step": 2}]
    assert reader.read() == []


def test_a_reader_of_a_file_that_is_not_there_yet_finds_nothing(tmp_path):
    assert JsonLinesReader(tmp_path / "none").read() == []


@pytest.mark.parametrize("half", [b'{"step":2', b"x" * 200_000])
def test_a_writer_cuts_off_the_half_line_of_a_killed_predecessor(tmp_path, half):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step":1}\n' + half)

    with JsonLinesWriter(path) as writer:
        writer.write({"step": 2})

    assert read_json_lines(path) == [{"step": 1}, {"step": 2}]


def test_a_file_that_holds_nothing_but_half_a_line_is_emptied(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step"')

    with JsonLinesWriter(path):
        pass

    assert path.read_bytes() == b""


def test_nan_and_infinity_become_null_at_any_depth(tmp_path):
    path = tmp_path / "metrics.jsonl"

    with JsonLinesWriter(path) as writer:
        writer.write({"loss": float("nan"), "ranks": [{"x": float("inf")}, 1.5]})

    text = path.read_text()
    assert json.loads(text) == {"loss": None, "ranks": [{"x": None}, 1.5]}
    assert "NaN" not in text


def test_writing_into_a_removed_folder_says_so(tmp_path):
    folder = tmp_path / "run"
    writer = JsonLinesWriter(folder / "metrics.jsonl")
    writer.write({"step": 1})
    shutil.rmtree(folder)

    with pytest.raises(StoreError, match="the run folder was removed"):
        writer.write({"step": 2})
    writer.close()


def test_a_file_that_cannot_be_forced_to_the_disk_is_named_with_a_remedy():
    # The kernel refuses to force this one.
    with (
        JsonLinesWriter(Path("/dev/full")) as writer,
        pytest.raises(StoreError, match=r"/dev/full cannot be written.*NBKIT_HOME"),
    ):
        writer.sync()


def test_a_disk_that_fills_leaves_no_half_line_behind(tmp_path):
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


def test_half_a_line_that_could_not_be_cut_off_is_cut_off_by_the_next_one(
    tmp_path, monkeypatch
):
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
