"""The headline is the fastest arm whose answer can be trusted, with its chart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nbkit.questions.precision.answers import Answer
from nbkit.questions.precision.chart import arms_chart
from nbkit.questions.precision.layouts import Format, like_for_like
from nbkit.questions.precision.sentence import MeasuredArm, computed_sentence
from nbkit.reports.pictures import png
from nbkit.statistics import noise_floor, ratio, summarise

BASE = [100.0, 101.0, 99.0, 100.5, 99.5]
FP32 = Format("fp32", "channels_last")
DIVERGED = ("loss not finite at step 3",)


def arm(one: Format, times: float, suspicions=(), *, runs=5, name=None):
    """Return an arm that is so many times as fast as the baseline."""
    rates = [rate * times for rate in BASE[:runs]]
    against = ratio(rates, BASE[:runs], a_name=one.name, b_name=FP32.name)
    answer = Answer(one.name, 7.0, 2.0, 0.004, 0.001, None, True, tuple(suspicions))
    return MeasuredArm(
        arm=name or one.name,
        format=one,
        images_per_second=summarise(rates),
        against=None if one == FP32 and name is None else against,
        answer=answer,
        is_control=name is not None,
    )


def said(*arms, device_type="cuda"):
    return computed_sentence(arms, FP32.name, steps=200, device_type=device_type)


BASELINE = arm(FP32, 1.0)
BF16 = arm(Format("bf16", "channels_last"), 2.0)


def test_the_fastest_arm_is_the_headline_with_interval_verdict_and_loss():
    text = said(BASELINE, BF16, arm(Format("fp16", "channels_first"), 1.4))

    assert text.startswith(
        "bf16, channels_last trains 200 images/s, 2.00 times fp32, channels_last "
        "(95 % interval 1.98 to 2.02): faster, and its loss over 200 steps is the "
        "baseline's within 0.4 % of the first loss"
    )
    assert "fp16" not in text


def test_a_faster_arm_with_a_suspect_answer_is_named_and_never_the_headline():
    wrong = arm(Format("fp16", "channels_last"), 3.0, DIVERGED)

    text = said(BASELINE, wrong, BF16)

    assert text.startswith("bf16, channels_last trains 200")
    assert "not counted: fp16, channels_last at 3.00 times" in text
    assert "loss not finite at step 3" in text


def test_a_slower_suspect_arm_is_not_worth_a_word():
    wrong = arm(Format("fp16", "channels_last"), 1.5, DIVERGED)

    assert "not counted" not in said(BASELINE, wrong, BF16)


def test_without_a_sound_arm_nothing_is_claimed():
    wrong = arm(Format("fp16", "channels_last"), 3.0, DIVERGED)

    text = said(BASELINE, wrong)

    assert text.startswith("No arm but fp32, channels_last has an answer")
    assert "not counted: fp16" in text


def test_a_baseline_that_did_not_train_leaves_nothing_to_compare():
    text = said(arm(FP32, 1.0, DIVERGED), BF16)

    assert "the baseline fp32, channels_last itself is suspect" in text
    assert "2.00" not in text


def test_two_runs_an_arm_are_said_to_be_too_few():
    text = said(
        arm(FP32, 1.0, runs=2),
        arm(Format("bf16", "channels_last"), 2.0, runs=2),
        device_type="cpu",
    )

    assert text.startswith("CPU, functional: bf16")
    assert "not enough runs for a verdict (2 an arm)" in text
    assert "faster" not in text


def test_a_withheld_verdict_says_why():
    rates = [rate * 2 for rate in BASE]
    broken = noise_floor(BASE, [rate * 1.2 for rate in BASE])
    withheld = replace(BF16, against=ratio(rates, BASE, noise_floor=broken))

    text = said(BASELINE, withheld)

    assert ": verdict withheld, because the control, the same config" in text


def test_computed_sentence_corrected_verdict():
    rates = [104.0, 109.1, 105.0, 105.5, 106.5]
    alone, together = (ratio(rates, BASE, comparisons=n) for n in (1, 20))
    assert (alone.verdict, together.verdict) == ("faster", "no difference shown")

    text = said(BASELINE, replace(BF16, against=together))

    assert "shown in 20 comparisons (Holm's correction)" in text


def test_the_control_is_never_the_headline():
    again = arm(FP32, 3.0, name="fp32, channels_last again")

    assert said(BASELINE, again, BF16).startswith("bf16")


def _marks(chart) -> dict[str, list[Any]]:
    """Return the encodings and values of each kind of mark."""
    found: dict[str, list[Any]] = {}

    def look(part, data):
        data = part.get("data", data)
        if "mark" in part:
            one = {**part["encoding"], "values": data["values"]}
            found.setdefault(part["mark"]["type"], []).append(one)
        for layer in part.get("layer", []):
            look(layer, data)

    look(chart.to_dict(), None)
    return found


def test_measured_and_published_never_share_a_mark():
    fp16 = arm(Format("fp16", "channels_last"), 20.0)
    published = {
        fp16.arm: like_for_like(
            fp16.format, model="resnet50", gpu_name="Tesla V100-SXM2-32GB"
        )
    }

    chart = arms_chart([BASELINE, fp16], published, device_type="cuda")

    marks = _marks(chart)
    [diamonds] = marks["point"]
    assert [row["images_per_second"] for row in diamonds["values"]] == [1156.0]
    for kind in set(marks) - {"point"}:
        assert all("series" not in one["values"][0] for one in marks[kind])
    assert png(chart).startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("suspicions", "doubt"), [((), ""), (DIVERGED, "wrong answer?")]
)
def test_a_suspect_arm_is_marked_in_the_chart(suspicions, doubt):
    wrong = arm(Format("fp16", "channels_last"), 3.0, suspicions)

    chart = arms_chart([BASELINE, wrong], {}, device_type="cpu")

    [circles] = _marks(chart)["circle"]
    assert circles["values"][1]["doubt"] == doubt
    assert chart.to_dict()["title"]["subtitle"].startswith("CPU, functional; ")


def test_an_interval_of_two_runs_does_not_press_the_chart_flat():
    far = MeasuredArm(
        arm=FP32.name,
        format=FP32,
        images_per_second=summarise([80.0, 120.0]),
        against=None,
        answer=BASELINE.answer,
    )

    chart = arms_chart([far], {}, device_type="cpu")

    [circles] = _marks(chart)["circle"]
    assert circles["x"]["scale"]["domain"] == [0, 150]
    assert "beyond the chart where it is cut" in chart.to_dict()["title"]["subtitle"]
