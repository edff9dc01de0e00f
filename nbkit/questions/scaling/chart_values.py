"""What the charts draw, as plain values: no altair here.

Each function returns rows for one kind of mark. A kind's rows carry no field of
another kind's, so that measured, projected and published cannot be drawn as one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nbkit.questions.scaling.curves import PROBABILITY
from nbkit.questions.scaling.projection import Outlook
from nbkit.questions.scaling.throughput import ScalingRow
from nbkit.references.rows import PublishedRow

# Two noisy runs have an interval of ten times their distance.
_MOST_ABOVE_EVERYTHING = 1.5


def highest_value(
    rows: Sequence[ScalingRow],
    projected: Sequence[Mapping[str, Any]],
    others: Mapping[str, Sequence[PublishedRow]],
) -> float | None:
    """Return where to cut the chart, or None if everything fits as it is.

    An interval that reaches far beyond every point and line would press all of them
    flat.
    """
    largest = max(
        row.world_size for members in ([*rows], *others.values()) for row in members
    )
    largest = max([largest, *(corner["world_size"] for corner in projected)])
    values = [row.images_per_second.median for row in rows]
    values += [value["images_per_second"] for value in ideal_values(rows, largest)]
    values += [corner["high"] for corner in projected]
    values += [
        row.images_per_second or 0.0 for curve in others.values() for row in curve
    ]
    highest = _MOST_ABOVE_EVERYTHING * max(values)
    bars = [row.images_per_second.ci_high for row in rows]
    return highest if any(bar and bar > highest for bar in bars) else None


def measured_values(rows: Sequence[ScalingRow]) -> list[dict[str, Any]]:
    """Return the measured points with their intervals."""
    return [
        {
            "arm": row.arm,
            "world_size": row.world_size,
            "size": row.label,
            "images_per_second": row.images_per_second.median,
            "low": row.images_per_second.ci_low,
            "high": row.images_per_second.ci_high,
            "runs": row.images_per_second.n,
            "efficiency": row.efficiency,
        }
        for row in rows
    ]


def ideal_values(rows: Sequence[ScalingRow], largest: int) -> list[dict[str, Any]]:
    """Return both ends of each arm's line of linear scaling, up to ``largest``.

    No line begins at ``largest`` itself: it would have no length.
    """
    return [
        {
            "arm": row.arm,
            "world_size": count,
            "images_per_second": row.images_per_second_per_device * count,
            "what": "linear",
        }
        for row in rows
        if row.world_size == row.base_world_size < largest
        for count in (row.world_size, largest)
    ]


def projected_values(
    rows: Sequence[ScalingRow], outlooks: Mapping[str, Outlook]
) -> list[dict[str, Any]]:
    """Return the corners of each arm's band, from its last measured point on."""
    last = {row.arm: row for row in rows}  # sizes ascend within an arm
    corners: list[dict[str, Any]] = []
    for arm, outlook in outlooks.items():
        if arm not in last or not outlook.projections:
            continue
        start = last[arm].images_per_second.median
        ends = [(last[arm].world_size, start, start)]
        ends += [
            (end.world_size, end.low_images_per_second, end.high_images_per_second)
            for end in outlook.projections
        ]
        corners += [
            {
                "arm": arm,
                "world_size": world_size,
                "low": low,
                "high": high,
                "what": f"{PROBABILITY:.0%} interval",
            }
            for world_size, low, high in ends
        ]
    return corners


def published_values(
    others: Mapping[str, Sequence[PublishedRow]],
) -> list[dict[str, Any]]:
    """Return the published points with their source."""
    return [
        {
            "series": label,
            "world_size": row.world_size,
            "images_per_second": row.images_per_second,
            "source": row.source,
        }
        for label, members in others.items()
        for row in members
    ]


def subtitle(rows: Sequence[ScalingRow], *, is_cut: bool = False) -> str:
    """Return which statistic of how many runs is shown, and what the bars are."""
    fewest = min(row.images_per_second.n for row in rows)
    most = max(row.images_per_second.n for row in rows)
    counted = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    bars = "bars: 95% CI" if most > 1 else "no CI"
    if is_cut:
        bars += ", clipped at the chart's edge"
    text = f"median over runs, n={counted}; {bars}"
    on_cpu = all(row.device_type == "cpu" for row in rows)
    return f"CPU smoke test; {text}" if on_cpu else text


def node_labels(rows: Sequence[ScalingRow]) -> dict[int, list[str]]:
    """Return what stands below a count that was measured on several nodes.

    Such as ``2 x 8``; where arms differ, each of theirs.
    """
    by_count: dict[int, list[str]] = {}
    for row in rows:
        labels = by_count.setdefault(row.world_size, [])
        if row.nnodes > 1 and row.label not in labels:
            labels.append(row.label)
    return {count: labels for count, labels in by_count.items() if labels}


def tick_labels(counts: Sequence[int], *, wide: bool = False) -> list[int]:
    """Return the counts without those whose label would touch the next larger one."""
    apart = 0.06 if wide else 0.03
    labels: list[int] = []
    for count in reversed(counts):
        if not labels or (labels[-1] - count) / counts[-1] > apart:
            labels.append(count)
    return labels[::-1]
