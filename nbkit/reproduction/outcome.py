"""Outcome of a repeated run compared with the original."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from nbkit.plural import plural
from nbkit.reproduction.differences import (
    Difference,
    difference_table,
    rates_in_words,
    steps_of_rate,
)
from nbkit.review.usable_arms import earliest, no_verdict_sentence
from nbkit.statistics import Ratio, Summary
from nbkit.store.nonfinite import NonFinite
from nbkit.store.stored_runs import StoredRun
from nbkit.visible import visible


@dataclass(frozen=True)
class LossComparison:
    """The losses of the steps that both runs recorded."""

    run_id: str
    """The run that is compared with the original."""
    n_steps: int
    """Number of steps that both runs recorded."""
    first_step: int | None
    """First step with different losses; None if all are bitwise equal."""
    original: float | None
    """The original's loss at that step; None if there is none or it is not finite."""
    reproduced: float | None

    @property
    def sentence(self) -> str:
        """The outcome in words."""
        if not self.n_steps:
            return "No step has a loss in both runs."
        if self.first_step is None:
            return f"The losses of {plural(self.n_steps, 'step')} are bitwise equal."
        text = (
            f"The losses first differ at step {self.first_step:,}: "
            f"{_number(self.original)} in the original vs. {_number(self.reproduced)} "
            "in the reproduction"
        )
        if self.original is not None and self.reproduced is not None:
            text += f" ({self.reproduced - self.original:+.3g})"
        return f"{text}."


@dataclass(frozen=True)
class Reproduction:
    """A run, and new runs of the same record."""

    original: StoredRun
    runs: tuple[StoredRun, ...]
    """The new runs, in launch order."""
    differences: tuple[Difference, ...]
    """Recorded differences: A is the original, B are the new runs."""
    ratio: Ratio | None
    """Throughput of the new runs divided by the original's (of a study: all runs of its
    arm); None if a run measured none or diverged (NaN/Inf)."""
    between_runs: Summary | None
    """Images per second of the original's runs; without an interval for one run."""
    losses: LossComparison
    """Losses of the new run that differs from the original first."""

    @cached_property
    def diverged(self) -> dict[str, NonFinite]:
        """The first NaN or Inf of the original and of the new runs."""
        now = earliest(run.nonfinite for run in self.runs)
        divergences = {"original": self.original.nonfinite, "reproduction": now}
        return {
            name: divergence
            for name, divergence in divergences.items()
            if divergence is not None
        }

    @property
    def run(self) -> StoredRun:
        """The first new run."""
        return self.runs[0]

    @property
    def sentence(self) -> str:
        """Ratio, rates, comparison with the original's runs, and losses in words."""
        parts = [self._speed(), self._place(), self.losses.sentence]
        return " ".join(part for part in parts if part)

    def __str__(self) -> str:
        if not self.differences:
            return f"{self.sentence}\nNo other recorded differences."
        table = difference_table(self.differences, "original", "now")
        return visible(f"{self.sentence}\n\n{table}", lines=True)

    def __repr__(self) -> str:
        return str(self)

    def _speed(self) -> str:
        if self.diverged:
            return f"{no_verdict_sentence(self.diverged)} {self._rates()}".rstrip()
        if self.ratio is not None:
            return f"{self.ratio.sentence} {self._rates()}".rstrip()
        return (
            "No ratio: not every run has images/s above 0 (from steps after the "
            "warm-up, or a logged images_per_second)."
        )

    def _rates(self) -> str:
        rates = [run.summary.images_per_second for run in self.runs]
        known = [rate for rate in rates if rate is not None]
        beside = self.between_runs
        if beside is None or not known:
            return ""
        of_now, of_then = steps_of_rate(self.run), steps_of_rate(self.original)
        now = rates_in_words("reproduction", median(known), len(known), of_now)
        then = rates_in_words("original", beside.median, beside.n, of_then)
        return f"Images/s: {now}; {then}."

    def _place(self) -> str:
        """Say where the first new run is in what is known of the original."""
        now, between = self.run.summary, self.between_runs
        rate, steps = now.images_per_second, self.original.summary
        if rate is None or between is None:
            return ""
        if between.ci_low is not None and between.ci_high is not None:
            return (
                f"Median of the original's {between.n} runs: "
                f"{between.confidence * 100:g}% CI "
                f"[{between.ci_low:,.1f}, {between.ci_high:,.1f}] images/s; the first "
                f"new run ({rate:,.1f}) is "
                f"{_where(rate, between.ci_low, between.ci_high)} this CI."
            )
        text = "The original is a single run, without a CI"
        low, high = steps.images_per_second_q25, steps.images_per_second_q75
        middle = now.images_per_second_median
        if low is None or high is None or middle is None:
            return f"{text}."
        return (
            f"{text}; the quartiles of its steps are {low:,.1f} and {high:,.1f} "
            f"images/s; the median step of the first new run ({middle:,.1f}) is "
            f"{_where(middle, low, high)} that range."
        )


def compare_losses(original: StoredRun, runs: Sequence[StoredRun]) -> LossComparison:
    """Return the losses of the run that departs from the original first."""
    of_original = _losses(original)
    comparisons = [_compare_losses(of_original, run) for run in runs]
    far = 1 + max(of_original, default=0)
    return min(
        comparisons,
        key=lambda comparison: (
            far if comparison.first_step is None else comparison.first_step
        ),
    )


def _compare_losses(
    original: dict[int, float | None], run: StoredRun
) -> LossComparison:
    losses = _losses(run)
    common = sorted(original.keys() & losses.keys())
    first = next((step for step in common if original[step] != losses[step]), None)
    if first is None:
        return LossComparison(run.run_id, len(common), None, None, None)
    return LossComparison(
        run.run_id, len(common), first, original[first], losses[first]
    )


def _losses(run: StoredRun) -> dict[int, float | None]:
    losses: dict[int, float | None] = {}
    for line in run.metrics(None):
        values = line["values"] if line["kind"] == "log" else line
        if line["kind"] in ("step", "log") and "loss" in values:
            losses[line["step"]] = values["loss"]
    return losses


def _where(value: float, low: float, high: float) -> str:
    if value < low:
        return "below"
    return "above" if value > high else "within"


def _number(value: float | None) -> str:
    return "NaN/Inf" if value is None else repr(value)
