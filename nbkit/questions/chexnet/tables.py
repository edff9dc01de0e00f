"""Tables of the chexnet report: labels, one device against several, baseline, rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nbkit.questions.chexnet.areas import Estimate, LabelFinding
from nbkit.questions.chexnet.literature import PublishedAreas
from nbkit.reports.arm_tables import each_run, rate_interval, ratio_interval
from nbkit.reports.parts import Table
from nbkit.statistics import MINIMUM_RUNS, Ratio, Summary, summarise
from nbkit.statistics import quantities as wording

_ONE_IN_TWENTY = "Among many labels one in twenty intervals misses its value."


def interval_text(found: Estimate | None, shown: str = "{:.3f}") -> str | None:
    """Return an interval of AUROCs, such as ``0.701 to 0.755``; None without one."""
    if found is None or found.low is None or found.high is None:
        return None
    return f"{shown.format(found.low)} to {shown.format(found.high)}"


def difference_text(found: Estimate) -> str:
    """Return a difference with its interval, such as ``+0.012 (-0.003 to +0.027)``."""
    interval = interval_text(found, "{:+.3f}") or "no interval"
    return f"{found.value:+.3f} (95 % {interval})"


def areas_table(
    findings: Sequence[LabelFinding], trainings: int, notes: Sequence[str]
) -> Table:
    """Return the headline: every label's AUROC beside that of global statistics."""
    several = "" if trainings == 1 else f", mean of {trainings} trainings"
    has_patients = any(one.patients is not None for one in findings)
    return Table(
        f"AUROC of the network on 1 device{several}, beside 12 global statistics",
        [
            *("label", "images with it", *["patients"] * has_patients),
            *("network", "95 % interval"),
            *("12 statistics", "95 % interval", "network less statistics", "finding"),
        ],
        [
            [
                one.label,
                None if one.positives is None else f"{one.positives:,}",
                *[None if one.patients is None else f"{one.patients:,}"] * has_patients,
                _area(one.single),
                interval_text(one.single),
                _area(one.baseline),
                interval_text(one.baseline),
                None if one.gain is None else _signed(one.gain),
                one.doubt or one.above_baseline,
            ]
            for one in findings
        ],
        [*notes, _ONE_IN_TWENTY],
        {
            "network_auroc": _values(one.single for one in findings),
            "network_low": [_end(one.single, "low") for one in findings],
            "network_high": [_end(one.single, "high") for one in findings],
            "statistics_auroc": _values(one.baseline for one in findings),
            "gain": _values(one.gain for one in findings),
            "gain_low": [_end(one.gain, "low") for one in findings],
            "gain_high": [_end(one.gain, "high") for one in findings],
        },
    )


def same_table(
    findings: Sequence[LabelFinding], gpus: int, margin: float, trainings: int
) -> Table:
    """Return whether several devices arrive where one does, at equal global batches."""
    return Table(
        f"Does training on {gpus} devices arrive at the same AUROC?",
        [
            *("label", "1 device", f"{gpus} devices", "12 statistics"),
            *("difference of devices", "95 %", "verdict"),
        ],
        [
            [
                one.label,
                _area(one.paired),
                _area(one.parallel),
                _area(one.baseline),
                None if one.difference is None else f"{one.difference.value:+.3f}",
                interval_text(one.difference, "{:+.3f}"),
                one.doubt or _same(one, margin),
            ]
            for one in findings
        ],
        [
            f"Pairs of trainings with the same seed, {trainings} of them: the same "
            "first weights, the same images in the same global batches. What differs "
            "is the sum of gradients, and the images that batch normalisation sees. "
            f"'Same within {margin:g}' needs the whole interval there and "
            f"{MINIMUM_RUNS} pairs; all else is not resolved, which does not show a "
            f"difference. {_ONE_IN_TWENTY}",
        ],
        {
            "difference": _values(one.difference for one in findings),
            "difference_low": [_end(one.difference, "low") for one in findings],
            "difference_high": [_end(one.difference, "high") for one in findings],
        },
    )


def trainings_table(
    rows: Sequence[tuple[str, float | None, float | None]], baseline: float | None
) -> Table:
    """Return each training's own mean AUROC."""
    statistics = None if baseline is None else f"{baseline:.4f}"
    return Table(
        "Every training by itself",
        ["training", "mean AUROC", "12 statistics", "images/s"],
        [
            [
                name,
                None if area is None else f"{area:.4f}",
                statistics,
                None if rate is None else wording.rate(rate),
            ]
            for name, area, rate in rows
        ],
        ["At the last evaluation, over the labels of the mean above."],
        {
            "mean_auroc": [area for _, area, _ in rows],
            "statistics_auroc": [baseline for _ in rows],
            "images_per_second": [rate for _, _, rate in rows],
        },
    )


def rates_table(
    runs: Mapping[str, Sequence[float]], ratio: Ratio | None, functional: bool
) -> Table:
    """Return images per second on one device and on several."""
    rates = {arm: summarise(many) if many else None for arm, many in runs.items()}
    where = "with CPU processes (functional)" if functional else "on GPUs"
    speed = None if ratio is None else f"{ratio.estimate:.2f} x"
    interval = None if ratio is None else ratio_interval(ratio.ci_low, ratio.ci_high)
    first = next(iter(rates))
    return Table(
        f"A side note: training throughput {where}",
        ["arm", "images/s", "95 % interval (runs)", "speed-up", "95 % interval"],
        [
            [
                arm,
                None if rate is None else wording.rate(rate.median),
                None if rate is None else _rate_interval(rate),
                "baseline" if arm == first else speed,
                None if arm == first else interval,
            ]
            for arm, rate in rates.items()
        ],
        [
            "The global batch is the same, so each of several devices has less to do.",
            *each_run(runs),
        ],
        {"images_per_second": [rate and rate.median for rate in rates.values()]},
    )


def published_table(
    findings: Sequence[LabelFinding], published: Sequence[PublishedAreas]
) -> Table:
    """Return published results of these labels, beside what is measured."""
    return Table(
        "Published by others: AUROC of ChestX-ray14",
        [
            *("label", "measured here", "12 statistics, here"),
            *(one.publisher for one in published),
        ],
        [
            [
                one.label,
                _area(one.single),
                _area(one.baseline),
                *(_published(paper, one.label) for paper in published),
            ]
            for one in findings
            if one.positives is not None
        ],
        [
            "One number each, without an interval, of other splits of all 112,120 "
            "images: context, not a comparison. They are taken from the table of "
            f"{published[0].table_url}."
        ],
        {
            one.publisher: [
                one.areas.get(row.label)
                for row in findings
                if row.positives is not None
            ]
            for one in published
        },
    )


def _published(paper: PublishedAreas, label: str) -> str | None:
    area = paper.areas.get(label)
    return None if area is None else f"{area:.3f}"


def _area(found: Estimate | None) -> str | None:
    return None if found is None else f"{found.value:.3f}"


def _signed(found: Estimate) -> str:
    interval = interval_text(found, "{:+.3f}")
    return f"{found.value:+.3f}" + (f" ({interval})" if interval else "")


def _same(one: LabelFinding, margin: float) -> str | None:
    found = one.same_within(margin)
    return f"same within {margin:g}" if found == "same" else found


def _rate_interval(rate: Summary) -> str:
    interval = rate_interval(rate.ci_low, rate.ci_high)
    return f"{interval or wording.UNKNOWN} ({rate.n})"


def _values(found: Any) -> list[float | None]:
    return [None if one is None else one.value for one in found]


def _end(found: Estimate | None, end: str) -> float | None:
    return None if found is None else getattr(found, end)
