"""A study: several configurations, each run several times, in a balanced order.

A study is a folder with one file, ``studies/<study_id>/study.json``: the plan, the
order and the ids of the runs, written by the process that executes the study. What
became of a run is asked of the run itself. The file also says what kind of study it
is, with the facts of its plan, so that `nbkit.report` needs nothing but the store.
"""

from __future__ import annotations

import json
import math
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from nbkit.config import ExperimentConfig
from nbkit.errors import NotEnoughDataError, RunNotFoundError, StoreError
from nbkit.launch.run import Run, attach
from nbkit.plural import plural
from nbkit.store.ownership import imported_from, is_of_others
from nbkit.store.paths import RunPaths, StudyPaths, the_study_folder
from nbkit.store.record import RunState, read_json, report_corruption
from nbkit.studies.durations import StartTimes, earlier_times
from nbkit.studies.idle_machine import Wait
from nbkit.studies.metric import Metric
from nbkit.studies.order import Slot
from nbkit.studies.starts import finished_runs, grouped


class StoredStudy:
    """A study in the store, read from its file and its runs; starts nothing."""

    def __init__(self, root: Path) -> None:
        self.paths = StudyPaths(root)
        self._last_content: dict[str, Any] = {}
        if not self._content:
            message = f"{self.paths.study} does not exist. Call Study.create()."
            raise StoreError(message)
        # Asked now: its mark goes with its folder, and what it says is still known.
        self._was_of_others = self._is_of_others

    @classmethod
    def open(cls, study_id: str) -> Self:
        """Return a study of the store by its id, or by the end of its id."""
        return cls(the_study_folder(study_id))

    @property
    def study_id(self) -> str:
        """Id of the study, which is the name of its folder."""
        return self.paths.root.name

    @property
    def name(self) -> str:
        """Name of the study."""
        return self._content["name"]

    @property
    def kind(self) -> str | None:
        """Kind of the study's report; None for the report of any arms."""
        return self._content.get("kind")

    @property
    def plan(self) -> dict[str, Any]:
        """Facts of the plan that the report requires, as JSON values; may be empty."""
        return self._content.get("plan") or {}

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters of the notebook that planned it; may be empty."""
        return self._content.get("parameters") or {}

    @property
    def command(self) -> str | None:
        """Command that measures the study; None if unknown, or if another user's.

        The file is not read again, because reading it may have failed.
        """
        plan = self._last_content.get("plan") or {}
        return None if self._was_of_others else plan.get("command")

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that every run gets."""
        return dict(self._content["environment"])

    @property
    def repeats(self) -> int:
        """Planned process starts of every arm."""
        return self._content["repeats"]

    @property
    def minutes(self) -> float | None:
        """Time limit of its execution, in minutes; None without one."""
        minutes = self._content.get("minutes")
        return minutes if isinstance(minutes, int | float) else None

    @property
    def arms(self) -> dict[str, ExperimentConfig]:
        """Configuration of every arm in the plan's order, unrepeated arms first."""
        arms = self._content["arms"].items()
        # Who looks at a study need not have the plug-ins that it uses.
        read = {arm: ExperimentConfig.from_store(json.dumps(f)) for arm, f in arms}
        if self._was_of_others or self._is_of_others:
            return {
                arm: config.coming_from(self.paths.root) for arm, config in read.items()
            }
        return read

    @property
    def unrepeated(self) -> list[str]:
        """Arms that are measured only once; they are also in `arms`."""
        return self._content.get("unrepeated") or []

    @property
    def control(self) -> tuple[str, str] | None:
        """The arm with an A/A control, and the control's name; None without one."""
        control = self._content.get("control")
        return None if control is None else (control[0], control[1])

    @property
    def concurrent(self) -> list[list[str]]:
        """Groups of arms that are started together."""
        return self._content.get("concurrent") or []

    @property
    def concurrent_arms(self) -> set[str]:
        """All arms that are started together with others, to run concurrently."""
        return {arm for group in self.concurrent for arm in group}

    @property
    def rounds(self) -> list[list[Run]]:
        """Finished runs that were started together, round by round."""
        groups = enumerate(self.concurrent)
        group_of = {arm: number for number, arms in groups for arm in arms}
        if not group_of:
            return []
        rounds: dict[tuple[int, int], list[Run]] = {}
        # By what has finished: a file may say any number of groups.
        for slot, run in self._finished().items():
            if slot.arm in group_of:
                rounds.setdefault((slot.repeat, group_of[slot.arm]), []).append(run)
        return [*rounds.values()]

    @property
    def order(self) -> list[Slot]:
        """Every process start of the plan, in the order of execution."""
        return [Slot(arm, repeat) for arm, repeat in self._content["order"]]

    @property
    def missing(self) -> list[Slot]:
        """Process starts without a result, in the order of execution."""
        finished = self._finished(diverged=True)
        over = self.discarded
        left = [slot for slot in self.order if slot.arm not in over]
        return [slot for slot in left if slot not in finished]

    @property
    def not_measured(self) -> list[Slot]:
        """Process starts that did not fit in the last time limit."""
        left = self._content.get("not_measured") or []
        return [slot for slot in self.missing if [slot.arm, slot.repeat] in left]

    @property
    def estimated_seconds(self) -> float | None:
        """Estimated duration of the missing starts, from earlier runs on this machine.

        At most the time limit; None if no arm has run on this machine.
        """
        starts = grouped(self.missing, self.concurrent)
        if not starts:
            return 0.0
        seconds = self.earlier_times.total(slots[0].arm for slots in starts)
        limit = math.inf if self.minutes is None else 60 * self.minutes
        return None if seconds is None else min(seconds, limit)

    @property
    def earlier_times(self) -> StartTimes:
        """Duration of a start of each arm on this machine."""
        if self.programs:
            return StartTimes()  # configurations do not tell programs apart
        return earlier_times(self.arms, self.concurrent_arms, self.environment)

    @property
    def waits(self) -> list[Wait]:
        """Waits for an idle machine, one per execution that requested it."""
        with report_corruption(self.paths.root):
            return [Wait(**wait) for wait in self._content.get("waits") or []]

    @property
    def metric(self) -> Metric | None:
        """Metric by which arms are compared; None for images per second."""
        stored = self._content.get("metric")
        with report_corruption(self.paths.root):
            return None if stored is None else Metric(**stored)

    @property
    def programs(self) -> dict[str, RunPaths]:
        """Folder of the function or script of each arm that has one."""
        kept = self._content.get("programs") or {}
        return {arm: self.paths.program(int(p["number"])) for arm, p in kept.items()}

    @property
    def compared_arms(self) -> list[str]:
        """Arms that are compared: all but the control and the unrepeated arms."""
        twins = self.control[1:] if self.control else ()
        return [arm for arm in self.arms if arm not in (*twins, *self.unrepeated)]

    @property
    def base(self) -> str:
        """The arm to compare others with: the one with an A/A control, or the first.

        If all arms are unrepeated, it is the first of them.
        """
        return self.control[0] if self.control else [*self.compared_arms, *self.arms][0]

    @property
    def values_by_arm(self) -> dict[str, list[float]]:
        """Finite values of the metric, by arm with one; empty without a metric."""
        values: dict[str, list[float]] = {}
        if (metric := self.metric) is None:
            return values
        for arm, runs in self.runs_by_arm().items():
            for run in runs:
                with suppress(NotEnoughDataError):
                    value = metric.value(run)
                    values.setdefault(arm, []).append(value)
        return values

    @property
    def discarded(self) -> set[str]:
        """Arms that are not started again because they are much worse than the base.

        All arms of the study if only the base would remain.
        """
        metric = self.metric
        if metric is None or metric.discard_floors is None:
            return set()
        values = self.values_by_arm
        base, *control = (values.get(arm, []) for arm in self.control or [self.base])
        return self.with_base(
            {
                arm
                for arm in set(self.compared_arms) - {self.base}
                if metric.floors_worse(values.get(arm, []), base, *control) is not None
            }
        )

    def with_base(self, arms: set[str]) -> set[str]:
        """Return these arms, or all arms of the study if only the base remains."""
        others = set(self.compared_arms) - {self.base}
        return {*self.arms} if others and arms >= others else arms

    @property
    def failed(self) -> dict[str, list[Run]]:
        """By arm, the last failed run of each start without a finished run."""
        finished, last = self._finished(), dict[Slot, str]()
        for entry in self._content["runs"]:
            last[Slot(entry["arm"], entry["repeat"])] = entry["run_id"]
        failed: dict[str, list[Run]] = {}
        for slot, run_id in last.items():
            if slot in finished:
                continue
            with suppress(RunNotFoundError):
                run = attach(run_id)
                if run.state in (RunState.FAILED, RunState.LOST):
                    failed.setdefault(slot.arm, []).append(run)
        return failed

    @property
    def parallel(self) -> int | None:
        """Maximum number of concurrent starts; None for as many as fit."""
        return self._content.get("parallel", 1)

    def runs_by_arm(self, *, diverged: bool = False) -> dict[str, list[Run]]:
        """Return the finished runs of every arm, in the order of their repeats.

        With ``diverged``, also those that ``stop_on_nonfinite`` ended.
        """
        content, finished = self._content, self._finished(diverged=diverged)
        runs: dict[str, list[Run]] = {arm: [] for arm in content["arms"]}
        # By what has finished: a file may say any number of repeats.
        for slot in sorted(finished, key=lambda slot: slot.repeat):
            if slot.arm in runs and 0 <= slot.repeat < content["repeats"]:
                runs[slot.arm].append(finished[slot])
        return runs

    def __repr__(self) -> str:
        done, planned = len(self._finished()), plural(len(self.order), "run")
        diverged = len(self._finished(diverged=True)) - done
        origin = imported_from(self.paths.imported)
        mark = f", {diverged} not finite" if diverged else ""
        mark += "" if origin is None else f", imported from {origin}"
        return f"<Study {self.study_id} {done} of {planned} finished{mark}>"

    @property
    def _content(self) -> dict[str, Any]:
        """What the file says now: another process may be executing the study.

        What it said last if it was removed meanwhile.
        """
        self._last_content = read_json(self.paths.study) or self._last_content
        return self._last_content

    @property
    def _is_of_others(self) -> bool:
        return is_of_others(self.paths.imported, [self.paths.root, self.paths.study])

    def _finished(self, *, diverged: bool = False) -> dict[Slot, Run]:
        return finished_runs(self._content["runs"], self.concurrent, diverged=diverged)


def resume_command(study: StoredStudy, arguments: str = "") -> str:
    """Return what completes a study: its command, if it has one."""
    resume = f"nbkit.Study.open({study.study_id!r}).resume({arguments})"
    return resume if study.command is None else f"`{study.command}`"


def resume_hint(study: StoredStudy) -> str:
    """Return what to do with a study that was interrupted, in words."""
    return (
        f"{resume_command(study)} continues the study; to report the finished runs, "
        f"run nbkit report {study.study_id}"
    )
