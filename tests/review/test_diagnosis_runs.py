"""What bounds a run is read from its folder: here from real runs on CPUs.

Many rounds of each, and of more causes, are in tests/soak.
"""

from __future__ import annotations

import pytest

from tests.launch.conftest import plugins, small, store
from tests.review.planted import (
    OF_THE_HOST,
    healthy,
    named_first,
    pinned_to_one_core,
    rank_that_computes_longer,
    starved_by_naive_loader,
    tiny_batch,
)

__all__ = ["plugins", "small", "store"]


@pytest.mark.parametrize(
    ("plant", "code"),
    [
        (starved_by_naive_loader, "input"),
        (rank_that_computes_longer, "slow-rank"),
        (pinned_to_one_core, "cpu-allocation"),
        (tiny_batch, "batch"),
    ],
)
def test_what_was_planted_is_named_first(plant, code, small, tmp_path):
    found = plant(small, tmp_path)

    if code == "batch" and found.disturbances:
        # Where others use the CPUs, a step says nothing about the batch.
        assert found.unknown[0].startswith("whether the batch is too small")
        return
    assert named_first(found, code), str(found)
    [cause] = [one for one in found if one.code == code]
    assert cause.kind.severity == "limit" or cause.gain.high > 1


def test_nothing_is_named_where_nothing_was_planted(small, tmp_path):
    found = healthy(small, tmp_path)

    assert {cause.code for cause in found} <= OF_THE_HOST, str(found)
