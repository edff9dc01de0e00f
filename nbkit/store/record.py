"""`record.json`: the facts of one run, and the states of runs.

The record holds facts and raw counts. Medians and intervals are computed by readers,
so that a better method improves old runs too.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any

from nbkit import clock
from nbkit.errors import NbkitError, StoreError
from nbkit.reading import parse_object, read_file
from nbkit.store.metrics import store_error
from nbkit.store.paths import RunPaths, StudyPaths

_MOST_WORDS = 160
RECORD_SCHEMA = "nbkit.run/1"

OWNERS = 0o644
"""Mode of what runs and studies are executed by, less what the umask takes."""

DAMAGE_ERRORS = (
    *(OSError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError),
    RecursionError,
)
"""What reading a run's files can raise if one was cut off, lacks a part, is gone or
holds nonsense; `StoreError` is an OSError."""

_FILES = RunPaths(Path())
STORED_FIELDS: dict[str, dict[str, tuple[type, str]]] = {
    _FILES.config.name: {
        "name": (str, "name of the run"),
        "task": (str, "what the ranks execute, such as a function"),
        "model": (str, "name of the model"),
        "engine": (str, "what starts the ranks"),
        "steps": (int, "optimizer steps"),
    },
    _FILES.submission.name: {
        "name": (str, "name of the run"),
        "time": (str, "time of the launch, UTC"),
        "attempt": (int, "number of this attempt, from 0"),
        "notebook": (str, "notebook that launched it"),
        "owner": (dict, "process that launched it: host, pid, start"),
        "supervisor": (dict, "process that supervises it: host, pid, start"),
        "tags": (dict, "its study, arm and repeat"),
        "environment": (dict, "environment variables of its study"),
        "job": (dict, "its Slurm job"),
        "job.cluster": (str, "the job's Slurm cluster"),
    },
    _FILES.record.name: {
        "name": (str, "name of the run"),
        "state": (str, "a `RunState`"),
        "attempt": (int, "number of this attempt, from 0"),
        "attempts": (list, "the attempts that have ended: state, times, message"),
        "time": (dict, "UTC times: submitted, started, running, ended"),
        "cause": (dict, "why it failed or was stopped"),
        "cause.message": (str, "the error"),
        "cause.traceback": (str, "traceback of the rank"),
        "queue": (dict, "what it waits for"),
        "supervisor": (dict, "process that supervises it: host, pid, start"),
        "launch": (dict, "how its ranks were started"),
        "launch.devices": (list, "names of its devices"),
        "launch.job": (dict, "its Slurm job"),
        "code": (dict, "git commit and changes"),
        "environment": (dict, "software and environment variables"),
        "environment.packages": (dict, "version of each Python package"),
        "machine": (dict, "host, CPUs, memory and devices"),
        "storage": (dict, "file system of the data"),
        "system": (dict, "driver, and load of GPUs and host during the run"),
    },
    _FILES.worker.name: {
        "devices": (list, "the device of each rank"),
        "ranks": (list, "times of each rank over the measured steps"),
        "data": (dict, "the data set"),
        "data.fingerprint": (dict, "hash and size of the data set"),
        "nonfinite": (dict, "first NaN or Inf, and its step"),
    },
    StudyPaths(Path()).study.name: {
        "name": (str, "name of the study"),
        "plan": (dict, "facts that its report needs"),
        "arms": (dict, "configuration of each arm"),
        "environment": (dict, "environment variables of its runs"),
        "repeats": (int, "runs of each arm"),
        "order": (list, "arm and repeat of each run, in order of start"),
        "runs": (list, "the runs that were started"),
    },
}
"""Fields that readers rely on, by file: type and content. A value of another type is
damage; each field may be missing or null. An object stands before its own fields."""
_PLACES = {
    file: [(*name.partition(".")[::2], kind) for name, (kind, _) in fields.items()]
    for file, fields in STORED_FIELDS.items()
}
_WORDS = {int: "an integer", str: "text", dict: "an object", list: "a list"}
_JOB_ID = re.compile(r"[0-9]{1,20}(_[0-9]{1,20})?")


@contextmanager
def report_corruption(root: Path) -> Iterator[None]:
    """Say of a run's folder that it is damaged where reading its files fails."""
    try:
        yield
    except NbkitError:
        raise  # such as a configuration of another version
    except DAMAGE_ERRORS as error:
        message = (
            f"{root} is damaged ({type(error).__name__}: {error}). Remove the folder "
            "if it is not needed."
        )
        raise StoreError(message) from error


def damage_words(root: Path, error: Exception) -> str:
    """Return what is wrong with a run, in few words, as its row has it."""
    if not isinstance(error, StoreError):
        return f"damaged ({type(error).__name__}: {error})"[:_MOST_WORDS]
    return str(error).replace(f"{root}/", "").partition(". Remove")[0][:_MOST_WORDS]


class RunState(StrEnum):
    """State of a run; `LOST` and `UNKNOWN` are computed, all others are recorded."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"
    LOST = "lost"
    """The supervisor exited without recording how the run ended."""
    UNKNOWN = "unknown"
    """The supervisor is not visible from here, and its heartbeat has stopped."""

    @property
    def is_final(self) -> bool:
        """Whether the run has ended."""
        return self in _FINAL


_FINAL = {RunState.FINISHED, RunState.FAILED, RunState.STOPPED, RunState.LOST}


def utc_now() -> str:
    """Return the time in UTC as ISO 8601 with milliseconds; of a run, by its clock."""
    return iso(clock.now())


def iso(seconds: float) -> str:
    """Return a Unix time in UTC as ISO 8601 with milliseconds."""
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def unix_seconds(moment: str) -> float:
    """Return a moment in ISO 8601 as Unix time in seconds."""
    return datetime.datetime.fromisoformat(moment).timestamp()


def write_json(path: Path, values: dict[str, Any], mode: int = OWNERS) -> None:
    """Replace a file by an object, so that no reader ever sees half of it."""
    try:
        temporary = _write_beside(path, _json(values), mode, is_synced=True)
        temporary.replace(path)
    except OSError as error:
        raise store_error(path, error) from error


def write_json_once(path: Path, values: dict[str, Any]) -> bool:
    """Write an object unless the file exists; return whether this call wrote it."""
    try:
        temporary = _write_beside(path, _json(values), OWNERS, is_synced=True)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        finally:
            temporary.unlink()
    except OSError as error:
        raise store_error(path, error) from error
    return True


def of_newest_attempt(
    record: dict[str, Any], submission: dict[str, Any]
) -> dict[str, Any]:
    """Return a record; an empty one if it is still that of the attempt before."""
    launched = submission["attempt"] if submission else 0
    return record if record.get("attempt", -1) >= launched else {}


def first_start(record: Mapping[str, Any]) -> str | None:
    """Return when the first attempt of a run began; None if none has."""
    attempts = [record.get("time") or {}, *(record.get("attempts") or ())]
    return min((s for it in attempts if (s := it.get("started"))), default=None)


def job_nodes(record: Mapping[str, Any]) -> list[str]:
    """Return the nodes of a run's scheduler job; empty without one."""
    return ((record.get("launch") or {}).get("job") or {}).get("nodes") or []


def device_uuids(record: Mapping[str, Any], worker: Mapping[str, Any]) -> list[str]:
    """Return the UUIDs of a run's devices; empty if neither lease nor ranks say."""
    leased = (record.get("launch") or {}).get("devices")
    used = [device["uuid"] for device in worker.get("devices") or []]
    # Of a function, rank 0 alone says where it is; an earlier attempt was elsewhere.
    is_complete = len(used) == worker.get("world_size")
    is_complete &= worker.get("attempt", 0) == record.get("attempt", 0)
    return [str(uuid) for uuid in leased or (used if is_complete else []) if uuid]


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the object in a file, or None if there is no such file."""
    try:
        data = read_file(path)
    except FileNotFoundError:
        return None
    return parse_json(data, path)


def parse_json(data: bytes, path: Path) -> dict[str, Any]:
    """Return the object that a file's bytes spell."""
    try:
        values = parse_object(data)
    except json.JSONDecodeError as error:
        raise _damaged(path, error.msg) from error
    name = path.name
    for head, tail, kind in _PLACES.get(name, ()):
        value = values.get(head)
        if tail and value is not None:
            value = value.get(tail)
        if value is not None and not isinstance(value, kind):
            field = f"{head}.{tail}".rstrip(".")
            raise _damaged(path, f"{field}={value!r:.40} is not {_WORDS[kind]}")
    job = "job" in values and name == _FILES.submission.name and values["job"]
    if job and not _JOB_ID.fullmatch(str(job.get("id"))):  # Slurm's commands get it
        raise _damaged(path, f"job.id={job.get('id')!r:.40} is not a Slurm job id")
    return values


def _damaged(path: Path, what: str) -> StoreError:
    text = (
        f"{path} is damaged ({what}). Restore the file, or remove the folder of its "
        "run or study."
    )
    return StoreError(text)


def _json(values: dict[str, Any]) -> bytes:
    return json.dumps(values, indent=1).encode() + b"\n"


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file by bytes, so that no reader ever sees half of it."""
    temporary = _write_beside(path, data)
    try:
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def _write_beside(
    path: Path, data: bytes, mode: int = 0o666, *, is_synced: bool = False
) -> Path:
    """Write a new file beside another; the umask decides, unlike with mkstemp."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if is_synced:
                os.fsync(file.fileno())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary
