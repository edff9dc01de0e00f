"""What bounds a run is read from its folder: here from real runs on CPUs.

Many rounds of each, and of more causes, are in tests/soak.
"""

from __future__ import annotations

import gzip
import json

import nbkit
from tests.launch.conftest import plugins, small, store
from tests.review.planted import named_first, starved_by_naive_loader

__all__ = ["plugins", "small", "store"]


def is_named_first(found, code):
    """See that a cause is named before all others, with something to gain."""
    assert named_first(found, code), str(found)
    [cause] = [one for one in found if one.code == code]
    assert cause.gain.high > 1


def test_a_loader_that_starves_a_run_is_named_first(small, tmp_path):
    is_named_first(starved_by_naive_loader(small, tmp_path), "input")


def test_a_slow_rank_is_named_first_beside_a_profile_whose_steps_do_not_count(small):
    config = small(gpus=2, model="lags", steps=60, profile=True)

    run = nbkit.launch(config).wait(300)

    found, lines = run.diagnose(), run.metrics()
    is_named_first(found, "slow-rank")
    # Three steps of rank 0 are traced, and five of all ranks do not count.
    assert [line["step"] for line in lines if line.get("profiled")] == [3, 4, 5, 6, 7]
    measured = [line["step"] for line in lines if not line["warmup"]]
    assert measured == [*range(8, 61)]
    assert [rank["steps"] for rank in run.worker["ranks"]] == [53, 53]
    with gzip.open(str(run.profile), "rt") as file:
        events = json.load(file)["traceEvents"]
    traced = {one["name"] for one in events if "ProfilerStep" in one.get("name", "")}
    assert len(traced) == 3
    names = [one["name"] for one in found.profile["operators"]]
    assert "aten::addmm" in names
    assert "Profile of 3 steps of rank 0, time on CPUs:" in str(found)
