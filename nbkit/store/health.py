"""The checks of `nbkit doctor` for the store: its place and file system."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from nbkit.errors import StoreError
from nbkit.findings import Finding
from nbkit.health import check, stream
from nbkit.plural import plural
from nbkit.store.locks import locked
from nbkit.store.metrics import store_error
from nbkit.store.paths import store_folder
from nbkit.store.record import read_json, write_json, write_json_once
from nbkit.store.stored_runs import list_run_folders

_LEAST_FREE_BYTES = 5 * 2**30
"""Two checkpoints of a large vision model (300 M weights and momenta in FP32)."""

_MOVE = "or set NBKIT_HOME to another folder"


def checks() -> Iterator[Finding]:
    """Yield the results; a test folder is made in the store, and removed."""
    try:
        store = store_folder()
    except StoreError as error:
        what, _, action = str(error).removesuffix(".").partition(". ")
        yield Finding("Store", "error", what, action)
        return
    lowest = next(path for path in (store, *store.parents) if os.path.lexists(path))
    if not lowest.is_dir():
        action = "set NBKIT_HOME to a folder"
        yield Finding("Store", "error", f"{lowest} is not a folder", action)
        return
    # A folder below one that this user may not enter raises a different error.
    seen = (path for path in (store, *store.parents) if os.access(path, os.F_OK))
    nearest = next(path for path in seen if path.is_dir())
    yield _place(store, nearest == store)
    space = shutil.disk_usage(nearest)
    evidence = f"{space.free / 2**30:.1f} of {space.total / 2**30:.1f} GiB free"
    action = f"checkpoints may take {_LEAST_FREE_BYTES >> 30} GiB; free some space, "
    yield check("Space", space.free >= _LEAST_FREE_BYTES, evidence, action + _MOVE)
    yield _writing(store, nearest)


def try_writing(folder: Path) -> str | None:
    """Do all that a run does with its files, in a test folder."""
    try:
        with tempfile.TemporaryDirectory(prefix=".nbkit-doctor-", dir=folder) as made:
            return _try(Path(made))
    except StoreError:
        raise
    except OSError as error:
        raise store_error(folder, error, "set NBKIT_HOME to another folder") from error


def _try(folder: Path) -> str | None:
    file = folder / "record.json"
    write_json(file, {"value": 1})
    write_json(file, {"value": 2})
    if read_json(file) != {"value": 2}:
        return "a replaced file still shows its old content"
    try:
        once = folder / "once.json"
        if not write_json_once(once, {}) or write_json_once(once, {}):
            return "a second exclusive creation of a file does not fail"
    except StoreError:
        return "no hard links, which are required to stop a run"
    # Whether who locks a file keeps others out.
    with locked(folder / "lock") as mine, locked(folder / "lock") as another:
        return None if mine and another is False else "no file locks (flock)"


def _place(store: Path, exists: bool) -> Finding:
    origin = "NBKIT_HOME" if os.environ.get("NBKIT_HOME") else "default"
    if not exists:
        evidence = f"{store} ({origin}); the first run creates it"
        return Finding("Store", "ok", evidence)
    other_users = stat.S_IRWXG | stat.S_IRWXO
    is_open = origin == "default" and bool(store.stat().st_mode & other_users)
    evidence = f"{store} ({origin}), {plural(len(list_run_folders()), 'run')}"
    evidence += "; other users can enter this folder" if is_open else ""
    action = f"run chmod 700 {shlex.quote(str(store))} unless other users need access"
    return check("Store", not is_open, evidence, action)


def _writing(store: Path, folder: Path) -> Finding:
    try:
        problem = try_writing(folder)
    except StoreError as error:
        evidence, end, action = str(error).removesuffix(".").partition("): ")
        return Finding("Writing", "error", evidence + end[:1], action)
    where = "" if folder == store else f", tried in {folder}"
    evidence = problem or f"replacing, linking and locking files works{where}"
    action = f"use another file system, {_MOVE}"
    return check("Writing", not problem, evidence, action, "error")


if __name__ == "__main__":
    stream(checks())
