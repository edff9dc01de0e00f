"""What bounds a run is read from its folder: here from real runs on CPUs.

Many rounds of each, and of more causes, are in tests/soak.
"""

from __future__ import annotations

import pytest

from tests.launch.conftest import plugins, small, store
from tests.review.planted import (
    named_first,
    rank_that_computes_longer,
    starved_by_naive_loader,
)

__all__ = ["plugins", "small", "store"]


@pytest.mark.parametrize(
    ("plant", "code"),
    [
        (starved_by_naive_loader, "input"),
        (rank_that_computes_longer, "slow-rank"),
    ],
)
def test_what_was_planted_is_named_first(plant, code, small, tmp_path):
    found = plant(small, tmp_path)

    assert named_first(found, code), str(found)
    [cause] = [one for one in found if one.code == code]
    assert cause.gain.high > 1
