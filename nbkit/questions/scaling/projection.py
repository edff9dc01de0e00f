"""Projection of measured scaling to more devices.

A projection is an interval, never one number: from the curves of
`nbkit.questions.scaling.curves` that the measured points leave possible, where a
measurement is expected with a probability of nominally 80 %: of 38 published points
held out, 28 (74 %) lay inside and 37 inside or within 3 %.

Published series with three sizes or more are its test. The largest size is held out,
the others are the points, and the table counts how often the projection was refused,
how often the measured value is inside, how often inside or within 3 % of the nearer
end, and the mean half-width over the midpoint in per cent. An interval of 80 % should
hold 30 of the 38 that are made.

::

    series                      refused    inside      near     width
    18, plain pair of rings           0        13        18       6.6
    18 across nodes                   0        13        17       5.7
    18, refitted                      0        12        17       5.4
    the other 22                      2        15        20       3.1
    all 40                            2        28        37       4.3
    25, two held out                  1        17        22       7.8

The 18 span nodes, with a batch per GPU that changes at most fourfold and without
recomputed twins; the pair are a latency-bound and a bandwidth-bound ring, each by least
squares of the times; refitted is the scatter, without the publisher's own series. The
one miss (8.7 %) has an odd last point but one: from it, twice the GPUs gave more than
twice the rate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nbkit.plural import plural
from nbkit.questions.scaling.curves import PROBABILITY, Curves
from nbkit.studies.devices import DeviceType

HELD_OUT = (
    "80% is nominal: of 38 held-out published points, 28 were inside their intervals "
    "and 37 inside or within 3% of them."
)
"""What the probability of an interval is worth, for the readers of one."""

_FURTHEST = 4
"""Times the largest measured size. Published series can be tried that far (8 to 32)
and, with one batch per GPU, no further."""

_SUPERLINEAR = 0.05
"""Rise of the rate per GPU over the smallest size that scatter still explains; in
published series of three sizes or more it is 0.6 % at most."""

_FEWEST_ACROSS = 2
"""Points across nodes, from which the network between them is extended."""

_OF_SIZES = 2.0
"""By how much the rates of sizes scatter, over the repeats of one size. What differs
from size to size, as a state of the machine does, is in no repeat; see the page on how
nbkit measures for what the interval then holds."""

_WIDEST = 0.25
"""Half-width over the midpoint: from there on the upper end is 1.7 times the lower."""


@dataclass(frozen=True)
class ProjectedPoint:
    """Measured rate at one world size."""

    world_size: int
    """Devices of all nodes together."""
    nnodes: int
    images_per_second: float
    """All devices together."""
    device_type: DeviceType = "cuda"
    run_scatter: float | None = None
    """Relative standard deviation of the rate of one run; ``None`` if unknown."""


@dataclass(frozen=True)
class Projection:
    """Expected rate at a world size that was not measured."""

    world_size: int
    low_images_per_second: float
    high_images_per_second: float
    low_efficiency: float
    """Rate per GPU relative to the smallest measured world size."""
    high_efficiency: float
    """Rate per GPU relative to the smallest measured world size."""
    probability: float = PROBABILITY
    """Nominal probability of a measurement between low and high. Of 38 held-out
    published points, 28 were inside and 37 inside or within 3 %."""


@dataclass(frozen=True)
class Refusal:
    """A projection that was refused, with the reason."""

    world_size: int | None
    """The target world size; ``None`` if the reason applies to all targets."""
    reason: str


@dataclass(frozen=True)
class Outlook:
    """Result of a request for projections: projections and refusals."""

    projections: tuple[Projection, ...]
    refusals: tuple[Refusal, ...]


def project(
    points: Sequence[ProjectedPoint], targets: Iterable[int], *, gpus_per_node: int
) -> Outlook:
    """Project images per second to world sizes that were not measured.

    Each world size has one point, the median of its runs, with the same batch per GPU.
    """
    measured = {point.world_size for point in points}
    requested = sorted(set(targets) - measured)
    if not requested:
        return Outlook((), ())
    if reason := _no_projection_at_all(points):
        return Outlook((), (Refusal(None, reason),))
    base = min(points, key=lambda point: point.world_size)
    per_gpu = base.images_per_second / base.world_size
    curves = _curves(points)
    projections: list[Projection] = []
    refusals: list[Refusal] = []
    for target in requested:
        if reason := _no_projection_to(target, points, gpus_per_node):
            refusals.append(Refusal(target, reason))
            continue
        fast, slow = curves.interval(target)
        low, high = target / slow, target / fast
        if (high - low) / (high + low) > _WIDEST:
            refusals.append(Refusal(target, _too_wide(target, low, high)))
            continue
        projections.append(
            Projection(
                world_size=target,
                low_images_per_second=low,
                high_images_per_second=high,
                low_efficiency=low / target / per_gpu,
                high_efficiency=high / target / per_gpu,
            )
        )
    return Outlook(tuple(projections), tuple(refusals))


def _curves(points: Sequence[ProjectedPoint]) -> Curves:
    known = [s for point in points if (s := point.run_scatter) is not None]
    scatter = math.hypot(*known) / math.sqrt(len(known)) if known else 0.0
    return Curves(
        {
            point.world_size: point.world_size / point.images_per_second
            for point in points
        },
        relative_error=_OF_SIZES * scatter,
    )


def _no_projection_at_all(points: Sequence[ProjectedPoint]) -> str | None:
    if any(point.device_type != "cuda" for point in points):
        return "No projection: CPU runs are not extrapolated to GPUs."
    if len(points) < 2:
        return (
            f"No projection: 2 GPU counts are required, but {len(points)} was "
            "measured. Measure 1 and 2 GPUs."
        )
    base = min(points, key=lambda point: point.world_size)
    best = max(points, key=_per_gpu)
    if _per_gpu(best) > (1 + _SUPERLINEAR) * _per_gpu(base):
        percent = (_per_gpu(best) / _per_gpu(base) - 1) * 100
        return (
            f"No projection: the rate per GPU is {percent:.0f}% higher with "
            f"{best.world_size} GPUs than with {base.world_size}. Repeat the runs with "
            f"{plural(base.world_size, 'GPU')}."
        )
    return None


def _per_gpu(point: ProjectedPoint) -> float:
    return point.images_per_second / point.world_size


def _no_projection_to(
    target: int, points: Sequence[ProjectedPoint], gpus_per_node: int
) -> str | None:
    largest = max(point.world_size for point in points)
    if target < largest:
        return (
            f"No projection to {target} GPUs: fewer than the largest measured size "
            f"({largest}). Also measure {plural(target, 'GPU')}."
        )
    across = sum(point.nnodes > 1 for point in points)
    if target > gpus_per_node and across < _FEWEST_ACROSS:
        multi_node = "only one multi-node size" if across else "no multi-node size"
        return (
            f"No projection to {target} GPUs: with {gpus_per_node} per node, they span "
            f"nodes, but {multi_node} was measured. Measure 2 and 4 nodes."
        )
    if target > _FURTHEST * largest:
        return (
            f"No projection to {target} GPUs: the limit is {_FURTHEST}x the largest "
            f"measured size ({largest}). Measure {math.ceil(target / _FURTHEST)} GPUs."
        )
    return None


def _too_wide(target: int, low: float, high: float) -> str:
    return (
        f"No projection to {target} GPUs: the interval is too wide ({low:,.0f} to "
        f"{high:,.0f} images/s). Measure more sizes, or more runs per size."
    )
