"""Lines of JSON: appended by one writer, read from an offset by anybody.

A reader keeps half a line back until its end arrives, so that it never sees a torn
line; a writer that finds half a line (its predecessor was killed, or the disk was
full) cuts it off before it appends.
"""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from nbkit.errors import StoreError

__all__ = [
    "JsonLinesReader",
    "JsonLinesWriter",
    "read_json_lines",
    "to_json_line",
    "without_repeats",
]


class JsonLinesWriter:
    """Appends objects to a file, one a line, each visible at once.

    Raises
    ------
    StoreError
        If the file cannot be written: full disk, vanished folder, no permission.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            _cut_half_line(self._fd)
        except OSError as error:
            raise store_error(path, error) from error

    def write(self, *objects: dict[str, Any]) -> None:
        """Append all objects, or none if it fails; NaN and infinity become null.

        One system call as a rule. A disk that fills takes a part of the data before it
        refuses the rest: that part is cut off, so that a later call begins a line.
        """
        if not objects:
            return
        data = "".join(map(to_json_line, objects)).encode()
        try:
            size = os.fstat(self._fd).st_size
            try:
                while data:
                    data = data[os.write(self._fd, data) :]
            except OSError:
                with suppress(OSError):  # what went wrong first is what matters
                    os.ftruncate(self._fd, size)
                raise
            if not os.fstat(self._fd).st_nlink:
                raise FileNotFoundError(errno.ENOENT, "the file was removed")
        except OSError as error:
            raise store_error(self._path, error) from error

    def sync(self) -> None:
        """Force what was written to the disk."""
        os.fsync(self._fd)

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class JsonLinesReader:
    """Reads the objects that were appended since the last call."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self._path = path
        self.offset = offset
        """Byte offset behind the last whole line that was read."""

    def read(self) -> list[dict[str, Any]]:
        """Return the new objects, oldest first; nothing if there is no file yet."""
        try:
            with self._path.open("rb") as file:
                file.seek(self.offset)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self.offset += len(whole)
        return [json.loads(line) for line in whole.splitlines() if line.strip()]


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """Return every whole line of a file as an object.

    Raises
    ------
    StoreError
        If a line is none.
    """
    try:
        return JsonLinesReader(path).read()
    except ValueError as error:
        message = f"{path} is damaged ({error}); remove its folder if it is of no use."
        raise StoreError(message) from error


def without_repeats(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return lines of metrics without those that a resumed attempt has repeated.

    Parameters
    ----------
    lines
        Of ``metrics.jsonl``, in their order.
    """
    kept: list[dict[str, Any]] = []
    for line in lines:
        if kept and line.get("attempt", 0) > kept[-1].get("attempt", 0):
            # A step comes again; what follows a step (an evaluation) comes behind it.
            same = line["kind"] in ("step", "log")
            again = line["step"] if same else line["step"] + 1
            kept = [
                old
                for old in kept
                if old["step"] < again
                and (old["kind"], old["step"]) != (line["kind"], line["step"])
            ]
        kept.append(line)
    return kept


def to_json_line(values: dict[str, Any]) -> str:
    """Return an object as one line of JSON; NaN and infinity become null."""
    try:
        return json.dumps(values, allow_nan=False, separators=(",", ":")) + "\n"
    except ValueError:
        return json.dumps(_finite(values), separators=(",", ":")) + "\n"


def store_error(path: Path, error: OSError) -> StoreError:
    """Return the error that says what to do about a file that cannot be written."""
    remedies = {
        errno.ENOSPC: "the disk is full: free some space, or set NBKIT_HOME to another",
        errno.EDQUOT: "your quota is used up: free some space, or set NBKIT_HOME",
        errno.ENOENT: "the run folder is gone: do not remove it while its run lives",
        errno.EACCES: "no permission: set NBKIT_HOME to a folder that you may write",
        errno.EROFS: "read-only file system: set NBKIT_HOME to one you may write",
    }
    remedy = remedies.get(error.errno or 0, "set NBKIT_HOME to a folder you may write")
    message = f"{path} cannot be written ({error.strerror or error}): {remedy}."
    wrapped = StoreError(message)
    wrapped.errno = error.errno
    return wrapped


def _cut_half_line(fd: int) -> None:
    """Cut off an unfinished last line."""
    end = os.lseek(fd, 0, os.SEEK_END)
    position = end
    while position > 0:
        start = max(0, position - 65_536)
        block = os.pread(fd, position - start, start)
        newline = block.rfind(b"\n")
        if newline >= 0:
            position = start + newline + 1
            break
        position = start
    if position != end:
        os.ftruncate(fd, position)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
