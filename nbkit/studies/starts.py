"""Process starts of a study, their groups and their end."""

from __future__ import annotations

import datetime
import re
import secrets
import signal
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError, NbkitError, RunNotFoundError, StoreError
from nbkit.launch.code.entry import refuse_without_copy
from nbkit.launch.program import Program
from nbkit.launch.run import Run, attach
from nbkit.launch.submit import refusals
from nbkit.store.paths import RunPaths
from nbkit.store.processes import ProcessIdentity, kill
from nbkit.store.record import RunState, read_json
from nbkit.studies.order import Slot


def new_study_id(name: str) -> str:
    """Return an id for a new study, from time and name."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S")
    what = re.sub(r"[^a-z0-9]+", "-", name.lower())[:32].strip("-") or "study"
    return f"{now}-{what}-{secrets.token_hex(2)}"


def check_concurrent(
    concurrent: Sequence[Sequence[str]], arms: Sequence[str], control: str | None
) -> None:
    """Check that arms can be started together."""
    used: set[str] = set()
    for group in concurrent:
        first = list(arms).index(group[0]) if group and group[0] in arms else 0
        if len(group) < 2 or list(arms[first : first + len(group)]) != list(group):
            message = (
                f"concurrent={list(group)!r} must be two or more arms that follow each "
                f"other in arms={list(arms)!r}. Change concurrent, or reorder the arms."
            )
            raise ConfigError(message)
        if control in group or used & set(group):
            message = (
                f"concurrent={list(group)!r} contains the control or an arm of another "
                "group. Use each arm in only one group, and not the control."
            )
            raise ConfigError(message)
        used |= set(group)


def refuse_same(programs: Mapping[str, Program]) -> None:
    """Check that no two arms are the same program, whose difference is noise."""
    for (first, program), (second, other) in combinations(programs.items(), 2):
        if program == other:
            message = (
                f"arms {first!r} and {second!r} are the same program with the same "
                f"arguments. Change one, or measure noise with control={first!r}."
            )
            raise ConfigError(message)


def grouped(
    slots: Sequence[Slot], concurrent: Sequence[Sequence[str]]
) -> list[list[Slot]]:
    """Return the slots in order, with slots that start together in one list.

    These are in the order of their group, so that a job gets the same devices in every
    repeat.
    """
    group_of = {arm: set(group) for group in concurrent for arm in group}
    groups: list[list[Slot]] = []
    for slot in slots:
        last = groups[-1][0] if groups else None
        if (
            last is not None
            and last.repeat == slot.repeat
            and slot.arm in group_of.get(last.arm, ())
        ):
            groups[-1].append(slot)
        else:
            groups.append([slot])
    place = {arm: number for group in concurrent for number, arm in enumerate(group)}
    return [sorted(slots, key=lambda slot: place.get(slot.arm, 0)) for slots in groups]


def checked(
    starts: Sequence[Sequence[Slot]],
    arms: Mapping[str, ExperimentConfig],
    programs: Mapping[str, RunPaths],
) -> Sequence[Sequence[Slot]]:
    """Return the starts after checking all of them, before the first one runs."""
    for arm in dict.fromkeys(slot.arm for slots in starts for slot in slots):
        for error in refusals(arms[arm], has_program=arm in programs):
            error.add_note(f"Requested by arm {arm!r} of the study.")
            raise error
        if arm in programs:
            refuse_without_copy(read_json(programs[arm].entry) or {})
    return starts


def finished_runs(
    entries: Sequence[Mapping[str, Any]],
    concurrent: Sequence[Sequence[str]],
    *,
    diverged: bool = False,
) -> dict[Slot, Run]:
    """Return the finished run of every slot that needs no new run."""
    group_of = {arm: tuple(group) for group in concurrent for arm in group}
    finished: dict[Slot, Run] = {}
    at_once: dict[tuple[int, str], tuple[Slot, Run]] = {}
    for entry in entries:
        try:
            run = attach(entry["run_id"])
        except RunNotFoundError:
            # Its folder was removed: that slot has to be run again.
            continue
        slot = Slot(entry["arm"], entry["repeat"])
        counts = diverged and slot.arm not in group_of and has_diverged(run)
        if run.state is not RunState.FINISHED and not counts:
            continue
        if slot.arm in group_of:
            at_once[entry["start"], slot.arm] = slot, run
        else:
            finished[slot] = run
    for (start, arm), (slot, run) in at_once.items():
        if all((start, other) in at_once for other in group_of[arm]):
            finished[slot] = run
    return finished


def has_diverged(run: Run) -> bool:
    """Return whether ``stop_on_nonfinite`` ended a run.

    This is a result: the same run would end at the same step again.
    """
    return run.state is RunState.FAILED and (run.cause or {}).get("kind") == "nonfinite"


def wait_for_all(runs: Sequence[Run], on_poll: Callable[[Run], None]) -> None:
    """Wait until every run has finished, or the first of them has not.

    A run by itself that `has_diverged` has ended like one that finished.
    """

    def look(_: Run) -> None:
        on_poll(runs[0])
        for run in runs:
            if run.state.is_final:
                run.wait(raise_on_failure=not (len(runs) == 1 and has_diverged(run)))

    for run in runs:
        run.wait(on_poll=look, raise_on_failure=False)


def end_all(runs: Sequence[Run], *, by: str) -> None:
    """End every run that still runs; return when nothing of them is left."""
    errors: list[NbkitError] = []
    for wait in (False, True):
        errors.clear()  # what Slurm, say, did not hear at first, it hears now
        for run in runs:
            try:
                _end(run, by, wait=wait)
            except NbkitError as error:
                errors.append(error)
    if errors:
        raise errors[0]


def _end(run: Run, by: str, *, wait: bool) -> None:
    try:
        run.stop(by=by, wait=wait)
    except StoreError:
        supervisor = run.submission.get("supervisor")
        process = supervisor and ProcessIdentity.from_dict(supervisor)
        if not process or not process.is_here:
            raise
        # A full disk holds no request; the supervisor takes this signal for one.
        kill(process, signal.SIGTERM)
        if wait:
            run.wait(raise_on_failure=False, on_poll=lambda _: None)
            run.stop(by=by)  # it has ended: what a lost one left is ended too
