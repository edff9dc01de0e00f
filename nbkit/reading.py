"""Bounded reads, which never hang, of files that other users may have written.

Stores are shared, and a bundle comes from anywhere: ``record.json`` may be a pipe, a
device, a link to another file, or larger than the memory. So every file of a run, of a
study and of a data set is opened here, and nowhere else.

- Only regular files are read. In the folder of a run or study nothing is reached
  through a link; the store's own path, data folders and their images may be links.
- What is read as a whole has a limit. Lines are read one by one, however many there
  are, and one line has a limit.
- A file that is not there is a `FileNotFoundError`, as ever; all else that keeps it
  from being read is a `StoreError`.
"""

from __future__ import annotations

import errno
import io
import json
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pydantic_core import from_json

from nbkit.errors import ConfigError, StoreError

T = TypeVar("T")

ID = r"[0-9]{8}-[0-9]{6}[0-9A-Za-z_-]{0,200}"
"""What the id of a run or study looks like: its moment, its name and a few letters. A
file system takes 255."""

JSON_BYTES = 64 << 20
"""Of a file that is read as a whole; what 1,000 runs have in a bundle takes 10 MB."""
LINE_BYTES = JSON_BYTES
"""Of one line; the sample of a node with eight GPUs has 6 kB."""

# Opening a pipe must not wait for its other end, nor a terminal become this process's.
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_OWN = re.compile(rf"/(?:runs|studies)/{ID}/")
"""Where the path of a file leads into the folder of a run or study."""
_PASSING = (errno.EIO, errno.ETIMEDOUT, errno.ESTALE, errno.EAGAIN)
_TRIES, _IO_TRIES = 3, 5
PAUSE_SECONDS = 1.0
_PIECE_BYTES = 1 << 20
_LONE_SURROGATES = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_DROP = "Restore the file, or remove the folder of its run or study"


def expanded(path: str | os.PathLike[str], name: str) -> Path:
    """Return an absolute path, with the home folder that a ``~`` stands for."""
    try:
        return Path(path).expanduser().absolute()
    except RuntimeError as error:
        user, shown = Path(path).parts[0], str(path)
        message = (
            f"{name}={shown!r}: home folder {user} is unknown on this host. Use an "
            "absolute path."
        )
        raise ConfigError(message) from error


def is_transient(error: OSError) -> bool:
    """Return whether it is the error of a file server that does not answer now."""
    return error.errno in _PASSING


def retry_io(do: Callable[[], T]) -> T:
    """Read or write, again while a file server does not answer for a moment."""
    for _ in range(_IO_TRIES - 1):
        try:
            return do()
        except OSError as error:
            if not is_transient(error):
                raise
        time.sleep(PAUSE_SECONDS)
    return do()


def is_gone(folder: Path) -> bool:
    """Return whether a folder was removed, which a silent file server does not say."""
    try:
        folder.stat()
    except OSError as error:
        return error.errno in (errno.ENOENT, errno.ENOTDIR)
    return False


def can_enter(folder: Path) -> bool:
    """Return whether this is a folder, and this process may work in it."""
    # Path.is_dir raises where a folder above is closed, up to Python 3.13.
    is_folder = os.path.isdir(folder)  # noqa: PTH112
    return is_folder and os.access(folder, os.X_OK)


def open_regular(path: Path) -> io.BufferedReader:
    """Return a regular file, open to be read."""
    return os.fdopen(descriptor_of(path), "rb")


def descriptor_of(path: Path) -> int:
    """Return the descriptor of a regular file; as `open_regular`."""
    return _retry(path, lambda text: _descriptor(text)[0])


def read_file(path: Path, most_bytes: int | None = JSON_BYTES) -> bytes:
    """Return what is in a regular file."""
    data = _retry(path, lambda text: _read(text, most_bytes, 0))
    assert data is not None
    return data


def read_newer(path: Path | str, than_ns: int) -> bytes | None:
    """Return a file's bytes as `read_file`; None if it was changed before a time."""
    return _retry(path, lambda text: _read(text, JSON_BYTES, than_ns))


def read_end(path: Path, most_bytes: int) -> tuple[bytes, int]:
    """Return the last bytes of a regular file, and how many come before them."""
    with open_regular(path) as file:
        size = file.seek(0, os.SEEK_END)
        left_out = file.seek(max(0, size - most_bytes))
        return file.read(size - left_out), left_out


def file_stamp(path: Path) -> tuple[int, int, int] | None:
    """Return a file's inode, time of change in ns and size; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def regular_files(folder: Path, suffix: str) -> list[Path]:
    """Return the regular files of a folder by name; one that cannot be read has none.

    Pipes, links and devices are not nbkit's, and are skipped.
    """
    none = FileNotFoundError, NotADirectoryError, PermissionError
    with suppress(*none), os.scandir(folder) as entries:
        return sorted(
            folder / entry.name
            for entry in entries
            if entry.name.endswith(suffix) and entry.is_file(follow_symlinks=False)
        )
    return []


def lines_of(file: io.BufferedReader, path: Path) -> Iterator[bytes]:
    """Yield the lines that follow, each with its end, which the last may lack."""
    while line := file.readline(LINE_BYTES + 1):
        if len(line) > LINE_BYTES:
            what = f"a line of more than {LINE_BYTES:,} bytes"
            message = f"{path} is damaged ({what}). {_DROP}."
            raise StoreError(message)
        yield line


def parse_object(data: bytes) -> dict[str, Any]:
    """Return the JSON object that a file or a line spells."""
    try:
        # It takes half the time of json.loads, which a list of many runs would feel.
        values = from_json(data)
    except ValueError as first:
        try:
            # A file name that is not UTF-8 makes lone surrogates, which only json.loads
            # reads; all else must be right for the other one, too.
            from_json(_LONE_SURROGATES.sub(rb"\\u003f", data))
            values = json.loads(data)
        except (ValueError, RecursionError):
            raise json.JSONDecodeError(str(first), "", 0) from first
    if not isinstance(values, dict):
        what = "no object"
        raise json.JSONDecodeError(what, "", 0)
    return values


def _retry(path: Path | str, read: Callable[[str], T]) -> T:
    text = os.fspath(path)
    for left in reversed(range(_TRIES)):
        try:
            return read(text)
        except (FileNotFoundError, StoreError):
            raise
        except OSError as error:
            # An NFS client may know the file that was there before, which its server
            # no longer has: it gets an error, and looks again.
            if error.errno != errno.ESTALE or not left:
                raise _unreadable(text, error) from error
    raise AssertionError


def _read(path: str, most_bytes: int | None, than_ns: int) -> bytes | None:
    # Without Python's buffers: a list of many runs would feel them.
    descriptor, status = _descriptor(path)
    try:
        if status.st_mtime_ns < than_ns:
            return None
        size, most = status.st_size, sys.maxsize if most_bytes is None else most_bytes
        data = b""
        if size <= most:
            data = os.read(descriptor, size + 1)
            if len(data) != size:  # it is being written, or is very large
                pieces, size = [data], len(data)
                while size <= most and (data := os.read(descriptor, _PIECE_BYTES)):
                    pieces.append(data)
                    size += len(data)
                data = b"".join(pieces)
        if size > most:
            what = f"{size:,} bytes, limit {most:,}"
            message = f"{path} is damaged ({what}). {_DROP}."
            raise StoreError(message)
        return data
    finally:
        os.close(descriptor)


def _descriptor(path: str) -> tuple[int, os.stat_result]:
    match = _OWN.search(path)
    if match is None:
        descriptor = os.open(path, _FLAGS)
    else:
        descriptor = _open_without_links(path[: match.end()], path[match.end() :])
    try:
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode):
            return descriptor, status
        kind = "not a regular file, but a folder, pipe or device"
        raise OSError(errno.EINVAL, kind)
    except BaseException:
        os.close(descriptor)
        raise


def _open_without_links(root: str, name: str) -> int:
    """Open what is in a folder, without a link on the way."""
    if "/" not in name:
        return os.open(root + name, _FLAGS | os.O_NOFOLLOW)
    folders, _, name = name.rpartition("/")
    here = os.open(root, _FOLDER & ~os.O_NOFOLLOW)
    try:
        for folder in folders.split("/"):
            if folder == "..":
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            # An interrupt after a close must not find the closed one in `here`: to
            # close that again fails, or closes what another thread has opened since.
            outer, here = here, os.open(folder, _FOLDER, dir_fd=here)
            os.close(outer)
        return os.open(name, _FLAGS | os.O_NOFOLLOW, dir_fd=here)
    finally:
        os.close(here)


def _unreadable(path: str, error: OSError) -> StoreError:
    why = error.strerror or str(error)
    if error.errno in (errno.ELOOP, errno.ENOTDIR) and _OWN.search(path):
        why = "the path contains a link"
    denied = error.errno in (errno.EACCES, errno.EPERM)
    remedy = "Ask its owner for permission to read it" if denied else _DROP
    if _OWN.search(path) is None:
        remedy = "Use a regular file that you can read"
    message = f"{path} cannot be read ({why}). {remedy}."
    wrapped = StoreError(message)
    wrapped.errno = error.errno
    return wrapped
