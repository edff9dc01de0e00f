"""Resumption of a run: permission to execute it, and one process at a time.

The log folder of the new attempt, which is made exclusively, is the lock: hosts and
containers that share a store share it, and nothing else. A file in it says who holds
it. One whose holder has ended is skipped; so is any other with ``force=True``.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nbkit import registry
from nbkit.errors import RunError, StoreError
from nbkit.launch.code.entry import refuse_without_copy
from nbkit.launch.code.trust import permit_run
from nbkit.launch.submit import chosen_owner_exit, submit
from nbkit.reading import can_enter
from nbkit.store.metrics import store_error
from nbkit.store.network import age_seconds, refresh_nfs_cache
from nbkit.store.ownership import FOLDER_MODE, make_folder
from nbkit.store.paths import RunPaths
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import RunState, read_json, utc_now, write_json
from nbkit.store.stored_runs import StoredRun


def resume(
    run: StoredRun, *, on_owner_exit: str | None, trust: bool, force: bool = False
) -> None:
    """Start the next attempt of a run that has ended, as `Run.resume` says."""
    owner_exit = chosen_owner_exit(on_owner_exit)
    _check_resumable(run, force=force)
    permit = permit_run(run.paths, trust=trust)
    with held_attempt(run, force=force) as attempt:
        # Another process may have resumed it just before.
        _check_resumable(run, force=force)
        registry.resolve("engines", run.config.engine)().reap(run.paths)
        old = run.submission
        _refuse_if_passed_over(run.paths, attempt)
        run.paths.stop.unlink(missing_ok=True)
        submit(
            run.config,
            run.paths,
            permit,
            attempt=attempt,
            on_owner_exit=owner_exit,
            parameter_sources=old.get("parameter_sources", {}),
            tags=old.get("tags", {}),
            environment=old.get("environment", {}),
            cwd=_folder_of_code(run, old),
            notebook=old.get("notebook"),
        )


@contextlib.contextmanager
def held_attempt(run: StoredRun, *, force: bool = False) -> Iterator[int]:
    """Hold the next attempt of a run; its number is free again if this fails."""
    paths, number = run.paths, run.attempt + 1
    try:
        make_folder(paths.logs)
        while not _make_folder(paths.attempt(number)):
            _refuse_if_held(paths, number, force=force)
            number += 1
    except StoreError:
        raise
    except OSError as error:
        raise store_error(paths.logs, error) from error
    try:
        me = ProcessIdentity.of().to_dict()
        holder = {**me, "uid": os.getuid(), "time": utc_now()}
        write_json(paths.resumer(number), holder)
        yield number
    except BaseException:
        shutil.rmtree(paths.attempt(number), ignore_errors=True)
        raise


def _refuse_if_passed_over(paths: RunPaths, number: int) -> None:
    """Raise if another host has forced its own resume while this one took its time."""
    refresh_nfs_cache(paths.logs)
    numbers = [int(path.name) for path in paths.logs.iterdir() if path.name.isdecimal()]
    if max(numbers) > number:
        message = (
            f"run {paths.run_id} is being resumed by another process (attempt "
            f"{max(numbers)}). Call wait()."
        )
        raise RunError(message)


def _make_folder(folder: Path) -> bool:
    try:
        folder.mkdir(FOLDER_MODE)
    except FileExistsError:
        return False
    return True


def _refuse_if_held(paths: RunPaths, number: int, *, force: bool) -> None:
    """Raise unless the process that made an attempt's folder will not submit it."""
    refresh_nfs_cache(paths.root)
    submitted = (read_json(paths.submission) or {}).get("attempt", 0)
    try:
        holder = read_json(paths.resumer(number))
        process = None if holder is None else ProcessIdentity.from_dict(holder)
    except (StoreError, LookupError, TypeError, ValueError):
        holder = process = None
    is_alive = None if process is None else process.is_alive()
    # Its maker writes who it is right after the folder.
    may_live = is_alive or (process is None and age_seconds(paths.attempt(number)) < 10)
    if submitted < number and (is_alive is False or (force and not may_live)):
        return
    who = "an unknown process"
    if holder is not None and process is not None:
        who = f"process {process.pid} on {process.host}, since {holder.get('time')}"
    message = (
        f"run {paths.run_id} is being resumed by {who}. Call wait(), or "
        "resume(force=True) if that process has ended."
    )
    raise RunError(message)


def _folder_of_code(run: StoredRun, submission: dict[str, Any]) -> Path | None:
    """Return where a function or script runs: it may open files by relative names."""
    if not run.config.has_entry:
        return None
    refuse_without_copy(read_json(run.paths.entry) or {})
    cwd = Path(submission["cwd"])
    if not can_enter(cwd):
        message = (
            f"{cwd}, the working folder of run {run.run_id}, does not exist or is not "
            "accessible. Create it, or ask its owner for access."
        )
        raise RunError(message)
    return cwd


def _check_resumable(run: StoredRun, *, force: bool) -> None:
    state = run.state
    if state is RunState.UNKNOWN and not force:
        why = (run.cause or {}).get("message")
        message = f"the state of run {run.run_id} is unknown: {why}."
        raise RunError(message)
    if not state.is_final and state is not RunState.UNKNOWN:
        message = f"run {run.run_id} is {state}. Call stop() before resume()."
        raise RunError(message)
    if state is RunState.FINISHED:
        message = f"run {run.run_id} has finished. Launch a new run."
        raise RunError(message)
    if not run.paths.has_checkpoint:
        message = (
            f"run {run.run_id} has no complete checkpoint in {run.paths.checkpoints}. "
            "Launch the run again."
        )
        raise RunError(message)
