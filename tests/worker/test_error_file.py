"""What is kept of an exception, however long its text is."""

from __future__ import annotations

import json
from functools import partial

import pytest
import torch
import torch.distributed as dist

from nbkit.reading import retry_io
from nbkit.store.printed import number
from nbkit.worker.error_file import write_error_file

MIB = 2**20


def error_file(error, tmp_path, monkeypatch):
    """Return what the error file says of an exception, and its size in bytes."""
    file = tmp_path / "error.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(file))
    try:
        raise error
    except Exception as caught:  # noqa: BLE001 - whatever was given
        write_error_file(caught)
    return json.loads(file.read_text())["message"], file.stat().st_size


def test_a_long_exception_is_cut_and_its_size_is_named(tmp_path, monkeypatch):
    error = ValueError("begins" + "x" * 20 * MIB + "ends")

    told, size_bytes = error_file(error, tmp_path, monkeypatch)

    assert size_bytes < 100_000
    for said in (told["message"], told["extraInfo"]["py_callstack"]):
        assert "ValueError: begins" in said
        assert said.rstrip().endswith("ends")
        assert " characters left out ..." in said
    # "ValueError: " and the text
    assert f"of {20 * MIB + 22:,} characters" in told["message"]


def test_an_exception_whose_text_cannot_be_made_is_named(tmp_path, monkeypatch):
    class OwnError(Exception):
        def __str__(self):
            raise RuntimeError

    told, _ = error_file(OwnError(), tmp_path, monkeypatch)

    assert told["message"] == "OwnError: (no message: str() of it failed)"
    assert "raise error" in told["extraInfo"]["py_callstack"]


def test_what_it_is_and_where_it_was_raised_are_kept_beside_its_text(
    tmp_path, monkeypatch
):
    class OwnError(torch.OutOfMemoryError):
        pass

    told, _ = error_file(OwnError("full"), tmp_path, monkeypatch)
    assert told["extraInfo"]["classes"][:2] == ["OwnError", "OutOfMemoryError"]
    assert told["extraInfo"]["module"] == __name__

    with pytest.raises(ValueError, match="process group") as caught:
        dist.all_reduce(torch.zeros(1))
    told, _ = error_file(caught.value, tmp_path, monkeypatch)
    assert told["extraInfo"]["module"].startswith("torch.distributed")


def test_error_file_of_users_code_begins_with_it(tmp_path, monkeypatch):
    def fail():
        message = "the user's"
        raise ValueError(message)

    def trace_of(call, **options):
        with pytest.raises(ValueError, match=r"the user's|convert") as caught:
            retry_io(call)
        error = caught.value.with_traceback(caught.tb.tb_next)  # from nbkit's on
        write_error_file(error, **options)
        content = json.loads(file.read_text())["message"]
        return content["extraInfo"]["py_callstack"]

    file = tmp_path / "error.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(file))

    assert ", in retry_io" in trace_of(fail)
    head, first, *_ = trace_of(fail, is_users=True).splitlines()
    assert (head[:9], first.rsplit(" ", 1)[-1]) == ("Traceback", "fail")
    assert ", in retry_io" in trace_of(partial(number, "one"), is_users=True)
