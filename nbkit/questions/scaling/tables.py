"""Cells of the scaling report's tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nbkit.questions.scaling.throughput import ScalingRow
from nbkit.references.rows import PublishedRow
from nbkit.reports.arm_tables import rate_interval
from nbkit.statistics import interval_in_words
from nbkit.statistics import quantities as wording
from nbkit.statistics.comparison import efficiency


def headline_cells(row: ScalingRow, *, spans_nodes: bool = False) -> list[str | None]:
    """Return a measured size as text."""
    of_node = row.node_efficiency if row.counts else None
    against_node = None if of_node is None else wording.percent(of_node)
    rate = row.images_per_second
    interval = rate_interval(rate.ci_low, rate.ci_high) or wording.UNKNOWN
    return [
        row.arm,
        row.label,
        wording.rate(rate.median),
        f"{interval} ({rate.n})",
        wording.rate(row.images_per_second_per_device),
        wording.percent(row.efficiency if row.counts else None),
        *([against_node] if spans_nodes else []),
        wording.percent(row.data_wait_share),
        wording.percent(row.communication_share),
        wording.size(row.peak_memory_bytes),
        None if row.cpu_ms_per_image is None else f"{row.cpu_ms_per_image:.2f}",
    ]


def headline_values(rows: Sequence[ScalingRow]) -> dict[str, list[Any]]:
    """Return the numbers of the headline."""
    rates = [row.images_per_second for row in rows]
    names = ("world_size", "nnodes", "images_per_second_per_device")
    judged = ("efficiency_low", "efficiency_high")
    judged += ("node_efficiency", "node_efficiency_low", "node_efficiency_high")
    names += ("data_wait_share", "communication_share", "peak_memory_bytes")
    names += ("cpu_ms_per_image",)
    return {
        "images_per_second": [rate.median for rate in rates],
        "images_per_second_ci_low": [rate.ci_low for rate in rates],
        "images_per_second_ci_high": [rate.ci_high for rate in rates],
        "runs": [rate.n for rate in rates],
        "efficiency_estimate": [row.efficiency if row.counts else None for row in rows],
        **{
            name: [getattr(row, name) if row.counts else None for row in rows]
            for name in judged
        },
        **{name: [getattr(row, name) for row in rows] for name in names},
    }


def percent_interval(low: float | None, high: float | None) -> str | None:
    """Return an interval in percent; None where there is none."""
    if low is None or high is None:
        return None
    return interval_in_words(low, high, wording.percent)


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
