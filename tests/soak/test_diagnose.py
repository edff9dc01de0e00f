"""What bounds a run is named in nine of ten rounds, and nothing where nothing does.

Each round is a real run on CPUs. What only GPUs can show is in tests/review, from
folders that are written by hand. It wants an idle machine: one on which others compute
on every CPU is bound by them, whatever is planted.
"""

from __future__ import annotations

import pytest

from tests.launch.conftest import plugins, small, store
from tests.review.planted import (
    OF_THE_HOST,
    PLANTED,
    healthy,
    healthy_ranks,
    named_first,
)

__all__ = ["plugins", "small", "store"]

ROUNDS = 20

CASES = [(code, plant) for code, plants in PLANTED.items() for plant in plants]


@pytest.mark.timeout(7200)
def test_the_planted_cause_is_named_first_in_nine_of_ten_rounds(small, tmp_path):
    named = {
        plant.__name__: [
            named_first(plant(small, tmp_path), code) for _ in range(ROUNDS)
        ]
        for code, plant in CASES
    }

    print({name: sum(rounds) for name, rounds in named.items()})
    hits = [hit for rounds in named.values() for hit in rounds]
    assert sum(hits) >= 0.9 * len(hits)
    assert all(sum(rounds) >= 0.8 * ROUNDS for rounds in named.values())


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("train", [healthy, healthy_ranks])
def test_nothing_is_named_where_nothing_was_planted(train, small, tmp_path):
    found = [train(small, tmp_path) for _ in range(ROUNDS)]

    codes = [{one.code for one in each} - OF_THE_HOST for each in found]
    print(codes)
    assert sum(map(bool, codes)) <= 0.1 * ROUNDS
