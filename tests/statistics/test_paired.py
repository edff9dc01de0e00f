"""Accuracies on the same images, held against exact and simulated truths."""

import pytest

from nbkit.errors import NotEnoughDataError
from nbkit.statistics import images_needed, paired_accuracy, share_interval


def pairs(both, only_a, only_b, neither):
    a = [True] * (both + only_a) + [False] * (only_b + neither)
    b = [True] * both + [False] * only_a + [True] * only_b + [False] * neither
    return a, b


def test_what_counts_is_on_how_many_images_only_one_is_right():
    found = paired_accuracy(*pairs(80, 2, 10, 8))

    assert (found.images, found.only_a, found.only_b) == (100, 2, 10)
    assert found.a_accuracy == 0.82
    assert found.b_accuracy == 0.9
    assert found.difference == pytest.approx(-0.08)
    # The exact binomial test of 2 among 12: 2 (1 + 12 + 66) / 4096.
    assert found.p_value == pytest.approx(158 / 4096)
    assert found.ci_low < -0.08 < found.ci_high


@pytest.mark.parametrize(
    ("counts", "verdict"),
    [
        ((2000, 0, 0, 0), "kept"),
        ((96, 0, 0, 0), "too few images to tell"),
        ((80, 0, 30, 10), "lost"),
        ((900, 5, 20, 75), "lower"),
        ((50, 5, 6, 40), "too few images to tell"),
        ((900, 40, 5, 55), "kept"),
    ],
)
def test_a_verdict_needs_the_whole_interval(counts, verdict):
    assert paired_accuracy(*pairs(*counts)).verdict == verdict


def test_models_that_agree_on_every_image_still_have_an_interval():
    few = paired_accuracy(*pairs(50, 0, 0, 50))
    many = paired_accuracy(*pairs(5000, 0, 0, 5000))

    assert few.difference == 0
    assert few.p_value == 1
    assert few.ci_low < many.ci_low < 0 < many.ci_high < few.ci_high


def test_images_have_to_be_the_same():
    with pytest.raises(NotEnoughDataError, match="a_correct has 2 images, b_correct 1"):
        paired_accuracy([True, False], [True])
    with pytest.raises(NotEnoughDataError, match="a_correct has 0 images, b_correct 0"):
        paired_accuracy([], [])


@pytest.mark.parametrize("margin", [0.005, 0.01, 0.02])
def test_the_fewest_images_are_those_of_which_kept_can_be_said(margin):
    needed = images_needed(margin)

    enough, fewer = (
        paired_accuracy(*pairs(images, 0, 0, 0), margin=margin)
        for images in (needed, needed - 1)
    )
    assert (enough.verdict, fewer.verdict) == ("kept", "too few images to tell")


def test_a_share_has_the_interval_that_wilson_printed():
    # 9 of 10 at 95 %: Agresti and Coull (1998) give 0.596 to 0.982.
    assert share_interval(9, 10) == pytest.approx((0.596, 0.982), abs=5e-4)
    low, high = share_interval(96, 96)
    assert 0.96 < low < high == 1
    with pytest.raises(NotEnoughDataError, match="3 of 2 images"):
        share_interval(3, 2)
