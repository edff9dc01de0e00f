"""The temporary test file, used if no file is named."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nbkit.errors import ConfigError
from nbkit.store.metrics import store_error

_NAME = ".nbkit-readspeed-"
_PIECE_BYTES = 2**22
_LEFT_FREE = 0.1
"""Part of the free space that a measurement must leave free."""


@contextmanager
def temporary_file(folder: Path, size_bytes: int) -> Iterator[Path]:
    """Create a file of random bytes in a folder, and remove it at the end."""
    # Random, because some storage compresses, or keeps equal blocks once.
    if not folder.is_dir():
        message = f"{folder} is not a folder. Use a file, or an existing folder."
        raise ConfigError(message)
    space = os.statvfs(folder)
    usable = int((1 - _LEFT_FREE) * space.f_bavail * space.f_frsize)
    if size_bytes > usable:
        message = (
            f"total_bytes={size_bytes:,}, but {folder} has room for {usable:,} bytes "
            f"(with {_LEFT_FREE * 100:.0f}% left free). Use fewer bytes, or an "
            "existing file."
        )
        raise ConfigError(message)
    path = folder / f"{_NAME}{uuid.uuid4().hex}"
    try:
        _write(path, size_bytes)
        yield path
    finally:
        path.unlink(missing_ok=True)


def _write(path: Path, size_bytes: int) -> None:
    try:
        # Buffered: an unbuffered write takes what still fits, without an error.
        with path.open("xb") as file:
            for start in range(0, size_bytes, _PIECE_BYTES):
                file.write(os.urandom(min(_PIECE_BYTES, size_bytes - start)))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise store_error(path, error) from error
