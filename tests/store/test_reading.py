"""How the files of a run are opened: what an interrupt in the middle does."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

import nbkit.reading
from nbkit.reading import read_file

ROOT = "runs/20260101-000000000-run-abcd"


def interrupted_at(place, do):
    """Do something with a KeyboardInterrupt before one instruction of the module."""
    seen = 0

    def trace(frame, event, _):
        nonlocal seen
        if frame.f_code.co_filename != nbkit.reading.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            if seen == place:
                raise KeyboardInterrupt
            seen += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return do()
    finally:
        sys.settrace(before)


def test_read_file_interrupted(tmp_path, monkeypatch):
    file = tmp_path / ROOT / "logs" / "0" / "1" / "stdout.log"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"step 1")
    now_open = set()

    def opened(*args, do=os.open, **values):
        descriptor = do(*args, **values)
        now_open.add(descriptor)
        return descriptor

    def close(descriptor, do=os.close):
        now_open.remove(descriptor)
        do(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr("os.open", opened)
        patch.setattr("os.close", close)
        place, content = -1, None
        while content is None:
            place += 1
            with suppress(KeyboardInterrupt):
                content = interrupted_at(place, lambda: read_file(file))

    assert content == b"step 1"
    assert place > 100
    # One that was just opened has no name yet.
    for descriptor in now_open:
        os.close(descriptor)
