"""What the layout does to 16 bits, here and in published tables."""

from __future__ import annotations

import pytest

from nbkit.questions.precision.layouts import (
    Format,
    layout_effects,
    layout_sentence,
    left_out_sentences,
    like_for_like,
)
from nbkit.references.rows import published_pairs
from nbkit.review.findings import codes

FP32 = Format("fp32", "channels_last")
RATES = {
    FP32: [360.0, 362.0, 358.0, 361.0, 359.0],
    Format("fp16", "channels_last"): [1150.0, 1160.0, 1155.0, 1157.0, 1153.0],
    Format("fp16", "channels_first"): [790.0, 795.0, 785.0, 792.0, 788.0],
}


def test_the_layout_alone_is_a_ratio_with_interval_and_verdict():
    [fp16] = layout_effects(RATES, FP32)

    assert fp16.last is not None
    assert fp16.last.estimate == pytest.approx(1155 / 360)
    assert fp16.first.estimate == pytest.approx(790 / 360)
    assert fp16.effect.estimate == pytest.approx(1155 / 790)
    assert fp16.effect.ci_low is not None
    assert fp16.effect.ci_low > 1.4
    assert fp16.effect.verdict == "faster"
    assert layout_sentence([fp16]) == fp16.effect.sentence


def test_what_a_wrong_answer_gains_is_left_out_and_it_is_said():
    bf16 = {
        Format("bf16", one.memory_format): runs
        for one, runs in RATES.items()
        if one.precision == "fp16"
    }
    wrong = Format("fp16", "channels_last")

    effects = layout_effects({**RATES, **bf16}, FP32, suspect={wrong})

    assert [one.precision for one in effects] == ["bf16"]
    [omitted] = left_out_sentences(RATES, FP32, {wrong})
    assert omitted.endswith("channels_last is omitted, because its loss is suspect.")
    assert left_out_sentences(RATES, FP32, set()) == []
    # Of a suspect baseline there is no gain to show.
    assert layout_effects(RATES, FP32, suspect={FP32}) == []
    [text] = left_out_sentences(RATES, FP32, {FP32})
    assert "the loss of the baseline fp32, channels_last is suspect" in text


def test_the_baseline_has_an_effect_of_its_own_and_is_no_trap():
    rates = {FP32: RATES[FP32], Format("fp32", "channels_first"): [370.0, 371.0]}

    [fp32] = layout_effects(rates, FP32)

    assert fp32.last is None
    assert layout_sentence([fp32]) is None


def test_published_pairs_are_those_of_the_sources():
    pairs = [
        (pair.first.images_per_second, pair.last.images_per_second)
        for pair in published_pairs()
    ]

    assert pairs == [
        (790.033, 1156.0),
        (1450.0, 2150.0),
        (826.06, 1218.01),
    ]
    assert published_pairs()[0].ratio == pytest.approx(1.463, abs=1e-3)


def test_the_reason_of_the_audit_takes_its_numbers_from_published_pairs():
    why = codes()["layout"].why

    for pair in published_pairs():
        for row in (pair.first, pair.last):
            assert f"{row.images_per_second:,.0f}" in why
    assert "2,470" not in why


def test_only_results_in_the_same_format_stand_beside_an_arm():
    asked = {"model": "resnet50", "gpu_name": "NVIDIA A100-SXM4-80GB"}

    eager = like_for_like(Format("fp16", "channels_last"), **asked)
    compiled = like_for_like(Format("fp16", "channels_last", True), **asked)
    first = like_for_like(Format("fp16", "channels_first"), **asked)

    assert eager[0].images_per_second == 2600.0
    assert {row.memory_format for row in eager} == {"channels_last"}
    assert [row.compile for row in compiled] == [True]
    assert all(row.images_per_second < 1600 for row in first)
    assert like_for_like(Format("fp32", "channels_last"), **asked) == []
    assert like_for_like(FP32, model="resnet50", gpu_name=None) == []
