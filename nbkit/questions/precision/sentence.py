"""Answer of the precision report: each arm's speed and loss parity.

A speed-up is a headline only if the arm's answer is judged and not suspect; see
`nbkit.questions.precision.answers`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nbkit.questions.precision.answers import LossParity
from nbkit.questions.precision.layouts import Format
from nbkit.reports.arm_tables import ratio_text
from nbkit.reports.arms import best_of, not_beyond, with_enough_runs
from nbkit.statistics import NoiseFloor, Ratio, Summary
from nbkit.statistics import quantities as wording

_FEW_STEPS = 100
"""Below, even a training that diverges may not have shown it."""


@dataclass(frozen=True)
class MeasuredArm:
    """One arm's speed beside its answer."""

    arm: str
    format: Format
    images_per_second: Summary
    """Over runs, all devices together."""
    against: Ratio | None
    """Rate / baseline's rate; None for the baseline."""
    answer: LossParity
    is_control: bool = False
    """Whether it is the A/A control."""


def computed_sentence(
    arms: Sequence[MeasuredArm],
    baseline: str,
    *,
    steps: int,
    floor: NoiseFloor | None = None,
) -> str:
    """Return the result: the fastest arm with loss parity, and excluded arms."""
    compared = [arm for arm in arms if arm.against and not arm.is_control]
    sound = [arm for arm in compared if arm.answer.is_sound]
    base = next(arm for arm in arms if arm.arm == baseline)
    if base.answer.suspicions:
        why = " and ".join(base.answer.suspicions)
        return (
            f"No speedup: the loss of the baseline {baseline} is suspect ({why}). Use "
            "a larger batch, or another model."
        )
    decided = with_enough_runs(sound, lambda arm: arm.against)
    best = max(decided, key=_estimate, default=None)
    if best is None:
        text = f"No arm except {baseline} passed the loss check"
    elif floor is not None and best.against and floor.covers(best.against):
        text = not_beyond(floor, baseline, len(decided) < len(sound))
        text = f"N{text[1:]}".rstrip(".")
    else:
        text = _speedup(best, base, best_of(len(decided))) + _loss_parity(best, steps)
    least = max(1.0, _estimate(best) if best else 1.0)
    not_counted = [
        arm for arm in compared if arm not in sound and _estimate(arm) > least
    ]
    if not_counted:
        fastest = max(not_counted, key=_estimate)
        text += (
            f". Excluded: {fastest.arm} at {_estimate(fastest):.2f}x, "
            f"{_why_not(fastest.answer)}"
        )
    return f"{text}."


def _why_not(answer: LossParity) -> str:
    if answer.suspicions:
        return f"{answer.caveat} ({' and '.join(answer.suspicions)})"
    return (
        f"loss parity inconclusive without a control ({' and '.join(answer.unjudged)})"
    )


def _estimate(arm: MeasuredArm) -> float:
    return arm.against.estimate if arm.against else 1.0


def _speedup(best: MeasuredArm, base: MeasuredArm, chosen: str) -> str:
    against = best.against
    assert against is not None
    rate = wording.rate(best.images_per_second.median)
    return f"{best.arm} trains {rate} images/s, {ratio_text(against, base.arm)}{chosen}"


def _loss_parity(best: MeasuredArm, steps: int) -> str:
    apart = [best.answer.difference, best.answer.mean_loss_difference]
    known = [abs(part) for part in apart if part is not None]
    if not known:
        return ""
    few = f" (sanity check; use {_FEW_STEPS} or more steps)"
    return (
        f". Its loss over {steps} steps matches the baseline to "
        f"{max(*known, 0.001):.1%} of the first loss{few if steps < _FEW_STEPS else ''}"
    )
