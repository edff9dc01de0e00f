"""Slots of history, filled as a day would fill them."""

from __future__ import annotations

import base64
import json

import pytest

from nbkit.server.history import GAP, History

NOON = 1_700_000_000.0  # a multiple of 100 s, in the middle of a slot of 30 s


def row(percent: float | None = 50.0) -> tuple[float | None, ...]:
    return (percent, percent, percent)


def column(part: dict, uuid: str = "GPU-0", name: str = "utilization_percent"):
    columns = part["gpus"][uuid] if uuid else part["host"]
    values = base64.b64decode(columns[name])
    assert len(values) == part["count"]
    return list(values)


def a_day(gpus: int) -> History:
    history = History(1.0)
    uuids = [f"GPU-{number:08x}-0000-0000-0000-000000000000" for number in range(gpus)]
    end = 25 * 3600
    # Before the last half hour only long slots are left: fewer samples fill them.
    for second in [*range(0, end - 1800, 10), *range(end - 1800, end)]:
        percent = second // 30 % 101
        values = dict.fromkeys(uuids, row(percent))
        history.add(second, NOON + second, values, (percent, percent))
    return history


@pytest.mark.parametrize("gpus", [1, 16])
def test_a_day_of_history_is_small_on_the_wire(gpus: int):
    history = a_day(gpus)

    message = json.dumps({"parts": history.parts()})
    assert len(message) < 400_000
    fine, coarse = history.parts()
    assert (fine["interval_seconds"], fine["count"]) == (1, 1800)
    assert (coarse["interval_seconds"], coarse["count"]) == (30, 2880)
    assert coarse["t0"] + 24 * 3600 >= NOON + 25 * 3600
    assert GAP not in column(coarse, "", "cpu_percent")


def test_values_are_where_their_time_is():
    history = History(1.0)
    for second in range(5):
        history.add(second, NOON + second, {"GPU-0": row(10 * second)}, (second, None))

    fine, coarse = history.parts()
    assert fine["t0"] == NOON
    assert column(fine) == [0, 10, 20, 30, 40]
    assert column(fine, "", "cpu_percent") == [0, 1, 2, 3, 4]
    assert fine["host"].keys() == {"cpu_percent"}  # the other was never known
    assert coarse["t0"] == NOON // 30 * 30
    assert column(coarse) == [20]


def test_a_pause_is_a_gap_and_an_uneven_clock_is_none():
    history = History(1.0)
    for number, t in enumerate([0.9, 2.1, 3.0, 3.9, 10.0]):
        history.add(number, NOON + t, {"GPU-0": row()}, (1, 1))

    fine = history.parts()[0]
    assert column(fine) == [50] * 4 + [GAP] * 6 + [50]


@pytest.mark.parametrize(
    ("interval_seconds", "percents", "slots"),
    [(0.25, [0, 100, 100, 100], [75]), (5.0, [0, 1, 2, 3], [0, 1, 2, 3])],
)
def test_history_slot_is_a_mean_and_no_shorter_than_the_interval(
    interval_seconds, percents, slots
):
    history = History(interval_seconds)
    for number, percent in enumerate(percents):
        t = NOON + number * interval_seconds
        history.add(number, t, {"GPU-0": row(percent)}, (1, 1))

    fine = history.parts()[0]
    assert fine["interval_seconds"] == max(1, interval_seconds)
    assert column(fine) == slots


def test_what_is_unknown_is_a_gap_and_what_is_too_much_is_full():
    history = History(1.0)
    history.add(1, NOON, {"GPU-0": (None, 104.0, -1.0)}, (1, 1))
    history.add(2, NOON + 1, {"GPU-0": (30.0, 104.0, 0.0)}, (1, 1))

    fine = history.parts()[0]
    assert column(fine) == [GAP, 30]
    assert column(fine, "GPU-0", "memory_used_percent") == [100, 100]
    assert column(fine, "GPU-0", "power_percent") == [0, 0]


def test_the_past_fills_gaps_and_changes_nothing_else():
    history = History(1.0)
    history.add(1, NOON + 4, {"GPU-0": row(90)}, (90, 90))
    rows = [
        [NOON + t, {"GPU-0": row(10), "GPU-1": row(20)}, [30, 30]] for t in range(7)
    ]
    history.fill(rows, NOON + 5)
    history.add(2, NOON + 5, {"GPU-0": row(80)}, (80, 80))

    fine = history.parts()[0]
    assert fine["t0"] == NOON
    assert column(fine) == [10, 10, 10, 10, 90, 80]  # and nothing of the future
    assert column(fine, "GPU-1") == [20] * 6
    assert column(fine, "", "cpu_percent") == [30, 30, 30, 30, 90, 80]


@pytest.mark.parametrize("pause_seconds", [0, 7200])
def test_the_past_comes_before_the_first_sample_too(pause_seconds):
    history = History(1.0)
    if pause_seconds:  # somebody has looked before
        history.add(0, NOON - pause_seconds, {}, (None, None))
    rows = [[NOON - 3600 + 30 * n, {"GPU-0": row(n)}, [n, n]] for n in range(100)]
    history.fill(rows, NOON)

    fine, coarse = history.parts()
    assert column(coarse) == list(range(100)) + [GAP] * (coarse["count"] - 100)
    assert fine["t0"] + fine["count"] - 1 == NOON
    assert history.newest_seq == 0


def test_a_viewer_gets_only_slots_that_end_after_what_it_knows():
    history = History(1.0)
    for second in range(100):
        history.add(1000 + second, NOON + second, {"GPU-0": row(second)}, (1, 1))

    fine, coarse = history.parts(history.time_of(1090))
    assert fine["t0"] == NOON + 90
    assert column(fine) == list(range(90, 100))
    assert coarse["t0"] <= NOON + 90 < coarse["t0"] + 30
    assert history.time_of(999) is None
    assert history.time_of(5000) == NOON + 99
    assert history.parts(NOON + 150)[0]["count"] == 0


def test_what_is_older_than_a_ring_is_forgotten():
    history = History(1.0)
    history.add(1, NOON, {"GPU-0": row(1)}, (1, 1))
    history.add(2, NOON + 1800, {"GPU-0": row(2)}, (1, 1))
    history.add(3, NOON + 90_000, {"GPU-0": row(3)}, (1, 1))

    fine, coarse = history.parts()
    assert column(fine) == [3]
    assert column(coarse) == [3]


def test_a_clock_that_is_set_back_drops_what_is_ahead_of_it():
    history = History(1.0)
    for second in range(10):
        history.add(second, NOON + second, {"GPU-0": row(second)}, (1, 1))
    history.add(10, NOON + 4, {"GPU-0": row(77)}, (1, 1))

    assert column(history.parts()[0]) == [0, 1, 2, 3, 77]
