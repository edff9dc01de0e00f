"""Early end of a study with a time limit, by the product's own functions.

``python -m tests.soak.test_early_end`` prints the table of ``nbkit/studies/README.md``.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import pytest

from nbkit.reports.arm_rows import ArmRun
from nbkit.reports.arms import Arms
from nbkit.statistics import MINIMUM_RUNS
from tests.soak.test_noise_models import MODELS, study

STUDIES, REPEATS = 1_000, 10
NAMES = ("base", "a", "b", "base again")
SHOWN = ("lognormal 2%", "lognormal 5%")


@dataclass(frozen=True)
class Shares:
    """What became of the studies of one case."""

    verdicts: float
    """Share with a verdict on any arm, at their end."""
    in_all_repeats: float
    """The same if none had ended early."""
    repeats: float
    """Mean number of measured repeats."""


@functools.cache
def simulate(model: str, effect: float) -> Shares:
    """Simulate studies of a baseline, its control and two arms that differ alike."""
    verdicts = in_all = repeats = 0
    for seed in range(STUDIES):
        base, a, b, again = study(model, len(NAMES), REPEATS, seed)
        scaled = ([rate * (1 + effect) for rate in arm] for arm in (a, b))
        rates = dict(zip(NAMES, (base, *scaled, again), strict=True))
        done = next(n for n in range(MINIMUM_RUNS, REPEATS + 1) if ends(rates, n))
        verdicts += has_verdict(first(rates, done))
        in_all += has_verdict(first(rates, REPEATS))
        repeats += done
    return Shares(verdicts / STUDIES, in_all / STUDIES, repeats / STUDIES)


def first(rates: dict[str, list[float]], repeats: int) -> Arms:
    """Return the arms as they are after so many repeats."""
    runs = {
        arm: [ArmRun(str(number), rate) for number, rate in enumerate(many[:repeats])]
        for arm, many in rates.items()
    }
    return Arms(runs, NAMES[0], NAMES[-1])


def ends(rates: dict[str, list[float]], repeats: int) -> bool:
    """Return whether a study ends after so many repeats."""
    looks = REPEATS - MINIMUM_RUNS + 1
    return repeats == REPEATS or {"a", "b"} <= first(rates, repeats).settled(looks)


def has_verdict(arms: Arms) -> bool:
    return any(one.verdict in ("faster", "slower") for one in arms.verdicts)


@pytest.mark.parametrize("model", MODELS)
def test_false_verdicts_of_equal_arms_are_at_most_5_percent(model):
    assert simulate(model, 0.0).verdicts <= 0.05


@pytest.mark.parametrize("model", SHOWN)
def test_false_verdicts_at_the_practical_margin_are_at_most_5_percent(model):
    assert simulate(model, 0.02).verdicts <= 0.05


def test_power_at_5_percent_is_kept_with_fewer_repeats():
    found = simulate("lognormal 2%", 0.05)

    assert found.verdicts >= found.in_all_repeats - 0.02
    assert found.repeats < REPEATS


def main() -> None:
    """Print what becomes of the studies in each case."""
    for model in SHOWN:
        for effect in (0.0, 0.02, 0.05, 0.5):
            one = simulate(model, effect)
            print(
                f"| {model} | {1 + effect:.2f} | {one.verdicts:.1%} | "
                f"{one.in_all_repeats:.1%} | {one.repeats:.1f} |"
            )


if __name__ == "__main__":
    main()
