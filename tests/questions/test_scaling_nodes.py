"""Which node and rank the others of a run wait for."""

from __future__ import annotations

import pytest

from nbkit.questions.scaling.nodes import node_table, node_times, stragglers

STEPS = 100


def ranks(*own_ms, step_ms=120.0, nodes=None):
    """Return what the ranks of a run wrote: each waits for the slowest."""
    return [
        {
            "rank": rank,
            "steps": STEPS,
            "step_time_seconds": STEPS * step_ms / 1e3,
            "data_wait_seconds": STEPS * 0.006,
            "communication_exposed_seconds": STEPS * (step_ms - own) / 1e3,
            **({} if nodes is None else {"node": nodes[rank]}),
        }
        for rank, own in enumerate(own_ms)
    ]


def times(*own_ms, nnodes=2, names=("n1", "n2"), arm="fp16", **facts):
    found = node_times(arm, nnodes, ranks(*own_ms), names, **facts)
    assert found is not None
    return found


def test_the_rank_that_the_others_wait_for_is_named_with_its_node():
    runs = [times(100, 100, 100, 110), times(101, 100, 99, 112)]

    (slow,) = stragglers(runs)

    assert (slow.node, slow.local_rank, slow.ranks) == ("n2", 1, (3,))
    assert slow.excess == pytest.approx((0.10 + 12 / 100.5 - 0.5 / 100.5) / 2, rel=0.05)
    assert slow.sentence.startswith(
        "Straggler (fp16, 2 x 2 ranks): rank 3 on n2 (local rank 1), "
    )
    assert "slower than the median rank (n=2)" in slow.sentence


def test_a_place_is_known_again_where_the_queue_gave_the_nodes_in_another_order():
    runs = [
        times(100, 100, 110, 100),
        times(110, 100, 100, 100, names=("n2", "n1")),
    ]

    (slow,) = stragglers(runs)

    assert (slow.node, slow.local_rank, slow.ranks) == ("n2", 0, (0, 2))
    assert "ranks 0, 2 on n2" in slow.sentence


def test_what_is_slow_in_one_run_of_three_is_no_straggler():
    even = times(100, 100, 100, 100)

    assert stragglers([even, even, times(100, 100, 100, 130)]) == []


def test_ranks_say_their_node_themselves_and_else_it_is_known_by_its_place():
    told = node_times("fp16", 2, ranks(100, 100, nodes=["a", "b"]), ("x", "y"))
    unknown = node_times("fp16", 2, ranks(100, 100))

    assert told is not None
    assert unknown is not None
    assert [rank.node for rank in told.ranks] == ["a", "b"]
    assert [rank.node for rank in unknown.ranks] == ["node 0", "node 1"]


def test_each_node_has_a_row_with_its_difference():
    used = {"gpu_utilization_samples": 10, "gpu_utilization_percent_sum": 900}
    system = {"nodes": {"n1": {"gpus": {"GPU-a": used}}, "n2": None}}
    run = times(100, 102, 109, 111, system=system)

    one, two = node_table([run, times(100, 100, nnodes=1, names=("n1",))])

    assert (one.node, one.world_size, one.nnodes, one.runs) == ("n1", 4, 2, 1)
    assert one.own_seconds == pytest.approx(0.101)
    assert one.against_median == pytest.approx(101 / 105.5)
    assert two.against_median == pytest.approx(110 / 105.5)
    assert one.communication_share == pytest.approx(19 / 120)
    assert two.communication_share == pytest.approx(10 / 120)
    assert one.data_wait_share == pytest.approx(0.05)
    assert (one.gpu_utilization_percent, two.gpu_utilization_percent) == (90, None)


def test_a_run_whose_ranks_have_not_told_says_nothing():
    half = [*ranks(100), {"rank": 1}]

    assert node_times("fp16", 1, []) is None
    assert node_times("fp16", 1, half) is None


def test_a_lone_rank_has_nobody_to_wait_for():
    assert stragglers([times(100, nnodes=1)]) == []
    assert node_table([times(100, nnodes=1)]) == []


def test_a_rank_0_that_waits_for_its_input_is_who_the_others_wait_for():
    # They wait for its buffers in the forward pass: all have the same own time.
    lines = ranks(110, 110, 110, 110)
    lines[0]["data_wait_seconds"] = STEPS * 0.039
    hungry = node_times("fp16", 2, lines, ("n1", "n2"))
    lines = ranks(110, 110, 110, 110)
    lines[3]["data_wait_seconds"] = STEPS * 0.039
    other = node_times("fp16", 2, lines, ("n1", "n2"))

    (slow,) = stragglers([hungry])

    assert (slow.node, slow.ranks) == ("n1", (0,))
    assert slow.excess == pytest.approx(33 / 110)
    assert stragglers([other]) == [], "what another rank waits for is its own time"
