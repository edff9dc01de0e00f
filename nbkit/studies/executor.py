"""Lock of the one process that executes a study.

A lock in the study's folder decides, and ends with its process. Where there are no
locks, or no common ones of all hosts, what the study's file says is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from nbkit.errors import RunError, RunNotFoundError
from nbkit.launch.run import attach
from nbkit.store.liveness import STALE_SECONDS
from nbkit.store.locks import locked
from nbkit.store.paths import StudyPaths
from nbkit.store.record import RunState, read_json


@contextmanager
def executing(study: StudyPaths) -> Iterator[None]:
    """Hold a study's lock; raise if another process holds it."""
    with locked(study.lock) as is_held:
        if is_held is False:
            executor = (read_json(study.study) or {}).get("executor")
            raise RunError(executed_by(study, executor))
        yield


def executed_by(study: StudyPaths, executor: Mapping[str, Any] | None) -> str:
    """Return which process executes a study, and what to do."""
    who = "another process"
    if executor is not None:
        who = f"process {executor['pid']} on {executor['host']}"
    return (
        f"study {study.root.name} is being executed by {who}. Wait for it or interrupt "
        "it."
    )


def wait_for_the_last_runs(
    study_id: str, entries: Sequence[Mapping[str, Any]], *, force: bool
) -> None:
    """Wait for the end of runs whose study process was killed.

    On this host, such runs are being stopped, because their owner is gone.
    """
    for entry in entries:
        with suppress(RunNotFoundError):
            run = attach(entry["run_id"])
            if not force:
                run.wait(raise_on_failure=False)
            elif not run.state.is_final and run.state is not RunState.UNKNOWN:
                message = (
                    f"run {run.run_id} of study {study_id} is {run.state} and may "
                    "be active on another host. Stop it, or retry once its state is "
                    f"unknown ({STALE_SECONDS / 60:.0f} minutes without a heartbeat)."
                )
                raise RunError(message)
