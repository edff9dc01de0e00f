"""Lines of JSON: appended by one writer, read from an offset by any reader.

A reader keeps half a line back until its end arrives, so that it never sees a torn
line; a writer that finds half a line (its predecessor was killed, or the disk was
full) cuts it off before it appends.
"""

from __future__ import annotations

import bisect
import errno
import json
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from nbkit.errors import StoreError
from nbkit.reading import lines_of, open_regular, parse_object


class JsonLinesWriter:
    """Appends objects to a file, one a line, each visible immediately."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_torn = False
        """Whether a write has failed, and its half line may be there."""
        try:
            # Not through a link, which others may have made in an older folder.
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
            self._fd = os.open(path, flags, 0o644)
            _cut_half_line(self._fd)
        except OSError as error:
            raise store_error(path, error) from error

    def write(self, *objects: dict[str, Any]) -> None:
        """Append all objects, or none if it fails; NaN and infinity become null."""
        # A disk that fills takes a part of the data first: that part is cut off.
        if not objects:
            return
        data = "".join(map(to_json_line, objects)).encode()
        try:
            if self._is_torn:
                _cut_half_line(self._fd)
            size, self._is_torn = os.fstat(self._fd).st_size, True
            try:
                while data:
                    data = data[os.write(self._fd, data) :]
                self._is_torn = False
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
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise store_error(self._path, error) from error

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

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        """Byte offset after the last whole line that was read."""

    def read(self) -> list[dict[str, Any]]:
        """Return the new objects, oldest first; nothing if there is no file yet."""
        objects: list[dict[str, Any]] = []
        try:
            with open_regular(self._path) as file:
                file.seek(self._offset)
                for line in lines_of(file, self._path):
                    if not line.endswith(b"\n"):
                        break
                    self._offset += len(line)
                    if line.strip():
                        objects.append(parse_object(line))
        except FileNotFoundError:
            pass
        return objects


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """Return every whole line of a file as an object."""
    try:
        return JsonLinesReader(path).read()
    except ValueError as error:
        message = (
            f"{path} is damaged ({error}). Restore the file, or remove the folder of "
            "its run."
        )
        raise StoreError(message) from error


class Restarts:
    """What later attempts repeat of earlier lines: that counts where it comes again."""

    def __init__(self) -> None:
        self._attempts: list[int] = []
        self._lowest: list[int] = []
        """From which step on this attempt or a later one repeats."""
        self._first_lines: dict[tuple[str, int], int] = {}

    def begins(self, line: Mapping[str, Any]) -> int | None:
        """Note the first line of a new attempt; return its step, which is repeated."""
        attempt = line.get("attempt", 0)
        newest = self._attempts[-1] if self._attempts else 0
        is_of_no_step = line["kind"] == "returned" or line.get("at_end")
        if attempt <= newest or is_of_no_step or line.get("beside_steps"):
            return None
        kind, step = line["kind"], line["step"]
        # A step is repeated; an evaluation is repeated only after its step.
        first = step if kind in ("step", "log") else step + 1
        while self._lowest and self._lowest[-1] > first:
            self._lowest.pop()
            self._attempts.pop()
        self._attempts.append(attempt)
        self._lowest.append(first)
        self._first_lines[kind, step] = attempt
        return step

    def replace(self, line: Mapping[str, Any]) -> bool:
        """Tell whether a line of an earlier attempt is repeated."""
        attempt = line.get("attempt", 0)
        later = bisect.bisect_right(self._attempts, attempt)
        if later == len(self._attempts):
            return False
        place = line["kind"], line["step"]
        return (
            line["step"] >= self._lowest[later]
            or self._first_lines.get(place, attempt) > attempt
        )


def without_repeats(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return lines of metrics without those that a resumed attempt has repeated."""
    restarts = Restarts()
    for line in lines:
        restarts.begins(line)
    return [line for line in lines if not restarts.replace(line)]


def to_json_line(values: dict[str, Any]) -> str:
    """Return an object as one line of JSON; NaN and infinity become null."""
    try:
        return json.dumps(values, allow_nan=False, separators=(",", ":")) + "\n"
    except ValueError:
        return json.dumps(_finite(values), separators=(",", ":")) + "\n"


def store_error(path: Path, error: OSError, instead: str | None = None) -> StoreError:
    """Return the error that says what to do about a file that cannot be written."""
    another = f"{instead or 'set NBKIT_HOME to a folder'} that you can write to"
    remedies = {
        errno.ENOSPC: "the disk is full: free some space, or change NBKIT_HOME",
        errno.EDQUOT: "your quota is exceeded: free some space, or change NBKIT_HOME",
        errno.ENOENT: "the run folder was removed: keep it while the run is active",
        errno.EBADF: "the code of the run closed the file: do not call os.closerange",
        errno.EROFS: f"read-only file system: {another}",
    }
    if error.errno == errno.EACCES:
        remedy = _ownership_remedy(path, another, is_of_store=instead is None)
    elif instead and error.errno == errno.ENOENT:
        remedy = another
    else:
        remedy = remedies.get(error.errno or 0, another)
    message = f"{path} cannot be written ({error.strerror or error}): {remedy}."
    wrapped = StoreError(message)
    wrapped.errno = error.errno
    return wrapped


def _ownership_remedy(path: Path, another: str, *, is_of_store: bool) -> str:
    with suppress(OSError, StopIteration):
        folder = next(parent for parent in path.parents if os.access(parent, os.F_OK))
        owner, me = folder.stat().st_uid, os.geteuid()
        if owner != me:
            # Another store is of no use to a run or study that is there.
            above = {parent.parent.name for parent in (folder, *folder.parents)}
            is_there = not above.isdisjoint({"runs", "studies"})
            whose = f"{folder} belongs to uid {owner}, not to uid {me}"
            own_copy = "export it and import the bundle"
            go_on = own_copy if is_of_store and is_there else another
            return f"{whose}: ask its owner for access, or {go_on}"
    return f"no permission: {another}"


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
