"""Scaling curves that fit measured points.

The time of a step with a fixed batch per GPU is taken as

    ``t(N) = t(1) * (1 + c * h(N))``,  ``h(N) = (N^s - 1) / s``,

a family with one parameter for its shape, `s`, whose members are the known ways in
which the cost of an all-reduce grows:

``s = 1``
    ``h = N - 1``: latency-bound ring, every further GPU is one more hop.
``s = 0``
    ``h = ln N``: latency-bound tree, every doubling is one more hop.
``s = -1``
    ``h = 1 - 1/N``: bandwidth-bound ring, each GPU sends ``2 (N - 1) / N`` of the
    gradients.

A step is a mixture of these, with waiting for the slowest that grows between them, so
that every shape from -1 to 1 is thought equally probable beforehand, and so is every
efficiency from 0 to 1 of the largest measured size. What then was measured says which
members remain: two points fit all shapes, from three on the points have a say.

A measured rate scatters around the curve, by other clocks, nodes and days. How much is
not known beforehand either: about 0.75 %, believed as firmly as two observations would
make one. Points that follow no member widen the interval accordingly.

These two numbers are the most probable round ones for the published series with one
batch per GPU (29 of the 40 with three sizes or more, recomputed twins left out).
Whichever publisher is left out, their log-likelihood is within 1.6 of the greatest.
Refitted without the publisher that is tried, 12 of the 18 series across nodes hold the
measurement inside instead of 13: see `nbkit.questions.scaling.projection`.

References
----------
P. Patarasu and X. Yuan, bandwidth optimal all-reduce,
https://doi.org/10.1016/j.jpdc.2008.09.002; R. Thakur et al. (the alpha-beta model),
https://doi.org/10.1177/1094342005051521; S. Jeaugey, trees in NCCL 2.4,
https://developer.nvidia.com/blog/massively-scale-deep-learning-training-nccl-2-4/;
G. E. P. Box and D. R. Cox (the family of powers),
https://doi.org/10.1111/j.2517-6161.1964.tb00553.x; A. Gelman et al., Bayesian Data
Analysis, 3.2 (scatter with a scaled inverse chi-squared prior, averaged over),
http://www.stat.columbia.edu/~gelman/book/
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nbkit.statistics import student_t_quantile

PROBABILITY = 0.8
"""Of the interval, nominally: one in ten beyond either end. The usual 95 % would
promise to know tails that 40 series cannot show."""

SCATTER = 0.0075
"""Typical relative standard deviation of a measured rate around its curve."""

SCATTER_FREEDOM = 2
"""How many observations the typical scatter is worth."""

_SHAPES = [step / 5 for step in range(-5, 6)]
_EFFICIENCIES = [(cell + 0.5) / 200 for cell in range(200)]
_PARTS = 15
"""Parts of equal probability that one curve's scatter is represented by."""


@dataclass(frozen=True)
class _Curve:
    shape: float
    overhead: float
    """Of the largest measured size, over the time of one device's step."""
    weight: float
    centre: float
    """Mean of the logarithms of the times with the growth taken out."""
    deviation: float
    """Scale of a further measurement's logarithm around the curve."""


class Curves:
    """What measured points leave possible.

    Parameters
    ----------
    seconds_per_image
        By world size, the time of one device for one image (``N / rate``); at least
        two sizes.
    relative_error
        Standard error of these, as a part of them; adds to the scatter. 0 if it is not
        known.
    """

    def __init__(
        self,
        seconds_per_image: Mapping[int, float],
        relative_error: float = 0.0,
    ) -> None:
        self._largest = max(seconds_per_image)
        count = len(seconds_per_image)
        expected = SCATTER_FREEDOM * (SCATTER**2 + relative_error**2)
        self._freedom = SCATTER_FREEDOM + count - 1
        fits = [
            (shape, overhead, expected + squares, centre)
            for shape in _SHAPES
            for overhead, squares, centre in _fits(seconds_per_image, shape)
        ]
        least = min(squares for _, _, squares, _ in fits)
        # The posterior of Student's kind: the unknown scatter is averaged over.
        weights = [(least / fit[2]) ** (self._freedom / 2) for fit in fits]
        self._curves = [
            _Curve(
                shape,
                overhead,
                weight,
                centre,
                math.sqrt(squares / self._freedom * (1 + 1 / count)),
            )
            for weight, (shape, overhead, squares, centre) in zip(
                weights, fits, strict=True
            )
            if weight > 1e-4
        ]

    def interval(self, world_size: int) -> tuple[float, float]:
        """Return between which seconds per image a measurement is expected."""
        parts = _t_parts(self._freedom)
        further = sorted(
            (centre + curve.deviation * part, curve.weight)
            for curve in self._curves
            for centre in [self._centre(curve, world_size)]
            for part in parts
        )
        total = math.fsum(weight for _, weight in further)
        tail = (1 - PROBABILITY) / 2 * total
        reached = itertools.accumulate(weight for _, weight in further)
        low, high = further[0][0], further[-1][0]
        for (place, _), sum_so_far in zip(further, reached, strict=True):
            if sum_so_far <= tail:
                low = place
            if sum_so_far >= total - tail:
                high = place
                break
        return math.exp(low), math.exp(high)

    def _centre(self, curve: _Curve, world_size: int) -> float:
        ratio = growth(world_size, curve.shape) / growth(self._largest, curve.shape)
        return curve.centre + math.log1p(curve.overhead * ratio)


def growth(world_size: int, shape: float) -> float:
    """Return the family's ``h(N)``: 0 for one device, and larger with every further."""
    if shape == 0:
        return math.log(world_size)
    return (world_size**shape - 1) / shape


def _fits(
    seconds_per_image: Mapping[int, float], shape: float
) -> list[tuple[float, float, float]]:
    """Return for each efficiency: overhead, squared residuals, centre."""
    largest = growth(max(seconds_per_image), shape)
    points = [
        (math.log(seconds), growth(size, shape) / largest)
        for size, seconds in seconds_per_image.items()
    ]
    fits = []
    for efficiency in _EFFICIENCIES:
        overhead = 1 / efficiency - 1
        residuals = [log - math.log1p(overhead * part) for log, part in points]
        centre = sum(residuals) / len(residuals)
        fits.append(
            (overhead, sum((residual - centre) ** 2 for residual in residuals), centre)
        )
    return fits


@functools.cache
def _t_parts(freedom: float) -> Sequence[float]:
    """Return the middles of parts of equal probability of Student's t."""
    return [
        student_t_quantile((part + 0.5) / _PARTS, freedom) for part in range(_PARTS)
    ]
