"""Comparison of a study's arms: rows, control, verdicts, certainty.

An arm is one configuration, measured in several process starts. Each start is one
number, its images over time; medians, intervals and verdicts are those
of `nbkit.statistics`. An arm that is measured twice (`Study.create` with ``control``)
says how large a difference these runs could have shown by chance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from operator import attrgetter
from statistics import fmean
from typing import Any, TypeAlias, TypeVar

from nbkit import statistics
from nbkit.errors import NotEnoughDataError
from nbkit.launch.run import Run
from nbkit.reports.arm_rows import COSTS, ArmRow, ArmRun, arm_run
from nbkit.reports.arm_tables import (
    each_run,
    headline_columns,
    held_together,
    input_bound,
    lone_sentence,
    needed_runs,
    ratio_text,
)
from nbkit.reports.columns import Column, interval_text, table
from nbkit.reports.finite_arms import diverged_arms
from nbkit.reports.parts import Table
from nbkit.review.usable_arms import NOTHING_COMPARED, usable_arms
from nbkit.statistics import MINIMUM_RUNS, NoiseFloor, Ratio, median_of
from nbkit.store.nonfinite import NonFinite
from nbkit.studies.durations import run_span
from nbkit.studies.stored_study import StoredStudy

ENOUGH = "enough for every difference"
"""Repeats that a table need not mention."""

_MOST_APART = 0.125
"""Of the time of two arms: how far apart they may be. A linear drift over that time
adds this part of it to their difference. In balanced order it is at most 0.04."""

Spans: TypeAlias = Mapping[str | None, tuple[float, float]]
"""Start and end of each repeat."""
Compared = TypeVar("Compared")


@dataclass(frozen=True)
class Arms:
    """The arms of a study compared with its baseline."""

    runs: Mapping[str, Sequence[ArmRun]]
    baseline: str
    control: str | None = None
    """The A/A control of the baseline."""
    diverged: Mapping[str, NonFinite] = field(default_factory=dict)
    comparisons: int | None = None
    """How many share the error rate, where a report has verdicts on more than these."""
    confidence: float = 0.95

    @cached_property
    def usable(self) -> list[str]:
        """The arms that may get a verdict."""
        compared_with = (self.baseline, self.control)
        return usable_arms(self.runs, self.diverged, compared_with)

    @property
    def is_functional(self) -> bool:
        """Whether all runs used CPUs, so that the results do not apply to GPUs."""
        kinds = {run.device_type for runs in self.runs.values() for run in runs}
        return kinds == {"cpu"}

    @cached_property
    def noise_floor(self) -> NoiseFloor | None:
        """Noise floor from the A/A control; None without a control."""
        first = self.rates(self.baseline)
        second = [] if self.control is None else self.rates(self.control)
        if not first or not second or self.baseline not in self.usable:
            return None
        return statistics.noise_floor(first, second, name=self.baseline)

    @property
    def controls(self) -> list[NoiseFloor]:
        """The noise floor, in a list; empty without one."""
        return [] if self.noise_floor is None else [self.noise_floor]

    @cached_property
    def rows(self) -> list[ArmRow]:
        """One for each arm, in the plan's order."""
        return [self._row(arm, runs) for arm, runs in self.runs.items()]

    def row(self, arm: str) -> ArmRow:
        """Return the row of an arm."""
        for row in self.rows:
            if row.arm == arm:
                return row
        message = f"Arm {arm!r} has no finished run. Call run() of the study."
        raise NotEnoughDataError(message)

    def require_rate(self) -> None:
        """Check that every run of the baseline has a rate."""
        if self.row(self.baseline).images_per_second is None:
            message = (
                f"Baseline {self.baseline!r} has a run without measured steps. Use "
                "more steps, or a smaller batch for a small data set."
            )
            raise NotEnoughDataError(message)

    @property
    def sentence(self) -> str:
        """The fastest arm compared with the baseline, or the rate of a single arm."""
        ratios = {row.arm: row.ratio for row in self._compared() if row.ratio}
        if ratios:
            decided = with_enough_runs(ratios, lambda arm: ratios[arm])
            arm = max(decided, key=lambda arm: ratios[arm].estimate)
            best, floor = ratios[arm], self.noise_floor
            if floor is not None and floor.covers(best):
                text = not_beyond(floor, self.baseline, len(decided) < len(ratios))
                text = text if self.is_functional else f"N{text[1:]}"
            else:
                text = f"{arm}: {ratio_text(best, self.baseline)}"
                text += f"{best_of(len(decided))}."
        else:
            if self.baseline not in self.usable:
                return NOTHING_COMPARED if self.is_comparison else ""
            text = lone_sentence(self.row(self.baseline), self.rates(self.baseline))
        return f"CPU smoke test: {text}" if self.is_functional else text

    @property
    def control_sentence(self) -> str:
        """The noise floor in words, or why there is none; empty for a single arm."""
        if self.noise_floor is not None:
            return self.noise_floor.sentence
        if self.baseline not in self.usable:
            return ""
        if self.control is not None:
            without = self.control if self.rates(self.baseline) else self.baseline
            return f"A/A control: {without} has no images/s."
        if not self._compared():
            return ""
        return "No A/A control: run-to-run noise is unknown."

    @property
    def needed_sentence(self) -> str:
        """Estimated number and duration of additional repeats for a verdict.

        Empty without a comparison, or if the control shows that more repeats would not
        help.
        """
        compared = [row for row in self._compared() if row.ratio is not None]
        distrusted = self.noise_floor is not None and self.noise_floor.shows_difference
        if not compared or distrusted:
            return ""
        needs = [row.needed for row in compared if row.needed is not None]
        done = min(row.n for row in self.rows if row.arm not in self.diverged)
        if len(needs) < len(compared):
            return "Repeats for a verdict: an estimate requires n=2."
        open_needs = [
            need.runs for need in needs if need.runs is not None and need.more
        ]
        repeats = max([done, *open_needs])
        parts = []
        if repeats > done:
            parts.append(
                f"{repeats} for {needs[0].power * 100:g}% power, estimated from n="
                f"{done}: {repeats - done} more{self._time(repeats - done)}"
            )
        hidden = [row.arm for row in compared if row.ratio and row.ratio.is_noise]
        if hidden:
            parts.append(
                f"more repeats of the control (difference of {'; '.join(hidden)} "
                "within the noise floor)"
            )
        endless = [
            row.arm
            for row, need in zip(compared, needs, strict=True)
            if need.runs is None and row.arm not in hidden
        ]
        if endless:
            parts.append(
                f"more than {needs[0].largest} for {'; '.join(endless)} (difference "
                "close to the practical margin, or small relative to noise)"
            )
        return f"Repeats for a verdict: {'; '.join(parts) or ENOUGH}."

    def table(
        self,
        caption: str | None = None,
        more: Mapping[str, Mapping[str, str | None]] | None = None,
        notes: Sequence[str] = (),
    ) -> Table:
        """Return the headline: every arm with interval, verdict and costs."""
        where = "CPU smoke test" if self.is_functional else "GPU"
        waits = [(row.arm, row.data_wait_share) for row in self.rows]
        own = [self.needed_sentence, *input_bound(waits)]
        own += each_run({arm: self.rates(arm) for arm in self.runs})
        return table(
            caption or f"Throughput ({where}), relative to {self.baseline}",
            headline_columns(self._verdict, more or {}),
            self.rows,
            [*(note for note in own if note and ENOUGH not in note), *notes],
        )

    @property
    def certainty(self) -> Table:
        """The bootstrap CI of every ratio, and how many runs a verdict needs."""
        return table(
            f"Ratios to {self.baseline}: bootstrap cross-check",
            (
                Column("arm", "arm"),
                Column("ratio", "ratio.estimate", "{:.3f}".format),
                Column("bootstrap 95% CI", "ratio", _bootstrap),
                Column(
                    "needed for a verdict", lambda r: needed_runs(r.needed, r.ratio)
                ),
            ),
            [row for row in self.rows if row.ratio is not None],
            [
                "Bootstrap over runs (fixed seed); the CI is too narrow for few runs.",
                *held_together([row.ratio for row in self._compared() if row.ratio]),
            ],
        )

    def to_dict(self) -> dict[str, Any]:
        """Return rows, control and needed repeats as JSON values."""
        floor = self.noise_floor
        return {
            "is_smoke_test": self.is_functional,
            "baseline": self.baseline,
            "control": self.control,
            "noise_floor": None if floor is None else asdict(floor),
            "rows": [asdict(row) for row in self.rows],
            "needed": self.needed_sentence or None,
        }

    @cached_property
    def _ratios(self) -> dict[str, Ratio]:
        """By arm, its rate over the baseline's; the verdicts hold together."""
        base = self.rates(self.baseline)
        compare = {
            arm: partial(
                statistics.ratio,
                rates,
                base,
                confidence=self.confidence,
                a_name=arm,
                b_name=self.baseline,
                noise_floor=self.noise_floor,
            )
            for arm in self.runs
            if arm != self.baseline and arm in self.usable
            if base and (rates := self.rates(arm))
        }
        # What the control shows is the noise floor, not a verdict.
        twin = compare.pop(self.control, None) if self.control else None
        shared = self.comparisons or statistics.comparisons_at_once(
            lambda shared: [compute(comparisons=shared) for compute in compare.values()]
        )
        ratios = {arm: compute(comparisons=shared) for arm, compute in compare.items()}
        return ratios if twin is None else {**ratios, str(self.control): twin()}

    @property
    def verdicts(self) -> list[Ratio]:
        """On every arm but the baseline and its control."""
        return [ratio for arm, ratio in self._ratios.items() if arm != self.control]

    def settled(self, looks: int) -> set[str]:
        """Return the arms with a settled verdict, corrected for repeated checks.

        Each check gets an equal share of the error rate (Bonferroni correction).
        """
        strict = replace(self, confidence=1 - (1 - self.confidence) / looks)
        ratios = strict._ratios.items()
        return {arm for arm, ratio in ratios if ratio.is_settled} - {self.control}

    def _row(self, arm: str, runs: Sequence[ArmRun]) -> ArmRow:
        rates, base = self.rates(arm), self.rates(self.baseline)
        ratio, needed = self._ratios.get(arm), None
        if ratio and arm != self.control and min(len(rates), len(base)) > 1:
            needed = statistics.runs_needed(
                rates,
                base,
                confidence=ratio.verdict_confidence,
                noise_floor=self.noise_floor,
            )
        return ArmRow(
            arm=arm,
            n=len(runs),
            images_per_second=statistics.summarise(rates) if rates else None,
            ratio=ratio,
            needed=needed,
            **{name: median_of(runs, attrgetter(name)) for name in COSTS},
        )

    def rates(self, arm: str) -> list[float]:
        """Return images/s of an arm's runs; empty if a run has no rate."""
        runs = self.runs.get(arm, [])
        return statistics.all_known(run.images_per_second for run in runs)

    def _compared(self) -> list[ArmRow]:
        """Return the arms that are neither the baseline nor its control."""
        own = (self.baseline, self.control)
        return [row for row in self.rows if row.arm not in own]

    def _verdict(self, row: ArmRow) -> str | None:
        if row.arm in self.diverged:
            return str(self.diverged[row.arm])
        if row.arm == self.baseline:
            return "baseline"
        if row.arm == self.control:
            # The noise floor says what it shows.
            return "control"
        return None if row.ratio is None else row.ratio.verdict

    @property
    def is_comparison(self) -> bool:
        """Whether there are arms other than the baseline and its control."""
        return bool(self._compared())

    def _time(self, repeats: int) -> str:
        """Return how long further repeats of all arms take, in brackets."""
        seconds = statistics.all_known(row.seconds for row in self.rows)
        if not seconds:
            return ""
        return f" (about {statistics.duration_in_words(repeats * sum(seconds))})"


def _bootstrap(ratio: Ratio) -> str | None:
    return interval_text(ratio.bootstrap_low, ratio.bootstrap_high)


def finished_arms(study: StoredStudy) -> dict[str, list[Run]]:
    """Return the finished runs of every arm that has one.

    What a study measures only once (``unrepeated``) is not an arm.
    """
    unrepeated = study.unrepeated
    arms = {
        arm: runs
        for arm, runs in study.runs_by_arm().items()
        if runs and arm not in unrepeated
    }
    if not arms:
        message = (
            f"No arm of study {study.study_id} has a finished run. Call run() first."
        )
        raise NotEnoughDataError(message)
    return arms


def arms_of(study: StoredStudy) -> Arms:
    """Return the arms of a study, from the store alone.

    The baseline is the arm with an A/A control; without a control, the first arm with a
    run. Configurations that a study runs once (``unrepeated``) are not arms.
    """
    runs = {
        arm: [arm_run(run) for run in finished]
        for arm, finished in finished_arms(study).items()
    }
    first, twin = study.control or (next(iter(runs)), None)
    require_runs(study, first, runs)
    return Arms(runs, first, twin, diverged_arms(study))


def require_runs(
    study: StoredStudy, baseline: str, runs: Mapping[str, Sequence[object]]
) -> None:
    """Check that the baseline has a finished run."""
    if baseline not in runs:
        message = (
            f"Baseline {baseline!r} of study {study.study_id} has no finished run. "
            "Resume the study with resume()."
        )
        raise NotEnoughDataError(message)


def settled_arms(study: StoredStudy) -> set[str]:
    """Return the arms of a running study with a settled verdict.

    Verdicts are checked before each repeat once there are enough runs, and at the end.
    """
    with suppress(NotEnoughDataError):  # the baseline may have diverged
        return arms_of(study).settled(study.repeats - MINIMUM_RUNS + 1)
    return set()


def apart_sentence(study: StoredStudy) -> str:
    """Return which arms were not interleaved with the baseline, in words.

    Only arms with enough runs for a verdict on a time or rate, such as after `resume`.
    """
    if study.parallel != 1 or (study.metric and not study.metric.is_timed):
        return ""
    spans = {
        arm: {
            (run.record.get("tags") or {}).get("repeat"): (
                span[0].timestamp(),
                span[1].timestamp(),
            )
            for run in runs
            if (span := run_span(run.record))
        }
        for arm, runs in study.runs_by_arm().items()
    }
    base = spans.pop(study.base, {})
    apart = [
        arm
        for arm, of_arm in spans.items()
        if min(len(base), len(of_arm)) >= MINIMUM_RUNS
        and _displacement(base, of_arm) > _MOST_APART
    ]
    if not apart:
        return ""
    return (
        f"Not interleaved with {study.base}: {'; '.join(apart)}. Differences include "
        "any drift between these runs, which the A/A control does not cover."
    )


def _displacement(base: Spans, arm: Spans) -> float:
    """Return how far apart repeats are on average, as a part of the time of both."""
    both = [*base.values(), *arm.values()]
    total = max(end for _, end in both) - min(begin for begin, _ in both)
    between = [sum(arm[n]) / 2 - sum(base[n]) / 2 for n in base if n in arm]
    return abs(fmean(between)) / total if between else 1.0


def not_beyond(floor: NoiseFloor, baseline: str, lacks_runs: bool) -> str:
    """Return the conclusion if the control differed by as much as any arm.

    If some arm ``lacks_runs`` for a verdict, it holds for the others.
    """
    return (
        f"no arm{' with enough runs' * lacks_runs} is faster than {baseline} by more "
        f"than the A/A control differs ({floor.difference})."
    )


def with_enough_runs(
    arms: Iterable[Compared], ratio: Callable[[Compared], Ratio | None]
) -> list[Compared]:
    """Return the arms with enough runs for a verdict; all, if none has them."""
    every = list(arms)
    ratios = [ratio(arm) for arm in every]
    enough = [
        arm
        for arm, of_arm in zip(every, ratios, strict=True)
        if of_arm and of_arm.verdict != "not enough runs"
    ]
    return enough or every


def best_of(arms: int) -> str:
    """Return the caveat on the fastest of several arms.

    The largest of several estimates is biased upwards.
    """
    if arms < 2:
        return ""
    return f" (best of {arms}; CI not corrected for selection)"
