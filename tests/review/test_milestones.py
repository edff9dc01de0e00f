"""How long a training took to its target is told by its run folder alone."""

from __future__ import annotations

import pytest

from nbkit.errors import ConfigError, NotEnoughDataError
from nbkit.review.milestones import (
    RecipeTimes,
    TimeToTarget,
    compare_recipes,
    cost,
    startup_seconds,
    time_to_target,
)
from nbkit.statistics import Ratio
from nbkit.store.metrics import to_json_line
from tests.review.trained_run import BEGIN, trained_run


def test_time_ends_with_the_evaluation_that_reached_the_target(tmp_path):
    run = trained_run(tmp_path, {1: 0.3, 2: 0.5, 3: 0.76, 4: 0.77})

    found = time_to_target(run)

    # Three epochs of ten seconds, and three evaluations of four.
    assert found.reached
    assert found.seconds == pytest.approx(42.0)
    assert found.evaluation_seconds == pytest.approx(12.0)
    assert found.training_seconds == pytest.approx(30.0)
    assert (found.epochs, found.images, found.seed) == (3, 3_000, 3)
    assert found.startup_seconds == pytest.approx(20.0)
    assert [point.accuracy for point in found.curve] == [0.3, 0.5, 0.76, 0.77]
    assert found.curve[0].seconds == pytest.approx(14.0)


def test_a_run_that_did_not_reach_it_has_no_time_and_is_watched_to_its_end(tmp_path):
    found = time_to_target(trained_run(tmp_path, {1: 0.3, 2: 0.7589}))

    assert not found.reached
    assert {found.seconds, found.epochs, found.images, found.joules} == {None}
    assert found.watched_seconds == pytest.approx(28.0)
    assert found.best_accuracy == 0.7589


def test_pauses_between_attempts_are_not_part_of_the_time(tmp_path):
    run = trained_run(tmp_path, {1: 0.3, 2: 0.8})
    lines = run.metrics(None)
    resumed = [line["kind"] for line in lines].index("evaluation") + 1
    for line in lines[resumed:]:
        line |= {"attempt": 1, "t": line["t"] + 18_000}
    run.paths.metrics.write_text("".join(map(to_json_line, lines)))

    found = time_to_target(run)

    assert found.seconds == pytest.approx(28.0)
    assert found.curve[1].seconds == pytest.approx(28.0)
    assert found.paused_seconds == pytest.approx(18_000)


def test_another_target_may_be_asked_for(tmp_path):
    run = trained_run(tmp_path, {1: 0.3, 2: 0.5, 3: 0.76}, target_accuracy=None)

    assert time_to_target(run, target=0.5).epochs == 2
    with pytest.raises(ConfigError, match="target_accuracy=None"):
        time_to_target(run)


def test_steps_whose_end_is_noticed_late_do_not_move_the_start(tmp_path):
    run = trained_run(tmp_path, {1: 0.8}, noticed_late=2.5)

    assert time_to_target(run).seconds == pytest.approx(14.0)


def test_what_a_plugin_logs_before_a_step_does_not_move_the_start(tmp_path):
    plain = trained_run(tmp_path / "plain", {1: 0.3, 2: 0.8})
    logged = trained_run(tmp_path / "logged", {1: 0.3, 2: 0.8})
    lines = []
    for line in logged.metrics(None):
        # As a model does that calls nbkit.log in its forward pass.
        if line["kind"] == "step":
            lines.append({**line, "kind": "log", "t": line["t"] - 0.5})
        lines.append(line)
    logged.paths.metrics.write_text("".join(map(to_json_line, lines)))

    assert len(logged.metrics("log")) == 20
    assert time_to_target(logged) == time_to_target(plain)


def test_the_start_is_that_of_the_attempt_with_the_first_step(tmp_path):
    first = {"number": 0, "started": "2020-01-01T00:00:05.000Z"}
    again = {"started": "2020-01-01T00:00:40.000Z", "running": None, "ended": None}

    known = {"time": again, "attempt": 1, "attempts": [first]}
    assert startup_seconds(
        trained_run(tmp_path / "known", {1: 0.8}, record=known)
    ) == pytest.approx(25.0)
    unknown = {"time": again, "attempt": 1, "attempts": []}
    run = trained_run(tmp_path / "unknown", {1: 0.8}, record=unknown)
    assert startup_seconds(run) is None


def test_without_an_evaluation_nothing_is_known(tmp_path):
    with pytest.raises(NotEnoughDataError, match="10 steps and 0 evaluations"):
        time_to_target(trained_run(tmp_path, {}, epochs=1))


@pytest.mark.parametrize(
    ("restart", "used"), [(-5, 2 * 250.0 * 28), (10, None)], ids=["before", "between"]
)
def test_joules_from_the_first_image_to_the_target_of_one_attempt(
    tmp_path, restart, used
):
    run = trained_run(tmp_path, {1: 0.3, 2: 0.8, 3: 0.9})
    path = run.paths.system("node1")
    path.parent.mkdir()
    lines = [{"kind": "header"}]
    for second in range(-10, 60):
        if second == restart:
            lines.append({"kind": "header"})
        each = [{"uuid": f"GPU-{n}", "energy_joules": 250.0 * second} for n in range(2)]
        lines.append({"kind": "sample", "t": BEGIN + second, "gpus": each})
    path.write_text("".join(map(to_json_line, lines)))

    joules = time_to_target(run).joules
    assert joules == (used and pytest.approx(used))


def test_cost_is_price_times_hours_and_unknown_without_one_of_them():
    assert cost(1_800.0, 32.0) == 16.0
    assert cost(None, 32.0) is None
    assert cost(1_800.0, None) is None


def seed(number, seconds, epochs=35):
    return TimeToTarget(
        run_id=f"run {number}",
        seed=number,
        target=0.759,
        reached=seconds is not None,
        seconds=seconds,
        evaluation_seconds=None if seconds is None else 0.1 * seconds,
        startup_seconds=5.0,
        epochs=None if seconds is None else epochs,
        images=None,
        joules=None,
        watched_seconds=seconds or 999.0,
        best_accuracy=0.76,
        curve=(),
    )


def recipe(name, *seconds):
    return RecipeTimes(name, tuple(seed(n, s) for n, s in enumerate(seconds)))


def test_a_recipe_counts_the_seeds_that_never_got_there():
    found = recipe("lars", 100.0, 110.0, None)

    assert (found.times.n, found.times.reached) == (3, 2)
    assert found.times.median == 110.0
    assert found.epochs.median == 35
    assert found.evaluation_share == pytest.approx(0.1)
    assert recipe("lars", None).evaluation_share is None


def test_a_target_may_be_reached_within_the_first_epoch():
    found = RecipeTimes("lars", (seed(0, 9.0, epochs=0), seed(1, 20.0, epochs=1)))

    assert (found.epochs.median, found.epochs.ci_low) == (0.5, None)


def test_recipes_are_compared_by_their_times_and_less_is_faster():
    fast = recipe("lars", *(100.0 + n for n in range(5)))
    slow = recipe("sgd", *(200.0 + n for n in range(5)))

    found = compare_recipes(fast, slow)

    assert isinstance(found, Ratio)
    assert found.verdict == "faster"
    assert found.estimate == pytest.approx(102 / 202)
    assert "lars is faster than sgd" in found.sentence


def test_a_verdict_is_withheld_where_a_seed_did_not_get_there():
    sure = recipe("sgd", *(200.0 + n for n in range(5)))
    unsure = recipe("lars", 100.0, 101.0, 102.0, 103.0, None)

    for pair in ((unsure, sure), (sure, unsure)):
        assert compare_recipes(*pair) == (
            "verdict withheld, because 1 of 5 seeds of lars did not reach the target"
        )
