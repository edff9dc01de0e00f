"""How intervals are said."""

from __future__ import annotations

import pytest

from nbkit.statistics import interval_in_words, noise_floor, ratio
from nbkit.statistics.quantities import device_label, elapsed


def test_an_interval_is_its_two_ends():
    assert interval_in_words(0.98, 1.0431) == "[0.980, 1.043]"
    assert interval_in_words(950.0, 1_050.0, "{:,.0f}".format) == "[950, 1,050]"


def test_an_interval_that_says_nothing_has_no_figures():
    assert interval_in_words(0.001, 1_070.8) == "wider than 100-fold"
    assert interval_in_words(0.0, 5.0) == "wider than 100-fold"


def test_two_runs_that_differ_widely_give_no_absurd_figures():
    wide, narrow = [18.0, 3.0], [14.0, 13.0]

    found = ratio(wide, narrow, a_name="bf16", b_name="fp32")
    control = noise_floor(narrow, wide)

    assert "95% CI wider than 100-fold" in found.sentence
    assert "limit of detection" in control.sentence


@pytest.mark.parametrize(
    ("device_type", "count", "nodes", "label"),
    [
        ("cuda", 1, 1, "1 GPU"),
        ("cuda", 16, 2, "2 x 8 GPUs"),
        ("cuda", 16, 16, "16 x 1 GPU"),
        ("cpu", 2, 1, "2 CPU processes"),
        ("cpu", 4, 2, "2 x 2 CPU processes"),
    ],
)
def test_device_label(device_type, count, nodes, label):
    assert device_label(device_type, count, nodes) == label


def test_elapsed_has_the_two_largest_units():
    seconds = (None, 0.4, 46.5, 162.4, 3_605, 5_400, 97_200)
    words = ["–", "0 s", "47 s", "2 min 42 s", "1 h", "1 h 30 min", "1 d 3 h"]

    assert [*map(elapsed, seconds)] == words
