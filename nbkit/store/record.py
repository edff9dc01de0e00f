"""`record.json`: one run's facts, and the states a run can be in.

The record holds facts and raw counts. Medians and intervals are computed by readers,
so that a better method mends old runs.
"""

from __future__ import annotations

import datetime
import errno
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from nbkit.errors import StoreError
from nbkit.store.metrics import store_error

__all__ = [
    "DAMAGE_ERRORS",
    "RECORD_SCHEMA",
    "RunState",
    "damage_told",
    "read_json",
    "utc_now",
    "write_json",
    "write_json_once",
]

RECORD_SCHEMA = "nbkit.run/1"

DAMAGE_ERRORS = (OSError, LookupError, TypeError, ValueError, AttributeError)
"""What reading a run's files can raise if one was cut off, lacks a part or is gone;
`StoreError` is an OSError."""


@contextmanager
def damage_told(root: Path) -> Iterator[None]:
    """Say of a run's folder that it is damaged where reading its files fails.

    Raises
    ------
    StoreError
        In place of any of `DAMAGE_ERRORS`.
    """
    try:
        yield
    except StoreError:
        raise
    except DAMAGE_ERRORS as error:
        message = (
            f"{root} is damaged ({type(error).__name__}: {error}, in one of its "
            "files); remove it if it is of no use."
        )
        raise StoreError(message) from error


class RunState(StrEnum):
    """Where a run stands; all but `LOST` are written, `LOST` is computed."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"
    LOST = "lost"

    @property
    def is_final(self) -> bool:
        """Whether nothing of the run is left to happen."""
        return self in _FINAL


_FINAL = {RunState.FINISHED, RunState.FAILED, RunState.STOPPED, RunState.LOST}


def utc_now() -> str:
    """Return the time in UTC as ISO 8601 with milliseconds."""
    now = datetime.datetime.now(datetime.UTC)
    return now.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def write_json(path: Path, values: dict[str, Any]) -> None:
    """Replace a file by an object, so that no reader ever sees half of it.

    Raises
    ------
    StoreError
        If the file cannot be written.
    """
    try:
        temporary = _write_temporary(path, values)
        temporary.replace(path)
    except OSError as error:
        raise store_error(path, error) from error


def write_json_once(path: Path, values: dict[str, Any]) -> bool:
    """Write an object unless the file exists; return whether this call wrote it.

    Raises
    ------
    StoreError
        If the file cannot be written.
    """
    try:
        temporary = _write_temporary(path, values)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        finally:
            temporary.unlink()
    except OSError as error:
        raise store_error(path, error) from error
    return True


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the object in a file, or None if there is no such file.

    Raises
    ------
    StoreError
        If the file is there and cannot be read, or does not hold an object.
    """
    try:
        data = _read_bytes(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        message = (
            f"{path} cannot be read ({error.strerror or error}); ask its owner for the "
            "permission, or remove its folder if it is of no use."
        )
        raise StoreError(message) from error
    return parse_json(data, path)


def _read_bytes(path: Path) -> bytes:
    """Return what is in a file, also where somebody else has just replaced it.

    An NFS client may know the file that was there before, which its server has no more.
    """
    for _ in range(2):
        try:
            return path.read_bytes()
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
    return path.read_bytes()


def parse_json(data: bytes, path: Path) -> dict[str, Any]:
    """Return the object that a file's bytes spell.

    Raises
    ------
    StoreError
        If they do not.
    """
    try:
        # It takes half the time of json.loads, which a list of many runs would feel.
        values = from_json(data)
    except ValueError as first:
        try:
            # A file name that is no UTF-8 makes lone surrogates, which only this reads.
            values = json.loads(data)
        except ValueError:
            message = (
                f"{path} is damaged ({first}); remove its folder if it is of no use."
            )
            raise StoreError(message) from first
    if not isinstance(values, dict):
        message = (
            f"{path} is damaged (no object); remove its folder if it is of no use."
        )
        raise StoreError(message)
    return values


def _write_temporary(path: Path, values: dict[str, Any]) -> Path:
    data = json.dumps(values, indent=1).encode() + b"\n"
    fd, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    temporary.chmod(0o644)
    return temporary
