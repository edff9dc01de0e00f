"""Time and epochs of a training to a target accuracy, from its run folder.

The clock starts where the first step asks for its first image and stops at the end of
the evaluation that reached the target; evaluations are part of it. Reading the file
list, building the model and the start of processes come before, and are listed
separately. The time between attempts, and steps that a later attempt repeated, are left
out; MLPerf's time, from ``run_start`` to ``run_stop``, includes them.

References
----------
https://github.com/mlcommons/training_policies/blob/master/training_rules.adoc
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from nbkit import statistics
from nbkit.errors import ConfigError, NotEnoughDataError
from nbkit.plural import plural
from nbkit.review.energy import joules_between
from nbkit.statistics import Ratio, Times, median_of
from nbkit.store.nonfinite import NonFinite
from nbkit.store.record import unix_seconds
from nbkit.store.stored_runs import StoredRun

Line = dict[str, Any]


@dataclass(frozen=True)
class CurvePoint:
    """One evaluation."""

    seconds: float
    """From the start of training to the end of the evaluation."""
    epochs: int
    """Complete epochs before it."""
    accuracy: float
    """Top-1, 0 to 1."""


@dataclass(frozen=True)
class TimeToTarget:
    """Time of one run to its target accuracy; unknown values are None."""

    run_id: str
    seed: int
    target: float
    """Top-1 accuracy, 0 to 1."""
    reached: bool
    seconds: float | None
    """Time from the start of training to the end of the successful evaluation."""
    evaluation_seconds: float | None
    """Of these, in evaluations."""
    startup_seconds: float | None
    """Time from the start of the processes to the start of training; not part of the
    other times, nor of MLPerf's time."""
    epochs: int | None
    images: int | None
    """Images trained with, counting repeats."""
    joules: float | None
    """Energy of all GPUs over `seconds`; None for a run that was interrupted."""
    watched_seconds: float
    """Time from the start of training to the last evaluation."""
    best_accuracy: float
    curve: tuple[CurvePoint, ...]
    """Every evaluation."""
    paused_seconds: float = 0.0
    """Between attempts and in queues; not part of the other times."""

    @property
    def training_seconds(self) -> float | None:
        """The time without its evaluations."""
        if self.seconds is None or self.evaluation_seconds is None:
            return None
        return self.seconds - self.evaluation_seconds


def time_to_target(run: StoredRun, target: float | None = None) -> TimeToTarget:
    """Return the time of a run to its target accuracy."""
    wanted = run.config.target_accuracy if target is None else target
    if wanted is None:
        message = (
            f"Run {run.run_id} has target_accuracy=None. Pass a target, such as 0.759."
        )
        raise ConfigError(message)
    lines = _without_pauses(run.metrics(None))
    steps = [line for line in lines if line["kind"] == "step"]
    scored = [
        line
        for line in lines
        if line["kind"] == "evaluation" and line.get("top1_accuracy") is not None
    ]
    if not steps or not scored:
        message = (
            f"Run {run.run_id} has {plural(len(steps), 'step')} and "
            f"{plural(len(scored), 'evaluation')} with a top-1 accuracy. Set "
            "evaluation_period_epochs, and use images with one class each."
        )
        raise NotEnoughDataError(message)
    begin = started_at(lines)
    end = next((line for line in scored if line["top1_accuracy"] >= wanted), None)
    return TimeToTarget(
        run_id=run.run_id,
        seed=run.config.seed,
        target=wanted,
        reached=end is not None,
        startup_seconds=startup_seconds(run),
        watched_seconds=scored[-1]["t"] - begin,
        best_accuracy=max(line["top1_accuracy"] for line in scored),
        curve=tuple(
            CurvePoint(line["t"] - begin, line["epoch"], line["top1_accuracy"])
            for line in scored
        ),
        paused_seconds=(end or scored[-1])["pause"],
        **_until(end, begin, steps, scored, run),
    )


def _until(
    end: Line | None,
    begin: float,
    steps: Sequence[Line],
    scored: Sequence[Line],
    run: StoredRun,
) -> dict[str, Any]:
    names = ("seconds", "evaluation_seconds", "epochs", "images", "joules")
    if end is None:
        return dict.fromkeys(names)
    evaluations = [line for line in scored if line["t"] <= end["t"]]
    shown = [line["images"] for line in steps if line["step"] <= end["step"]]
    return {
        "seconds": end["t"] - begin,
        "evaluation_seconds": sum(line["duration_seconds"] for line in evaluations),
        "epochs": end["epoch"],
        "images": sum(shown),
        "joules": None if end["pause"] else joules_between(run, begin, end["t"]),
    }


def _without_pauses(lines: Sequence[Line]) -> list[Line]:
    """Return lines whose times leave out what lies between attempts."""
    pause, moved, before = 0.0, [], lines[0] if lines else {}
    for number, line in enumerate(lines):
        if line.get("attempt", 0) > before.get("attempt", 0):
            pause += started_at(lines[number:]) - before["t"]
        moved.append({**line, "t": line["t"] - pause, "pause": pause})
        before = line
    return moved


def started_at(lines: Sequence[Line]) -> float:
    """Return the Unix time at which the first step asked for its first image."""
    # On a GPU the end of a step is noticed some steps later, but never too early: the
    # earliest beginning that the first steps tell is the nearest.
    passed, begins = 0.0, []
    for line in lines:
        if line["kind"] in ("evaluation", "checkpoint"):
            break  # its time is in no step
        if line["kind"] == "step":
            passed += line["step_time_seconds"]
            begins.append(line["t"] - passed)
    first = lines[0]  # an attempt may begin with the evaluation of its checkpoint
    return min(begins, default=first["t"] - first.get("duration_seconds", 0.0))


def startup_seconds(run: StoredRun) -> float | None:
    """Return the time from the start of the processes to the start of training."""
    lines, record = run.metrics(None), run.record
    began = record.get("time", {}).get("started")
    if run.attempt:
        first = lines[0]["attempt"]
        starts = {
            attempt["number"]: attempt["started"]
            for attempt in record.get("attempts", [])
        }
        began = starts.get(first)
    if began is None:
        return None
    return started_at(lines) - unix_seconds(began)


def cost(seconds: float | None, price_per_hour: float | None) -> float | None:
    """Return the cost of a duration; None if duration or price is unknown."""
    if seconds is None or price_per_hour is None:
        return None
    return price_per_hour * seconds / 3600


@dataclass(frozen=True)
class RecipeTimes:
    """Results of one recipe over its seeds."""

    recipe: str
    runs: tuple[TimeToTarget, ...]
    """One per seed, including seeds that did not reach the target."""
    nonfinite: NonFinite | None = None
    """First NaN or Inf of a seed; None if all were finite."""

    @cached_property
    def times(self) -> Times:
        """Seconds to the target over seeds."""
        return statistics.summarise_times(
            [run.seconds for run in self.runs if run.seconds is not None],
            sum(run.seconds is None for run in self.runs),
        )

    @cached_property
    def epochs(self) -> Times:
        """Epochs to the target over seeds."""
        return statistics.summarise_times(
            [float(run.epochs) for run in self.runs if run.epochs is not None],
            sum(run.epochs is None for run in self.runs),
        )

    @property
    def joules(self) -> float | None:
        """Median energy over seeds that reached the target and have counters."""
        return median_of(self.runs, lambda run: run.joules)

    @property
    def evaluation_share(self) -> float | None:
        """Share of time in evaluations, over seeds that reached the target."""
        shares = [
            (part, run.seconds)
            for run in self.runs
            if (part := run.evaluation_seconds) is not None and run.seconds is not None
        ]
        return statistics.share(
            [part for part, _ in shares], [all_ for _, all_ in shares]
        )


def compare_recipes(
    compared: RecipeTimes, baseline: RecipeTimes, comparisons: int = 1
) -> Ratio | str:
    """Return the ratio of two recipes' times, or why there is no verdict.

    There is no verdict if a seed missed the target: it has no time, and a ratio of the
    other times would be biased.
    """
    lost = [recipe for recipe in (compared, baseline) if recipe.nonfinite]
    if lost:
        return "; ".join(
            f"no verdict, {each.recipe}: {each.nonfinite}" for each in lost
        )
    for recipe in (compared, baseline):
        missed = recipe.times.n - recipe.times.reached
        if missed:
            return (
                f"verdict withheld, because {missed} of "
                f"{plural(recipe.times.n, 'seed')} of {recipe.recipe} did not reach "
                "the target"
            )
    return statistics.ratio(
        [run.seconds for run in compared.runs if run.seconds is not None],
        [run.seconds for run in baseline.runs if run.seconds is not None],
        higher_is_faster=False,
        a_name=compared.recipe,
        b_name=baseline.recipe,
        comparisons=comparisons,
    )
