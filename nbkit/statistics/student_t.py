"""Quantiles of Student's t, so that statistics need no package."""

from __future__ import annotations

import math
import statistics

from nbkit.errors import NotEnoughDataError


def student_t_quantile(probability: float, degrees_of_freedom: float) -> float:
    """Return the quantile of Student's t for a probability.

    The degrees of freedom may be fractional (Welch).

    Notes
    -----
    ``P(|T| > t) = I_x(v / 2, 1 / 2)`` with ``x = v / (v + t^2)``, where ``I`` is the
    regularised incomplete beta function. It decreases with ``t`` and is convex,
    so Newton's method from below does not overshoot. It starts from the normal quantile
    and the first term of the Cornish-Fisher expansion.

    References
    ----------
    NIST Digital Library of Mathematical Functions, 8.17, https://dlmf.nist.gov/8.17;
    R. A. Fisher and E. A. Cornish, Technometrics 2 (1960),
    https://doi.org/10.1080/00401706.1960.10489895
    """
    if not 0 < probability < 1 or not degrees_of_freedom > 0:
        message = (
            f"student_t_quantile({probability}, {degrees_of_freedom}) is undefined: "
            "the probability must be between 0 and 1 and the degrees of freedom above "
            "0. Check the confidence level, and use at least 2 runs."
        )
        raise NotEnoughDataError(message)
    if probability < 0.5:
        return -student_t_quantile(1 - probability, degrees_of_freedom)
    two_tails = 2 * (1 - probability)
    z = statistics.NormalDist().inv_cdf(probability)
    t = z + (z**3 + z) / (4 * degrees_of_freedom)
    for _ in range(100):  # doubles its digits every time: it stops long before
        excess = _t_two_tails(t, degrees_of_freedom) - two_tails
        step = excess / (2 * _t_density(t, degrees_of_freedom))
        t += step
        if abs(step) <= 1e-14 * t:
            break
    return t


def _t_density(t: float, degrees_of_freedom: float) -> float:
    half = (degrees_of_freedom + 1) / 2
    log_front = (
        math.lgamma(half)
        - math.lgamma(degrees_of_freedom / 2)
        - 0.5 * math.log(math.pi * degrees_of_freedom)
    )
    return math.exp(log_front - half * math.log1p(t * t / degrees_of_freedom))


def _t_two_tails(t: float, degrees_of_freedom: float) -> float:
    x = degrees_of_freedom / (degrees_of_freedom + t * t)
    return _regularised_incomplete_beta(degrees_of_freedom / 2, 0.5, x)


def _regularised_incomplete_beta(a: float, b: float, x: float) -> float:
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    if x > (a + 1) / (a + b + 2):
        # The continued fraction converges fast only below the mean.
        return 1 - _regularised_incomplete_beta(b, a, 1 - x)
    log_front = (
        math.lgamma(a + b)
        - math.lgamma(a)
        - math.lgamma(b)
        + a * math.log(x)
        + b * math.log1p(-x)
    )
    return math.exp(log_front) / a / _beta_fraction(a, b, x)


def _beta_fraction(a: float, b: float, x: float) -> float:
    """Return ``1 + d1/(1 + d2/(1 + ...))`` of DLMF 8.17.22, by Lentz's method."""
    tiny = 1e-300
    value, c, d = 1.0, 1.0, 0.0
    for term in range(1, 1_000):
        m = term // 2
        if term % 2:
            numerator = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            numerator = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1 / (1 + numerator * d or tiny)
        c = 1 + numerator / c or tiny
        value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return value
