"""Becoming the one process that executes a study, on hosts that share its store.

Each execution has a number, which is in the study's file, and which a process holds by
a folder of that name until the file has it too. A number whose holder has not written
it in time is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from nbkit.errors import RunError, RunNotFoundError
from nbkit.launch.run import attach
from nbkit.store.metrics import store_error
from nbkit.store.network import age_seconds
from nbkit.store.ownership import FOLDER_MODE
from nbkit.store.record import RunState
from nbkit.store.signs import SILENT_SECONDS

_WRITTEN_WITHIN_SECONDS = 60.0


@contextmanager
def held_number(study: Path, last: int) -> Iterator[int]:
    """Hold the number of a study's next execution."""
    number = last + 1
    try:
        while not _is_made(study / f"executing-{number}"):
            number += 1
    except OSError as error:
        raise store_error(study, error) from error
    try:
        yield number
    finally:
        for old in study.glob("executing-*"):
            if int(old.name.rpartition("-")[2]) <= number:
                with suppress(OSError):
                    old.rmdir()


def _is_made(claim: Path) -> bool:
    """Make a folder, unless one is there that was made too long ago to count."""
    with suppress(FileExistsError):
        claim.mkdir(FOLDER_MODE)
        return True
    try:
        if age_seconds(claim) >= _WRITTEN_WITHIN_SECONDS:
            return False
    except FileNotFoundError:
        pass  # its holder has written its number meanwhile
    message = (
        f"another process is beginning to execute study {claim.parent.name}; if it "
        f"does not, try again in {_WRITTEN_WITHIN_SECONDS:.0f} s."
    )
    raise RunError(message)


def wait_for_the_last_runs(
    study_id: str, entries: Sequence[Mapping[str, Any]], *, force: bool
) -> None:
    """Let the runs of an executor that was killed come to their end.

    Those on this host are being stopped, because their owner is gone.
    """
    for entry in entries:
        if entry.get("start") != entries[-1].get("start"):
            continue
        with suppress(RunNotFoundError):
            run = attach(entry["run_id"])
            if not force:
                run.wait(raise_on_failure=False)
            elif not run.state.is_final and run.state is not RunState.UNKNOWN:
                message = (
                    f"run {run.run_id} of study {study_id} is {run.state}: its host "
                    "may still run. Stop the run, or wait until it is unknown, "
                    f"{SILENT_SECONDS / 60:.0f} minutes after its last sign."
                )
                raise RunError(message)
