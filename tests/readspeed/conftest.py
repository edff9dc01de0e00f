"""Files that can be dropped from the page cache, and somebody who holds them there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

import pytest

from tests.disk import tmp_path

__all__ = ["file", "held", "tmp_path"]

MEGABYTE = 2**20

_HOLD = """
import mmap, sys
with open(sys.argv[1], "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    sum(mapped[:: mmap.PAGESIZE])
    print("held", flush=True)
    sys.stdin.read()
"""


class Held(Protocol):
    """Holds a file in memory for as long as it lasts."""

    def __call__(self, path: Path) -> AbstractContextManager[None]: ...


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a file of 8 MiB that has just been written, and so is in memory."""
    path = tmp_path / "file.bin"
    path.write_bytes(os.urandom(8 * MEGABYTE))
    return path


@pytest.fixture
def held() -> Held:
    """Return what maps a file in another process, so that its pages stay."""

    @contextmanager
    def hold(path: Path) -> Iterator[None]:
        with subprocess.Popen(
            [sys.executable, "-c", _HOLD, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdout
            assert process.stdin
            assert process.stdout.readline() == b"held\n"
            yield
            process.stdin.close()
            process.wait()

    return hold
