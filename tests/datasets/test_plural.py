"""Counts with their noun."""

import pytest

from nbkit.plural import plural


@pytest.mark.parametrize(
    ("count", "nouns", "said"),
    [
        (1, ("image",), "1 image"),
        (0, ("image",), "0 images"),
        (1200, ("image",), "1,200 images"),
        (1, ("class", "classes"), "1 class"),
        (2, ("class", "classes"), "2 classes"),
    ],
)
def test_a_noun_fits_its_count(count, nouns, said):
    assert plural(count, *nouns) == said
