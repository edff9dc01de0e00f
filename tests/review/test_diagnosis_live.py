"""The live view says what bounds a run from the steps that it reads anyway."""

from __future__ import annotations

import json

from nbkit.live.run import LiveRun
from tests.widgets.stored_run import WrittenRun, step

ENDED = {"time": {"running": None, "ended": "2020-01-01T00:02:00.000Z"}}


def shown(live):
    live.read()
    numbers = live.snapshot()["numbers"]
    return numbers["bottleneck"], numbers["suggestion"]


def test_what_bounds_a_run_is_shown_once_there_are_steps_enough(tmp_path):
    written = WrittenRun(tmp_path, gpus=1, data="/images", loader="naive")
    live = LiveRun(written.run)

    assert shown(live) == (None, None)
    written.append(*(step(number, warmup=True) for number in range(1, 40)))
    assert shown(live) == (None, None)
    written.append(*(step(number) for number in range(40, 60)))

    bottleneck, change = shown(live)

    assert bottleneck == "input (25% of the time)"
    assert change.startswith("use loader='torch'")


def test_steps_that_show_nothing_are_said_to_show_nothing(tmp_path):
    written = WrittenRun(tmp_path, gpus=1)
    written.append(*(step(n, data_wait_seconds=0.0) for n in range(1, 30)))

    assert shown(LiveRun(written.run)) == ("none detected", None)


def test_at_the_end_the_ranks_own_times_take_the_place_of_rank_0s(tmp_path):
    written = WrittenRun(tmp_path)
    quiet = {"data_wait_seconds": 0.0, "update_seconds": 0.01}
    written.append(*(step(number, **quiet) for number in range(1, 30)))
    live = LiveRun(written.run)
    assert shown(live)[0] == "gradient all-reduce (25% of the time)"

    times = {"steps": 29, "step_time_seconds": 29.0, "data_wait_seconds": 0.0}
    ranks = [
        {"rank": 0, **times, "communication_exposed_seconds": 7.25},
        {"rank": 1, **times, "communication_exposed_seconds": 0.1},
    ]
    written.run.paths.worker.write_text(json.dumps({"world_size": 2, "ranks": ranks}))
    written.record("finished", **ENDED)

    assert shown(live)[0] == "slow rank (25% of the time)"


def test_a_function_has_no_steps_to_tell_from(tmp_path):
    written = WrittenRun(tmp_path, task="function")
    line = {"kind": "log", "attempt": 0, "step": 1, "values": {"loss": 1.0}}
    written.append(line)

    assert shown(LiveRun(written.run)) == (None, None)
