"""Tables of the scaling report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from nbkit.questions.scaling.projection import Outlook
from nbkit.questions.scaling.throughput import ScalingRow
from nbkit.references.rows import PublishedRow
from nbkit.reports.arm_tables import each_run, input_bound
from nbkit.reports.columns import Column, ends, interval_text, number, rate, table
from nbkit.reports.parts import Table
from nbkit.statistics import Ratio, runs_needed
from nbkit.statistics import quantities as wording
from nbkit.statistics.comparison import efficiency
from nbkit.statistics.quantities import RATE_INTERVAL, RATE_STATISTIC

_CERTAINTY_NOTE = (
    "Each run is one observation; Welch's t uses the logarithms of the rates. The "
    "bootstrap is a cross-check; its CI is too narrow for few runs."
)


def headline_table(
    rows: Sequence[ScalingRow], references: Sequence[str], *, is_cpu: bool
) -> Table:
    """Return every measured size."""
    device = "process" if is_cpu else "GPU"
    spans_nodes = any(row.nnodes > 1 for row in rows)
    named = {f"{row.arm} on {row.devices}": row for row in rows}
    per_device, rates = "images_per_second_per_device", "images_per_second"
    return table(
        f"Measured throughput{' (CPU smoke test)' if is_cpu else ''}",
        [
            Column("precision", "arm"),
            Column("processes" if is_cpu else "GPUs", "label"),
            *rate("images/s", "95% CI (n)", rates, rates, n=f"{rates}.n"),
            *ends(rates, rates),
            Column(None, f"{rates}.n", csv="runs"),
            Column(f"per {device}", per_device, wording.rate),
            Column("efficiency", lambda row: wording.percent(_judged(row))),
            Column(None, _judged, csv="efficiency_estimate"),
            *map(_of_finite, ("efficiency_low", "efficiency_high")),
            _of_finite("node_efficiency", "vs. one node" if spans_nodes else None),
            *map(_of_finite, ("node_efficiency_low", "node_efficiency_high")),
            *(number(None, name) for name in ("world_size", "nnodes", per_device)),
            number("data wait", "data_wait_share", wording.percent),
            number("communication", "communication_share", wording.percent),
            number(f"memory per {device}", "peak_memory_bytes", wording.size),
            number("CPU ms/image", "cpu_ms_per_image", "{:.2f}".format),
        ],
        rows,
        [
            *references,
            *input_bound([(name, row.data_wait_share) for name, row in named.items()]),
            *each_run({name: row.runs for name, row in named.items()}),
        ],
    )


def _judged(row: ScalingRow) -> float | None:
    return row.efficiency if row.is_valid else None


def _of_finite(name: str, title: str | None = None) -> Column:
    """Return a column without what belongs to trainings that were not finite."""

    def value(row: ScalingRow) -> float | None:
        return getattr(row, name) if row.is_valid else None

    return Column(title, value, wording.percent, name)


def certainty_table(
    rows: Sequence[ScalingRow], ratios: Sequence[Ratio], *, is_cpu: bool
) -> Table:
    """Return CIs of the efficiencies, and the runs that ratios of arms need."""
    columns = (
        Column("precision", "arm"),
        Column("processes" if is_cpu else "GPUs", "label"),
        Column("efficiency", "efficiency", wording.percent),
        _ends("Welch's t", "efficiency"),
        _ends("bootstrap", "efficiency_bootstrap"),
        Column("runs", "images_per_second.n"),
    )
    notes = [_CERTAINTY_NOTE]
    for ratio in ratios:
        confidence = ratio.verdict_confidence
        needed = runs_needed(ratio.a_runs, ratio.b_runs, confidence=confidence)
        notes += [ratio.sentence, needed.sentence]
    return table("Efficiency: 95% CI by two methods", columns, rows, notes)


def _ends(title: str, name: str) -> Column:
    """Return a column of an interval in percent."""

    def value(row: ScalingRow) -> str | None:
        low, high = getattr(row, f"{name}_low"), getattr(row, f"{name}_high")
        return interval_text(low, high, wording.percent)

    return Column(title, value)


def published_cells(
    rows: Sequence[PublishedRow], sizes: Sequence[int]
) -> list[str | None]:
    """Return the rate at every size, and the efficiency of the largest."""
    known = {
        row.world_size: row.images_per_second
        for row in rows
        if row.images_per_second is not None
    }
    small, large = min(known), max(known)
    last = efficiency(known[large], large, known[small], small)
    rates = [wording.rate(known[size]) if size in known else None for size in sizes]
    return [*rates, wording.percent(last)]


def result_numbers(
    rows: Sequence[ScalingRow], outlooks: Mapping[str, Outlook]
) -> dict[str, Any]:
    """Return the exact numbers: one row per world size, one column per arm.

    As the table of https://github.com/PaddlePaddle/Perf/blob/master/ResNet50V1.5/README.md
    """
    sizes = sorted({row.world_size for row in rows})
    return {
        "statistic": RATE_STATISTIC,
        "interval": RATE_INTERVAL,
        "arms": list(dict.fromkeys(row.arm for row in rows)),
        "rows": [
            {
                "world_size": size,
                "results": {r.arm: _cell(r) for r in rows if r.world_size == size},
            }
            for size in sizes
        ],
        "projections": [
            {"arm": arm, "origin": "projected", **asdict(projection)}
            for arm, outlook in outlooks.items()
            for projection in outlook.projections
        ],
        "projections_refused": [
            {"arm": arm, **asdict(refusal)}
            for arm, outlook in outlooks.items()
            for refusal in outlook.refusals
        ],
    }


_OF_RATE = ("ci_low", "ci_high", "n", "q25", "q75")
_OF_ROW = (
    *("images_per_second_per_device", "nnodes", "device_type", "base_world_size"),
    *("data_wait_share", "communication_share", "peak_memory_bytes"),
    "cpu_ms_per_image",
)
_JUDGED = {
    **{name: name for name in ("speedup", "efficiency", "node_efficiency")},
    "efficiency_ci_low": "efficiency_low",
    "efficiency_ci_high": "efficiency_high",
    "efficiency_bootstrap_low": "efficiency_bootstrap_low",
    "efficiency_bootstrap_high": "efficiency_bootstrap_high",
    "node_efficiency_ci_low": "node_efficiency_low",
    "node_efficiency_ci_high": "node_efficiency_high",
}
"""Of trainings that were finite, by what the result calls it."""


def _cell(row: ScalingRow) -> dict[str, Any]:
    rate = row.images_per_second
    return {
        "images_per_second": rate.median,
        **{name: getattr(rate, name) for name in _OF_RATE},
        **{name: getattr(row, name) for name in _OF_ROW},
        **{
            key: getattr(row, name) if row.is_valid else None
            for key, name in _JUDGED.items()
        },
    }
