"""A study runs its arms in an order that favours none of them."""

from __future__ import annotations

import pytest

from nbkit.studies.order import balanced_order


def test_two_arms_run_in_the_order_abba():
    assert [slot.arm for slot in balanced_order(["a", "b"], 2)] == ["a", "b", "b", "a"]


@pytest.mark.parametrize("num_arms", [2, 3, 7])
def test_every_arm_has_the_same_mean_position_after_an_even_number_of_repeats(num_arms):
    arms = [f"arm {index}" for index in range(num_arms)]

    order = balanced_order(arms, 4)

    positions = {
        arm: [place for place, slot in enumerate(order) if slot.arm == arm]
        for arm in arms
    }
    assert {sum(places) for places in positions.values()} == {sum(positions[arms[0]])}
    assert [len(places) for places in positions.values()] == [4] * num_arms


def test_repeats_of_an_arm_are_counted():
    order = balanced_order(["a", "b", "c"], 3)

    assert len(set(order)) == 9
    assert [slot.repeat for slot in order] == [0] * 3 + [1] * 3 + [2] * 3
