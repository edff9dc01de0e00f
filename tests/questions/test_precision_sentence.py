"""The headline is the fastest arm whose answer can be trusted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nbkit.questions.precision.answers import LossParity
from nbkit.questions.precision.layouts import Format
from nbkit.questions.precision.sentence import MeasuredArm, computed_sentence
from nbkit.statistics import noise_floor, ratio, summarise

BASE = [100.0, 101.0, 99.0, 100.5, 99.5]
FP32 = Format("fp32", "channels_last")
DIVERGED = ("loss not finite at step 3",)


def arm(one: Format, times: float, suspicions=(), *, runs=5, name=None):
    """Return an arm that is so many times as fast as the baseline."""
    rates = [rate * times for rate in BASE[:runs]]
    against = ratio(rates, BASE[:runs], a_name=one.name, b_name=FP32.name)
    answer = LossParity(one.name, 7.0, 2.0, 0.004, 0.001, None, True, tuple(suspicions))
    return MeasuredArm(
        arm=name or one.name,
        format=one,
        images_per_second=summarise(rates),
        against=None if one == FP32 and name is None else against,
        answer=answer,
        is_control=name is not None,
    )


BASELINE = arm(FP32, 1.0)
BF16 = arm(Format("bf16", "channels_last"), 2.0)


WRONG = arm(Format("fp16", "channels_last"), 3.0, DIVERGED)
SLOWER = arm(Format("fp16", "channels_last"), 1.5, DIVERGED)
ONCE = arm(Format("fp16", "channels_last"), 3.0, runs=1)
AGAIN = arm(FP32, 3.0, name="fp32, channels_last again")
BROKEN = noise_floor(BASE, [rate * 1.2 for rate in BASE])
TWICE = [rate * 2 for rate in BASE]
WITHHELD = replace(BF16, against=ratio(TWICE, BASE, noise_floor=BROKEN))
CORRECTED = ratio([104.0, 109.1, 105.0, 105.5, 106.5], BASE, comparisons=20)


@pytest.mark.parametrize(
    ("arms", "parts"),
    [
        (
            [BASELINE, BF16, arm(Format("fp16", "channels_first"), 1.4), AGAIN],
            [
                "bf16, channels_last trains 200.0 images/s, 2.00x [",
                "] vs. fp32, channels_last (95% CI, n=5): faster (",
                "Its loss over 200 steps matches the baseline to 0.4%",
            ],
        ),
        (
            [BASELINE, WRONG, BF16],
            [
                "bf16, channels_last trains 200",
                "Excluded: fp16, channels_last at 3.00x, loss suspect",
                "(loss not finite at step 3).",
            ],
        ),
        ([BASELINE, SLOWER, BF16], ["bf16", "of the first loss."]),
        ([BASELINE, ONCE, BF16], ["bf16, channels_last trains 200", "n=5): faster. "]),
        (
            [BASELINE, WRONG],
            ["No arm except fp32, channels_last passed", "Excluded: fp16"],
        ),
        (
            [arm(FP32, 1.0, DIVERGED), BF16],
            ["No speedup: the loss of the baseline", "is suspect"],
        ),
        ([BASELINE, WITHHELD], ["bf16", ": verdict withheld because the A/A control"]),
        (
            [BASELINE, replace(BF16, against=CORRECTED)],
            ["bf16", "in 20 comparisons (Holm's correction)"],
        ),
    ],
)
def test_computed_sentence(arms, parts):
    text = computed_sentence(arms, FP32.name, steps=200)

    assert text.startswith(parts[0])
    for part in parts[1:]:
        assert part in text
