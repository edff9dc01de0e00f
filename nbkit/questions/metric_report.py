"""The report of a study that compares its arms by a metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial

from nbkit import statistics
from nbkit.questions.any_arms import (
    process_starts,
    shared_conditions,
    table_of_differences,
)
from nbkit.reports.arms import finished_arms
from nbkit.reports.columns import Column, interval, table
from nbkit.reports.conditions import WELCH, where_and_when
from nbkit.reports.metric_chart import metric_chart
from nbkit.reports.parts import Figure
from nbkit.reports.renderer import Report
from nbkit.statistics import NoiseFloor, Ratio, Summary
from nbkit.statistics.wording import ci_text
from nbkit.studies.metric import Metric
from nbkit.studies.study import Study

_WORDS = {"faster": "better", "slower": "worse"}


@dataclass(frozen=True)
class MetricRow:
    """What the runs of one arm show of the metric."""

    arm: str
    values: Summary
    ratio: Ratio | None
    """To the base; None for the base itself."""
    verdict: str


def report(study: Study) -> Report:
    """Return the report of a study by its metric.

    Raises
    ------
    NotEnoughDataError
        If no run of an arm has finished, or a run has no such metric.
    """
    metric, by_arm = study.metric, finished_arms(study)
    assert metric is not None
    values = {arm: [metric.value(run) for run in runs] for arm, runs in by_arm.items()}
    base, control = study.control or (next(iter(values)), None)
    floor = None
    if base in values and control in values:
        floor = statistics.noise_floor(
            values[base], values[control], margin=metric.margin, name=base
        )
    rows = _rows(metric, values, base, control, floor)
    facts = {**shared_conditions(by_arm), "study_id": study.study_id}
    answer = _answer(metric, rows, base, control, floor)
    return Report(
        title=f"{study.name}: {metric.name} by arm",
        answer=answer,
        untimed="" if metric.is_timed else answer,
        tables=[
            table(
                f"{metric.name} by arm ({metric.better} is better)",
                _columns(base),
                rows,
                _notes(values, floor),
            ),
            table_of_differences(base, by_arm),
            process_starts(
                by_arm, Column(metric.name, lambda row: metric.value(row[1]), _number)
            ),
        ],
        figures=[Figure(f"{metric.name} by arm", metric_chart(metric, values))],
        method=[
            f"One value per process start. Ratios are of medians, with Welch's t on "
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
        controls=[] if floor is None else [floor],
    )


def _rows(
    metric: Metric,
    values: Mapping[str, Sequence[float]],
    base: str,
    control: str | None,
    floor: NoiseFloor | None,
) -> list[MetricRow]:
    compare = {
        arm: partial(
            statistics.ratio,
            of_arm,
            values[base],
            margin=metric.margin,
            higher_is_faster=metric.better == "higher",
            a_name=arm,
            b_name=base,
            noise_floor=floor,
        )
        for arm, of_arm in values.items()
        if arm not in (base, control) and base in values
    }
    ratios = dict(zip(compare, statistics.holm(list(compare.values())), strict=True))
    return [
        MetricRow(
            arm,
            statistics.summarise(of_arm),
            ratios.get(arm),
            _verdict(of_arm, values.get(base, ()), ratios.get(arm))
            if arm in ratios
            else "base"
            if arm == base
            else "control",
        )
        for arm, of_arm in values.items()
    ]


def _verdict(
    values: Sequence[float], base_values: Sequence[float], ratio: Ratio | None
) -> str:
    assert ratio is not None
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
) -> str:
    compared = [row for row in rows if row.ratio is not None]
    of_base = [row.values for row in rows if row.arm == base]
    if not compared or not of_base:
        return " ".join(
            f"{row.arm}: {metric.name} {_number(row.values.median)}, n={row.values.n}."
            for row in rows
            if row.arm != control
        )
    best = min if metric.better == "lower" else max
    row = best(compared, key=lambda row: row.values.median)
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
            f"Not enough starts for a verdict ({statistics.MINIMUM_RUNS} per arm "
            f"needed): {row.arm} / {base}: {numbers}."
        ),
        "withheld": f"Verdict withheld: {row.arm} / {base}: {numbers}.",
    }[row.verdict]
    many = f" Best of {len(compared)} arms." if len(compared) > 1 else ""
    return first + many + noise


def _notes(
    values: Mapping[str, Sequence[float]], floor: NoiseFloor | None
) -> list[str]:
    same = [arm for arm, many in values.items() if len(many) > 1 and len({*many}) == 1]
    notes = [] if floor is None else [floor.sentence]
    if same:
        notes.append(
            f"All starts of {', '.join(same)} gave the same value, so run-to-run noise "
            "is unknown. Vary the seed by start: int(os.environ['STUDY_REPEAT'])."
        )
    return notes


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
