"""Starts that are made once more move no ratio: A/A studies of simulated runs."""

from __future__ import annotations

import numpy as np
import pytest

from nbkit.statistics import ratio
from nbkit.studies.disturbed_starts import chosen
from nbkit.studies.order import Slot

STUDIES = 1_000
PAIRS = 40
NOISE = 0.02


def studies(seed: int, disturbed_share: float, seen_share: float, cost: float):
    """Yield the rates of both arms of a study, as measured and with repeated starts.

    A disturbed start is slower by some part, is seen to be disturbed now and then, and
    the one in its place may be disturbed too.
    """
    random = np.random.default_rng(seed)

    def start() -> tuple[float, bool]:
        was = random.random() < disturbed_share
        rate = 100 * np.exp(random.normal(0, NOISE)) * (1 - cost * was)
        return rate, bool(was and random.random() < seen_share)

    for _ in range(STUDIES):
        slots = [Slot(arm, repeat) for repeat in range(PAIRS) for arm in "ab"]
        found = {slot: start() for slot in slots}
        again = chosen({slot: seen for slot, (_, seen) in found.items()})
        counted = {**found, **{slot: start() for slot in again}}
        yield [
            [[rates[slot][0] for slot in slots if slot.arm == arm] for arm in "ab"]
            for rates in (found, counted)
        ]


@pytest.mark.parametrize("cost", [0.05, 0.3])
@pytest.mark.parametrize("seen_share", [0.5, 1.0])
@pytest.mark.parametrize("disturbed_share", [0.1, 0.3])
def test_an_interval_contains_one_as_often_as_without_repeats(
    disturbed_share, seen_share, cost
):
    contains = np.zeros((STUDIES, 2), bool)
    estimates = np.zeros((STUDIES, 2))
    for number, study in enumerate(studies(0, disturbed_share, seen_share, cost)):
        for kind, arms in enumerate(study):
            found = ratio(*arms)
            contains[number, kind] = found.ci_low <= 1 <= found.ci_high
            estimates[number, kind] = np.log(found.estimate)

    before, after = contains.mean(axis=0)
    # 95 % by construction; in a thousand studies, give or take 2 % (three deviations).
    assert after > 0.93, (before, after)
    bias = estimates[:, 1].mean()
    deviation = estimates[:, 1].std() / np.sqrt(STUDIES)
    assert abs(bias) < 4 * deviation, bias
    assert estimates[:, 1].std() <= 1.02 * estimates[:, 0].std()
