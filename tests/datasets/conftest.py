"""Data sets as they lie on a disk."""

import pytest

from nbkit.datasets import pack
from tests.datasets.images import write_folder, write_table


@pytest.fixture
def folder(tmp_path):
    """Images in class folders, some with spaces in their names."""
    return write_folder(tmp_path / "folder")


@pytest.fixture
def table(tmp_path):
    """A CSV file of several labels, and its images."""
    return write_table(tmp_path / "table")


@pytest.fixture
def packed(tmp_path):
    """Pack silently, into a folder of its own for each format."""

    def into(data, format, **options):
        target = tmp_path / f"packed {format}"
        return pack(data, target, format, on_progress=lambda *_: None, **options)

    return into


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache of the user."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "nbkit"
