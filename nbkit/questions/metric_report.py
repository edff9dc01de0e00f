"""The report of a study that compares its arms by a metric."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial

from nbkit import statistics
from nbkit.errors import DivergedError, NotEnoughDataError
from nbkit.launch.run import Run
from nbkit.questions.any_arms import (
    process_starts,
    shared_conditions,
    table_of_differences,
)
from nbkit.reports.arms import finished_arms
from nbkit.reports.caveats import control_caveats
from nbkit.reports.columns import Column, interval, table
from nbkit.reports.conditions import WELCH, where_and_when
from nbkit.reports.finite_arms import diverged_arms
from nbkit.reports.metric_chart import metric_chart
from nbkit.reports.parts import Figure
from nbkit.reports.renderer import Report
from nbkit.statistics import NoiseFloor, Ratio, Summary
from nbkit.statistics.wording import ci_text
from nbkit.studies.given_up import failed_starts, failures_in_words
from nbkit.studies.metric import Metric
from nbkit.studies.study import Study

_SMALL_DIFFERENCE = 0.01
"""Difference to plan for if a metric has no margin."""

_WORDS = {"faster": "better", "slower": "worse"}


@dataclass(frozen=True)
class MetricRow:
    """Values of the metric for one arm."""

    arm: str
    values: Summary
    ratio: Ratio | None
    """Ratio to the base; None for the base itself."""
    verdict: str


def report(study: Study) -> Report:
    """Return the report of a study by its metric.

    Raises
    ------
    NotEnoughDataError
        If no run has finished, no run of an arm has the metric, or it is never finite.
    """
    metric, by_arm = study.metric, finished_arms(study)
    assert metric is not None
    measured, without, diverged = _measured(metric, by_arm)
    by_arm = {arm: [run for run, _ in pairs] for arm, pairs in measured.items()}
    values = {arm: [value for _, value in pairs] for arm, pairs in measured.items()}
    failed = [*failed_starts(study)]
    failed += [
        failures_in_words(arm, study.repeats, len(values[arm]), why)
        for arm, why in without.items()
    ]
    failed += [
        f"{arm}: not finite in {times} of {times + len(values.get(arm, ()))} runs"
        for arm, times in diverged.items()
    ]
    base, control = study.control or (study.base, None)
    floor = None
    if base in values and control in values:
        floor = statistics.noise_floor(
            values[base], values[control], margin=metric.margin, name=base
        )
    controls = [] if floor is None else [floor]
    # What varies from seed to seed has intervals as wide, unless it has one run.
    is_certain = not metric.is_timed and floor is not None and floor.noise_floor
    suspect = [c for c in controls if c.shows_difference or not is_certain]
    unfair = {*diverged, *diverged_arms(study)}
    rows = metric_rows(metric, values, base, control, floor, unfair)
    facts = {**shared_conditions(by_arm), "study_id": study.study_id}
    of_run = {run.run_id: value for many in measured.values() for run, value in many}
    # `nbkit try` measures a change once.
    is_final = "change" in study.plan
    answer = _answer(metric, rows, base, control, floor, is_final=is_final)
    answer += "".join(f" {note}." for note in failed) + _one_seed(values)
    return Report(
        title=f"{study.name}: {metric.name} by arm",
        answer=answer,
        untimed="" if metric.is_timed or any(control_caveats(suspect)) else answer,
        tables=[
            table(
                f"{metric.name} by arm ({metric.better} is better)",
                _columns(base),
                rows,
                [
                    *_discards(study, values, base, control),
                    *(control.sentence for control in controls),
                ],
            ),
            *([table_of_differences(base, by_arm)] if base in by_arm else []),
            process_starts(
                by_arm,
                Column(metric.name, lambda row: of_run[row[1].run_id], _number),
            ),
        ],
        figures=[Figure(f"{metric.name} by arm", metric_chart(metric, values))],
        method=[
            "One value per process start. Ratios compare medians; CIs use Welch's t on "
            f"logarithms; margin {metric.margin * 100:g}%.",
            where_and_when(facts),
        ],
        sources=[WELCH],
        result={
            "quantity": metric.name,
            "better": metric.better,
            "margin": metric.margin,
            "conditions": facts,
            "base": base,
            "control": control,
            "failed": failed,
            "noise_floor": None if floor is None else floor.noise_floor,
            "rows": [
                {
                    "arm": row.arm,
                    "values": values[row.arm],
                    "verdict": row.verdict,
                    "ratio": None if row.ratio is None else asdict(row.ratio),
                }
                for row in rows
            ],
        },
        controls=suspect,
    )


def _measured(
    metric: Metric, by_arm: Mapping[str, Sequence[Run]]
) -> tuple[dict[str, list[tuple[Run, float]]], dict[str, list[str]], dict[str, int]]:
    """Return runs with their metric by arm, why others have none, how many diverged.

    Raises
    ------
    NotEnoughDataError
        If no run of an arm has recorded it, or none of any arm is finite.
    """
    measured: dict[str, list[tuple[Run, float]]] = {}
    without: dict[str, list[str]] = {}
    diverged: dict[str, int] = {}
    for arm, runs in by_arm.items():
        errors = []
        for run in runs:
            try:
                value = metric.value(run)
            except DivergedError:
                diverged[arm] = diverged.get(arm, 0) + 1
            except NotEnoughDataError as error:
                errors.append(error)
            else:
                measured.setdefault(arm, []).append((run, value))
        if errors and arm not in measured:
            raise errors[0]
        if errors:
            without[arm] = [str(error) for error in errors]
    if not measured:
        message = (
            f"metric {metric.name!r} is not finite in any run. Fix the training script "
            "or its settings."
        )
        raise NotEnoughDataError(message)
    return measured, without, diverged


def metric_rows(
    metric: Metric,
    values: Mapping[str, Sequence[float]],
    base: str,
    control: str | None = None,
    floor: NoiseFloor | None = None,
    diverged: Collection[str] = (),
) -> list[MetricRow]:
    """Return summary, ratio to the base and verdict of every arm.

    If runs of an arm ``diverged``, the remaining runs overestimate the arm.
    """

    def verdict(arm: str) -> str:
        of_both = values[arm], values[base]
        is_worse = metric.floors_worse(*of_both, values.get(control or "", ()))
        of_arm = _verdict(*of_both, ratios[arm])
        if is_worse is not None and of_arm != "withheld":
            of_arm = "worse"
        flattered = {"better": arm, "worse": base}.get(of_arm)
        return "withheld" if flattered in diverged else of_arm

    compare = {
        arm: partial(
            statistics.ratio,
            of_arm,
            values[base],
            margin=metric.margin,
            minimum_runs=metric.minimum_runs,
            higher_is_faster=metric.better == "higher",
            a_name=arm,
            b_name=base,
            noise_floor=floor,
        )
        for arm, of_arm in values.items()
        if arm not in (base, control) and base in values
    }
    ratios = dict(zip(compare, statistics.holm(list(compare.values())), strict=True))
    others = {control: "control", base: "base"}
    return [
        MetricRow(
            arm,
            statistics.summarise(of_arm),
            ratios.get(arm),
            verdict(arm) if arm in ratios else others.get(arm, "withheld"),
        )
        for arm, of_arm in values.items()
    ]


def _verdict(
    values: Sequence[float],
    base_values: Sequence[float],
    ratio: Ratio,
) -> str:
    if ratio.n_a > 1 and len({*values}) == len({*base_values}) == 1:
        same = "no difference shown" if values[0] == base_values[0] else "withheld"
        return "not enough runs" if ratio.verdict == "not enough runs" else same
    return _WORDS.get(ratio.verdict, ratio.verdict)


def _answer(
    metric: Metric,
    rows: Sequence[MetricRow],
    base: str,
    control: str | None,
    floor: NoiseFloor | None,
    *,
    is_final: bool,
) -> str:
    compared = [row for row in rows if row.ratio is not None]
    of_base = [row.values for row in rows if row.arm == base]
    if not compared or not of_base:
        return " ".join(
            f"{row.arm}: {metric.name} {_number(row.values.median)}, n={row.values.n}."
            for row in rows
            if row.arm != control
        )
    sign = 1 if metric.better == "lower" else -1
    rank = {"better": 0, "no difference shown": 1, "worse": 1}
    row = min(
        compared, key=lambda row: (rank.get(row.verdict, 2), sign * row.values.median)
    )
    ratio, noise = row.ratio, ""
    assert ratio is not None
    if floor is not None and floor.noise_floor is not None:
        noise = f" A/A noise floor {floor.noise_floor * 100:.2g}%."
    size = f"{ratio.n_a}" if ratio.n_a == ratio.n_b else f"{ratio.n_a} and {ratio.n_b}"
    interval = "no interval"
    if ratio.ci_low is not None and ratio.ci_high is not None:
        interval = ci_text(ratio.ci_low, ratio.ci_high, shown="{:.4f}".format)
    numbers = (
        f"{metric.name} {_number(row.values.median)} vs. {_number(of_base[0].median)}, "
        f"{ratio.estimate:.4f}x ({interval}, n={size})"
    )
    first = {
        "better": f"{row.arm} is better than {base}: {numbers}.",
        "worse": f"{row.arm} is worse than {base}: {numbers}.",
        "no difference shown": f"No difference shown: {row.arm} / {base}: {numbers}.",
        "not enough runs": (
            f"{row.arm} / {base}: {numbers}. Not enough runs for a verdict "
            f"({metric.minimum_runs} per arm needed)."
        ),
        "withheld": f"Verdict withheld: {row.arm} / {base}: {numbers}.",
    }[row.verdict]
    decided = [row for row in compared if row.verdict != "not enough runs"] or compared
    many = f" Best of {len(decided)} arms." if len(decided) > 1 else ""
    if row.verdict != "no difference shown" or is_final:
        return first + many + noise
    return first + many + noise + _starts_needed(metric, ratio, floor)


def _starts_needed(metric: Metric, ratio: Ratio, floor: NoiseFloor | None) -> str:
    """Return how many starts per arm decide on a small difference, in words."""
    margin = metric.margin or _SMALL_DIFFERENCE
    needed = statistics.runs_needed(
        ratio.a_runs,
        ratio.b_runs,
        margin=margin,
        confidence=ratio.verdict_confidence,
        noise_floor=floor,
    )
    if needed.runs is None or not needed.more:
        return ""
    more = needed.runs - min(ratio.n_a, ratio.n_b)
    return (
        f" {needed.runs} starts per arm ({more} more) would allow a verdict "
        f"on a difference of {margin * 100:g}%."
    )


def _discards(
    study: Study,
    values: Mapping[str, Sequence[float]],
    base: str,
    control: str | None,
) -> list[str]:
    """Return which arms were ended early, and why."""
    metric, started = study.metric, study.runs_by_arm(diverged=True)
    assert metric is not None
    floors = {
        arm: metric.floors_worse(
            of_arm, values.get(base, ()), values.get(control or "", ())
        )
        for arm, of_arm in values.items()
        if arm not in (base, control) and len(started[arm]) < study.repeats
    }
    return [
        f"{arm}: discarded, worse than {base} by {by:.0f} noise floors (limit "
        f"{metric.discard_floors:g})."
        for arm, by in floors.items()
        if by is not None
    ]


def _one_seed(values: Mapping[str, Sequence[float]]) -> str:
    """Return what to do about arms whose runs all have one value; empty for none."""
    same = [arm for arm, many in values.items() if len(many) > 1 and len({*many}) == 1]
    if not same:
        return ""
    return (
        f" No run-to-run scatter in {', '.join(same)}. Vary the seed: pass "
        "--seed {repeat} to a script that has this option, or use "
        "int(os.environ['STUDY_REPEAT'])."
    )


def _columns(base: str) -> list[Column]:
    return [
        Column("arm", "arm"),
        Column("median", "values.median", _number, "median"),
        Column("95% CI", "values", interval("{:.4g}".format)),
        Column("n", "values.n", str, "runs"),
        Column(f"/ {base}", "ratio.estimate", "{:.4f}".format, "ratio"),
        Column("95% CI", "ratio", interval("{:.4f}".format)),
        Column("verdict", "verdict"),
    ]


def _number(value: float) -> str:
    return f"{value:,.4g}"
