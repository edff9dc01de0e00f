"""How far measured scaling may be extended, and when it may not.

The time of a step with a fixed batch per GPU is ``t(N) = t(1) * g(N)``. Two models of
a ring all-reduce are fitted to what was measured:

latency-bound
    ``g = 1 + c (N - 1)``: every further GPU adds one hop.
bandwidth-bound
    ``g = 1 + c (N - 1) / N``: each GPU sends ``2 (N - 1) / N`` of the gradients.

Neither is right often enough to be printed alone, so the pair is printed as an
interval. Held against the 40 published series with three sizes or more (fitted to all
points but the largest, asked for that one), the measured value lies inside 21 times
and misses it by at most 2.2 % otherwise: the interval is that of the models, and the
scatter of the measurements comes on top of it.

References
----------
P. Patarasu and X. Yuan, bandwidth optimal all-reduce,
https://doi.org/10.1016/j.jpdc.2008.09.002; R. Thakur et al. (the alpha-beta model),
https://doi.org/10.1177/1094342005051521
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from nbkit.errors import NotEnoughDataError

__all__ = ["DeviceType", "Outlook", "Point", "Projection", "Refusal", "project"]

DeviceType: TypeAlias = Literal["cuda", "cpu"]


@dataclass(frozen=True)
class Point:
    """What was measured at one world size."""

    world_size: int
    """Devices of all nodes together."""
    nnodes: int
    images_per_second: float
    """All devices together."""
    device_type: DeviceType = "cuda"


@dataclass(frozen=True)
class Projection:
    """What may be expected at a world size that was not measured."""

    world_size: int
    low_images_per_second: float
    high_images_per_second: float
    low_efficiency: float
    """Against the smallest measured world size, per GPU."""
    high_efficiency: float
    """Against the smallest measured world size, per GPU."""


@dataclass(frozen=True)
class Refusal:
    """A projection that is not made, and why."""

    world_size: int | None
    """The target; ``None`` when the reason holds for all of them."""
    reason: str


@dataclass(frozen=True)
class Outlook:
    """The answer to a request for projections: some made, some refused."""

    projections: tuple[Projection, ...]
    refusals: tuple[Refusal, ...]


def project(
    points: Sequence[Point], targets: Iterable[int], *, gpus_per_node: int
) -> Outlook:
    """Project images per second to world sizes that were not measured.

    Parameters
    ----------
    points
        Measured with the same batch per GPU, one a world size.
    targets
        World sizes asked for; those that were measured are passed over.
    gpus_per_node
        GPUs in one node of the machine that is asked about.

    Returns
    -------
    Outlook
        Refused are: projections from CPU processes, from fewer than two GPU counts,
        across nodes when all points lie within one node, and to world sizes between
        the measured ones.

    Raises
    ------
    NotEnoughDataError
        If a point has no positive rate or two have the same world size.
    """
    _check(points)
    measured = {point.world_size for point in points}
    asked = sorted(set(targets) - measured)
    if not asked:
        return Outlook((), ())
    if reason := _no_projection_at_all(points):
        return Outlook((), (Refusal(None, reason),))
    refusals = [
        Refusal(target, reason)
        for target in asked
        if (reason := _no_projection_to(target, points, gpus_per_node))
    ]
    refused = {refusal.world_size for refusal in refusals}
    models = [_fit(points, overhead) for overhead in (_latency, _bandwidth)]
    base = min(points, key=lambda point: point.world_size)
    per_gpu = base.images_per_second / base.world_size
    projections = []
    for target in asked:
        if target in refused:
            continue
        low, high = sorted(target / step_time(target) for step_time in models)
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


def _check(points: Sequence[Point]) -> None:
    for point in points:
        if not point.images_per_second > 0:
            message = (
                f"images_per_second={point.images_per_second} with "
                f"{point.world_size} devices; a projection needs rates above 0: "
                "leave that point out."
            )
            raise NotEnoughDataError(message)
    if len({point.world_size for point in points}) < len(points):
        message = (
            f"{len(points)} points for {len({p.world_size for p in points})} world "
            "sizes; give one point a world size, the median of its runs."
        )
        raise NotEnoughDataError(message)


def _no_projection_at_all(points: Sequence[Point]) -> str | None:
    if any(point.device_type != "cuda" for point in points):
        return (
            "No projection: CPU processes share their cores and memory, so what was "
            "measured with them says nothing about GPUs."
        )
    if len(points) < 2:
        return (
            f"No projection: it needs at least 2 GPU counts and {len(points)} was "
            "measured; measure with 1 and 2 GPUs."
        )
    return None


def _no_projection_to(
    target: int, points: Sequence[Point], gpus_per_node: int
) -> str | None:
    largest = max(point.world_size for point in points)
    if target < largest:
        return (
            f"No projection to {target} GPUs: {largest} were measured; "
            f"measure {target} too."
        )
    spans_nodes = any(point.nnodes > 1 for point in points)
    if target > gpus_per_node and not spans_nodes:
        return (
            f"No projection to {target} GPUs: a node has {gpus_per_node}, and points "
            "within one node say nothing of the network between nodes; measure on "
            "2 nodes."
        )
    return None


def _latency(world_size: int) -> float:
    return world_size - 1


def _bandwidth(world_size: int) -> float:
    return (world_size - 1) / world_size


def _fit(
    points: Sequence[Point], overhead: Callable[[int], float]
) -> Callable[[int], float]:
    """Fit ``time = alone + extra * overhead(N)`` to the points.

    Least squares of the relative error, because slow and fast points deserve the same
    weight. Communication cannot make a step faster, so ``extra`` is never below 0:
    superlinear points are scatter and are not extended into a promise.
    """
    # Divided by the time, the model is 1 = alone * u + extra * v.
    times = [point.world_size / point.images_per_second for point in points]
    u = [1 / time for time in times]
    v = [
        overhead(point.world_size) / time
        for point, time in zip(points, times, strict=True)
    ]
    uu, uv, vv = _dot(u, u), _dot(u, v), _dot(v, v)
    extra = (uu * sum(v) - uv * sum(u)) / (uu * vv - uv * uv)
    extra = max(extra, 0.0)
    alone = (sum(u) - extra * uv) / uu
    return lambda world_size: alone + extra * overhead(world_size)


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    return sum(map(operator.mul, left, right))
