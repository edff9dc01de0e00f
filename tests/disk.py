"""Folders on a disk: some systems keep temporary files in memory, never cold."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nbkit.readspeed.places import describe_place

_BUILD = Path(__file__).parents[1] / "build"


@contextmanager
def on_disk(folder: Path) -> Iterator[Path]:
    """Give the folder, or an empty one of the checkout's if that one is in memory."""
    if describe_place(folder)["kind"] != "memory":
        yield folder
        return
    _BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_BUILD) as made:
        yield Path(made)


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """Return a folder of the test on a disk; imported where files have to be cold."""
    with on_disk(tmp_path) as folder:
        yield folder
