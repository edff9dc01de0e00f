"""Writes that fail as they do on a full disk."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["files_no_larger_than"]


@contextmanager
def files_no_larger_than(size_bytes: int) -> Iterator[None]:
    """Let writes fail beyond a size, as they do on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
