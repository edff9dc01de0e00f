"""Time limit of a study and the starts that fit.

Starts are chosen by what they add to the answer: a first start of the question's own
pair, then the five runs of its verdict, then those of one arm after the other in the
order of the plan: five runs of one arm say more than two of each. Whose five runs fit
is decided anew before every start, and all of these arms run in the study's balanced
order: arms that were measured one after the other would differ by a drift, too.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError
from nbkit.launch.run import Run
from nbkit.plural import plural
from nbkit.statistics import MINIMUM_RUNS, duration_in_words
from nbkit.store.record import RunState
from nbkit.studies import kinds
from nbkit.studies.devices import find_devices
from nbkit.studies.durations import StartTimes
from nbkit.studies.order import Slot
from nbkit.studies.starts import grouped
from nbkit.studies.stored_study import StoredStudy

_GPU_MINUTES, _CPU_MINUTES = 10.0, 2.0
"""Limits of a notebook whose parameter ``minutes`` is None."""

_PAIR, _TWIN, _ONCE, _VERDICT = range(4)
"""Ranks of the first starts of the question's own pair and of its control, of what is
measured once, and of runs up to a verdict, of arms for which all of them fit."""

Start = Sequence[Slot]
"""What starts together: usually one slot."""


def checked_minutes(minutes: float | None) -> float | None:
    """Return a valid time limit; None for 0 (no limit)."""
    if minutes is None:
        return None
    if not isinstance(minutes, int | float) or not 0 <= minutes < float("inf"):
        message = (
            f"minutes={minutes!r} is not a valid time limit. Use 0 (no limit) or more, "
            "such as 10."
        )
        raise ConfigError(message)
    return float(minutes) or None


def default_minutes(configs: Iterable[ExperimentConfig]) -> float | None:
    """Return a notebook's default limit; None for engines with a job queue."""
    config = next(iter(configs), None)
    if config is None or config.engine != "local":
        return None
    is_cpu = find_devices(config.device, config.engine, config.gpus).is_cpu
    return _CPU_MINUTES if is_cpu else _GPU_MINUTES


def start_times(study: StoredStudy) -> StartTimes:
    """Return the duration of the last finished run of each arm."""
    times = StartTimes()
    for arm, runs in study.runs_by_arm().items():
        times.take(arm, [run.record for run in runs[-1:]])
    return times


class QueuedAtLimitError(Exception):
    """A start is still waiting for its devices at the time limit."""


class Budget:
    """Selects the starts of a study that fit into the remaining time."""

    def __init__(
        self,
        study: StoredStudy,
        minutes: float | None,
        times: StartTimes,
        *,
        places: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._study, self.times, self._clock = study, times, clock
        self._side_by_side = places
        self._end = None if minutes is None else clock() + 60 * minutes
        self._once, self._first = set(study.unrepeated), set(first_arms(study))
        self._twin = study.control[1] if study.control else None
        self._places = {arm: place for place, arm in enumerate(study.arms)}
        self._settled: set[str] = set()
        self._joint: set[str] = set()
        self._ahead: list[Start] = []
        self._is_very_first, self._is_pair_reserved = True, False

    def fitting(self, starts: Sequence[Start]) -> list[Start]:
        """Return the starts that fit, in order, with the first pair before others.

        The first pair is started as long as time remains: without it, there is no
        result.
        """
        if self._end is None:
            return list(starts)
        if self._settled and not open_arms(self._study, self._settled):
            return []
        is_very_first, self._is_very_first = self._is_very_first, False
        left = self.left_seconds * self._side_by_side
        self._joint = self._up_to_a_verdict(starts, left)
        chosen: list[Start] = []
        for start in sorted(starts, key=self._rank):
            is_pair = self._rank(start)[0] == _PAIR
            seconds = self.times.total([start[0].arm])
            if left <= 0 and not is_very_first:
                break
            if seconds is not None:
                if min(left, self.left_seconds) < seconds and not is_pair:
                    continue
                left -= seconds
            chosen.append(start)
        first = _PAIR if len(chosen) == len(starts) else _TWIN
        self._ahead = [start for start in chosen if self._rank(start)[0] <= first]
        rest = [
            start for start in starts if start in chosen and start not in self._ahead
        ]
        return [
            *self._ahead,
            *sorted(rest, key=lambda start: self._rank(start)[0] > _VERDICT),
        ]

    def _up_to_a_verdict(self, starts: Sequence[Start], left: float) -> set[str]:
        """Return the arms whose runs up to a verdict all fit: first the pair, or none.

        What they need is reserved: starts that take longer than expected leave out the
        last arms of the plan, and never the pair.
        """
        joint = set(self._first) if self._is_pair_reserved else set[str]()
        others = sorted(
            {start[0].arm for start in starts}, key=self._places.__getitem__
        )
        for arms in (self._first, *({arm} for arm in others)):
            needed = [
                start[0].arm
                for start in starts
                if start[0].repeat < MINIMUM_RUNS
                and any(slot.arm in joint | arms | self._once for slot in start)
            ]
            if (self.times.total(needed) or 0.0) <= left:
                joint |= arms
            elif not joint:
                break
        is_known = all(self._rank(start)[0] > _TWIN for start in starts)
        self._is_pair_reserved = is_known and bool(joint)
        return joint

    @property
    def left_seconds(self) -> float:
        """Remaining time; infinite without a limit."""
        return math.inf if self._end is None else self._end - self._clock()

    def is_over_for(self, runs: Iterable[Run]) -> bool:
        """Return whether there is no time left while runs wait for devices."""
        is_over = self.left_seconds <= 0
        return is_over and any(run.state is RunState.QUEUED for run in runs)

    def ends_round(self, start: Start, following: Start) -> bool:
        """Return whether there is a new answer between two starts."""
        is_of_pair = start in self._ahead and following not in self._ahead
        return is_of_pair or start[0].repeat != following[0].repeat

    def end_round(self, repeat: int) -> None:
        """Look at the verdicts before a repeat, if they have enough runs."""
        if self._end is not None and repeat >= MINIMUM_RUNS:
            self._settled = settled_arms(self._study)

    def _rank(self, start: Start) -> tuple[int, int]:
        """Return which start is chosen first: that with the lowest rank."""
        arm, repeat = start[0].arm, start[0].repeat
        is_first = any(slot.arm in self._first for slot in start)
        if arm in self._once:
            return _ONCE, 0
        if repeat == 0 and is_first:
            return (_TWIN if arm == self._twin else _PAIR), 0
        if repeat < MINIMUM_RUNS:
            if arm in self._joint:
                return _VERDICT, 0
            return (4, 0) if repeat == 0 else (5, -1 if is_first else self._places[arm])
        return (7 if arm in self._settled else 6), repeat


def first_arms(study: StoredStudy) -> list[str]:
    """Return the question's own pair, which is measured first, with its control.

    The plan may name it. Else it is what the plan begins with: two arms, or all up to
    the first that start together.
    """
    twins = study.control[1:] if study.control else ()
    if named := study.plan.get("first_arms"):
        return [*named, *twins]
    left_out = {*study.unrepeated, *twins}
    order = dict.fromkeys(slot.arm for slot in study.order if slot.arm not in left_out)
    names = list(order)
    last = study.concurrent[0][-1] if study.concurrent else None
    count = names.index(last) + 1 if last in order else 2
    return [*names[:count], *twins]


def open_arms(study: StoredStudy, settled: set[str]) -> set[str]:
    """Return the compared arms without a settled verdict."""
    baseline = study.control or first_arms(study)[:1]
    return {*study.arms} - {*study.unrepeated} - {*baseline} - settled


def settled_arms(study: StoredStudy) -> set[str]:
    """Return arms whose verdict is settled before all planned repeats.

    Only for a study of images/s without a notebook, because only the report of a
    question knows what it compares.
    """
    its_own = study.kind or study.metric or study.concurrent
    is_early = study.repeats > MINIMUM_RUNS
    return kinds.settled_arms(study) if is_early and not its_own else set()


def not_measured(study: StoredStudy) -> str:
    """Return a sentence on starts that did not fit in the limit; may be empty."""
    missing = study.not_measured
    if study.minutes is None or not missing:
        return ""
    if (settled := settled_arms(study)) and not open_arms(study, settled):
        done = min(len(study.runs_by_arm()[arm]) for arm in settled)
        return (
            f"Ended early: all verdicts were final after {done} of {study.repeats} "
            "repeats."
        )
    times, counts = start_times(study), Counter[tuple[str, ...]]()
    counts.update(
        tuple(slot.arm for slot in start)
        for start in grouped(missing, study.concurrent)
    )
    parts, planned = [], list(study.arms)
    for arms, count in sorted(
        counts.items(), key=lambda entry: planned.index(entry[0][0])
    ):
        seconds = times.total([arms[0]] * count)
        more = f", about {duration_in_words(seconds)} more" if seconds else ""
        parts.append(f"{' + '.join(arms)} ({plural(count, 'start')}{more})")
    return f"Not measured in {study.minutes:g} min: {'; '.join(parts)}."


def limit_note(minutes: float | None) -> list[str]:
    """Return how a plan says its time limit; nothing without one."""
    if minutes is None:
        return []
    return [
        f"Time limit: {minutes:g} min (minutes=0: no limit). Runs that do not fit "
        "are listed as not measured."
    ]
