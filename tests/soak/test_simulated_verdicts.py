"""Intervals and verdicts against simulated runs whose true ratio is known.

The figures are those of the table in `nbkit.statistics.comparison`'s introduction.
"""

from __future__ import annotations

import functools
import math
import random

import pytest

from nbkit.statistics import comparison, ratio

TRIALS = 1_000
EFFECTS = [1.0, 1.01, 1.05, 1.5]
TABLE = [
    line.rsplit(maxsplit=5)
    for line in (comparison.__doc__ or "").splitlines()
    if line.startswith("    ") and line.strip()[-1].isdigit()
]


def normal(generator):
    return math.exp(generator.gauss(0, 0.03))


def heavy_tailed(generator):
    """Student's t with 3 degrees of freedom: its fourth moment does not exist."""
    chi_squared = generator.gammavariate(1.5, 2)
    return math.exp(0.02 * generator.gauss(0, 1) / math.sqrt(chi_squared / 3))


def now_and_then_slow(generator):
    """One run in ten loses 5 to 30 % to somebody else's work."""
    slow = generator.uniform(1.05, 1.3) if generator.random() < 0.1 else 1.0
    return math.exp(generator.gauss(0, 0.02)) / slow


NOISES = {
    "normal, 3 %": normal,
    "Student t(3), 2 %": heavy_tailed,
    "2 %, one in ten slow": now_and_then_slow,
}


@functools.cache
def simulated(noise, runs, effect):
    """Return the comparisons of many studies whose arms differ by an effect."""
    generator = random.Random(f"{noise} {runs} {effect}")
    one = NOISES[noise]
    return [
        ratio(
            [8_000 * effect * one(generator) for _ in range(runs)],
            [8_000 * one(generator) for _ in range(runs)],
        )
        for _ in range(TRIALS)
    ]


def covered(noise, runs, effect):
    found = simulated(noise, runs, effect)
    return sum(one.ci_low <= effect <= one.ci_high for one in found) / TRIALS


def share(noise, runs, effect, verdict):
    found = simulated(noise, runs, effect)
    return sum(one.verdict == verdict for one in found) / TRIALS


def test_the_introduction_reports_what_is_simulated():
    assert len(TABLE) == len(NOISES) * 2
    for name, runs, width, lowest, false, found in TABLE:
        noise, n = name.strip(), int(runs)
        widths = [
            (one.ci_high - one.ci_low) / effect * 100
            for effect in EFFECTS
            for one in simulated(noise, n, effect)
        ]
        assert sum(widths) / len(widths) == pytest.approx(float(width), abs=0.05)
        least = min(covered(noise, n, effect) for effect in EFFECTS) * 100
        assert least == pytest.approx(float(lowest), abs=0.05)
        none = share(noise, n, 1.0, "no difference shown") * 100
        assert 100 - none == pytest.approx(float(false), abs=0.05)
        faster = share(noise, n, 1.05, "faster") * 100
        assert faster == pytest.approx(float(found), abs=0.05)
        assert least >= 93
        assert none >= 95
        assert share(noise, n, 1.01, "faster") <= 0.05
        assert share(noise, n, 1.5, "faster") > 0.98
        assert share(noise, n, 1.5, "slower") == 0


def test_arms_that_scatter_differently_are_covered_too():
    generator = random.Random(23)
    found = [
        ratio(
            [8_400 * math.exp(generator.gauss(0, 0.06)) for _ in range(5)],
            [8_000 * math.exp(generator.gauss(0, 0.02)) for _ in range(10)],
        )
        for _ in range(TRIALS)
    ]

    assert sum(one.ci_low <= 1.05 <= one.ci_high for one in found) / TRIALS >= 0.93
