"""The tuner finds a setting near the best in a third of the grid, and says why."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from nbkit.questions.input_pipeline.trials import (
    Grid,
    LoaderSetting,
    Trial,
    Tuning,
    tune,
)

RECORDED = json.loads((Path(__file__).parent / "response_surface.json").read_text())
"""A full grid that was measured, one run a setting, on a busy machine of two cores:
loaders whose reads take 10 ms each, and an emulated GPU. tests/soak/test_tuner.py
records it."""

NEAR = 0.95
LARGE = Grid(["torch", "tfrecord"], [1, 2, 4, 8, 16, 32], [2, 4, 8])


def on(surface, *, noise=0.0, seed=0, demand=None):
    """Return a way to measure on a surface: rates by setting, or a function of it."""
    drawn = random.Random(seed)

    def measure(setting, why):
        supply = surface(setting) if callable(surface) else surface[setting]
        rate = supply * drawn.uniform(1 - noise, 1 + noise)
        if demand is None:
            return Trial(setting, rate)
        rate = min(rate, demand)
        return Trial(setting, rate, data_wait_share=1 - rate / demand)

    return measure


def saturating(cores, *, favourite="torch", prefetch=0.0):
    """Return what a loader delivers on so many cores, one more than it is good for."""

    def supply(setting):
        busy = min(setting.workers, cores)
        crowded = 0.97 ** max(0, setting.workers - cores)
        ahead = 1 - prefetch / setting.prefetch
        factor = 1.0 if setting.loader == favourite else 0.7
        return 300 * busy * crowded * ahead * factor

    return supply


def start_of(grid):
    return LoaderSetting(grid.workers[0], grid.prefetch[0], grid.loaders[0])


def best_of(grid, surface):
    return max(surface(setting) for setting in grid.settings)


@pytest.mark.parametrize("cores", [1, 3, 6, 12, 40])
@pytest.mark.parametrize("favourite", LARGE.loaders)
@pytest.mark.parametrize("prefetch", [0.0, 0.3])
def test_95_percent_of_the_best_are_found_in_a_third_of_the_grid(
    cores, favourite, prefetch
):
    surface = saturating(cores, favourite=favourite, prefetch=prefetch)

    found = tune(LARGE, start_of(LARGE), on(surface))

    assert surface(found.chosen) >= NEAR * best_of(LARGE, surface)
    assert len(found.trials) <= len(LARGE) / 3


@pytest.mark.parametrize("seed", range(5))
def test_noise_of_3_percent_costs_no_more_than_that(seed):
    surface = saturating(6, prefetch=0.2)

    found = tune(LARGE, start_of(LARGE), on(surface, noise=0.03, seed=seed))

    assert surface(found.chosen) >= NEAR * best_of(LARGE, surface)
    assert len(found.trials) <= len(LARGE) / 3


@pytest.mark.parametrize("loaders", [[0], [1], [0, 1], [1, 0]])
def test_a_recorded_grid_is_tuned_as_well(loaders):
    names = [RECORDED["loaders"][place] for place in loaders]
    grid = Grid(names, RECORDED["workers"], RECORDED["prefetch"])
    rates = {LoaderSetting(*row[:3]): row[3] for row in RECORDED["rates"]}
    surface = {setting: rates[setting] for setting in grid.settings}
    measure = on(surface, demand=RECORDED["demand_images_per_second"])

    found = tune(grid, start_of(grid), measure)

    assert surface[found.chosen] >= NEAR * max(surface.values())
    assert len(found.trials) <= len(grid) / 3


def test_it_ends_as_soon_as_the_input_keeps_up():
    found = tune(LARGE, start_of(LARGE), on(saturating(16), demand=1100))

    assert found.chosen == LoaderSetting(4, 2, "torch")
    assert found.trials[-1].setting == found.chosen
    assert "(search ended: data wait 0.0%)" in found.why


def test_tune_time_limit():
    left = iter([5.0, 0.0])

    found = tune(LARGE, start_of(LARGE), on(saturating(16)), left_seconds=left.__next__)

    assert len(found.trials) == 2
    assert "(search ended: time limit)" in found.why


def test_the_start_is_measured_twice_and_what_differs_is_noise():
    rates = iter([100.0, 120.0])
    flat = dict.fromkeys(LARGE.settings, 105.0)

    def measure(setting, why):
        return Trial(setting, next(rates, flat[setting]))

    found = tune(LARGE, start_of(LARGE), measure)

    assert [trial.setting for trial in found.trials[:2]] == [start_of(LARGE)] * 2
    assert found.margin == pytest.approx(0.2)
    assert found.chosen == start_of(LARGE)
    assert "no faster neighbour" in found.why


def test_no_setting_is_tried_twice_but_the_start():
    found = tune(LARGE, start_of(LARGE), on(saturating(5, favourite="tfrecord")))

    settings = [trial.setting for trial in found.trials[1:]]
    assert len(set(settings)) == len(settings)
    assert [trial.why for trial in found.trials[2:4]] == [
        "tfrecord instead of torch",
        "more workers",
    ]


def test_of_equally_fast_settings_the_smallest_is_chosen():
    surface = dict.fromkeys(LARGE.settings, 100.0)
    surface[LoaderSetting(2, 2, "torch")] = 101.0

    found = tune(LARGE, LoaderSetting(2, 2, "torch"), on(surface))

    assert found.chosen == LoaderSetting(1, 2, "torch")
    assert "within 2.0% of the fastest tried (practical margin" in found.why


def test_a_difference_within_the_noise_decides_nothing():
    rates = iter([100.0, 110.0])
    surface = dict.fromkeys(LARGE.settings, 100.0)
    surface[LoaderSetting(2, 2, "torch")] = 113.0

    def measure(setting, why):
        return Trial(setting, next(rates, surface[setting]))

    found = tune(LARGE, start_of(LARGE), measure)

    # Nearer than 10 %, and beyond the practical margin of 2 %.
    assert LoaderSetting(2, 2, "torch") in {trial.setting for trial in found.trials}
    assert found.chosen == start_of(LARGE)
    assert found.noise == found.margin == pytest.approx(0.1)
    assert "within 10.0% of the fastest tried (noise)" in found.why


def test_noise_that_was_not_measured_is_not_made_up():
    surface = {one: 100.0 + one.workers / 2 for one in LARGE.settings}

    found = tune(LARGE, start_of(LARGE), on(surface), most_trials=4)

    assert found.noise is None
    assert found.margin == 0.02
    assert found.chosen == start_of(LARGE)
    assert "(practical margin, noise not measured)" in found.why


@pytest.mark.parametrize("failing", [["torch"], ["tfrecord"]])
def test_a_setting_that_fails_is_not_chosen_and_the_search_goes_on(failing):
    supply = saturating(4, favourite=failing[0])

    def measure(setting, why):
        if setting.loader in failing:
            return Trial(setting, 0.0, cause="no room in shared memory")
        return Trial(setting, supply(setting))

    found = tune(LARGE, start_of(LARGE), measure)

    assert found.chosen == LoaderSetting(4, 2, *(set(LARGE.loaders) - set(failing)))
    assert any(trial.cause for trial in found.trials)
    kept = json.loads(json.dumps(found.to_dict()))
    again = Tuning.from_dict(kept)
    assert again.to_dict() == kept
    assert again.chosen == found.chosen


def test_a_setting_that_fails_now_and_then_is_not_chosen():
    rates = iter([Trial(start_of(LARGE), 900.0), Trial(start_of(LARGE), 0.0, cause="")])

    found = tune(
        LARGE, start_of(LARGE), lambda s, _: next(rates, None) or Trial(s, 100.0)
    )

    assert found.noise is None
    assert found.chosen != start_of(LARGE)


def test_a_few_trials_are_spent_on_settings_and_not_on_noise():
    found = tune(LARGE, start_of(LARGE), on(saturating(9)), most_trials=3)

    assert len({trial.setting for trial in found.trials}) == 3
    assert "limit of 3 trials" in found.why
