"""A whole training is projected from rates, with the range that they leave."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError
from nbkit.estimates.arithmetic import (
    Workload,
    expected_epochs,
    from_published,
    project,
)
from nbkit.references.rows import lookup, published
from nbkit.statistics import summarise
from nbkit.worker.train import evaluation_is_due

WORK = Workload(
    recipe="netapp_lars",
    model="resnet50",
    image_size=224,
    train_images=1_281_167,
    evaluation_images=50_000,
    epochs=35,
    epochs_low=34,
    epochs_high=37,
    evaluation_period_epochs=4,
    evaluation_offset_epochs=3,
)


@pytest.mark.parametrize("offset", [0, 1, 3])
@pytest.mark.parametrize("period", [1, 4])
@pytest.mark.parametrize("epochs", [1, 3, 35, 37])
def test_evaluations_are_counted_as_the_training_does_them(epochs, period, offset):
    config = ExperimentConfig(
        epochs=epochs,
        evaluation_period_epochs=period,
        evaluation_offset_epochs=offset,
    )
    done = sum(
        evaluation_is_due(config, epoch, at_end=epoch == epochs)
        for epoch in range(1, epochs + 1)
    )

    work = replace(
        WORK, evaluation_period_epochs=period, evaluation_offset_epochs=offset
    )
    assert work.evaluations(epochs) == done


def test_a_projection_adds_evaluations_to_training_and_leaves_the_start_apart():
    found = project(
        WORK,
        summarise([9_900.0, 10_000.0, 10_100.0]),
        where="8 x A100",
        evaluation_images_per_second=20_000.0,
        startup_seconds=30.0,
        joules_per_image=0.5,
    )

    training = 35 * 1_281_167 / 10_000
    assert found.training_seconds == pytest.approx(training)
    # Behind epochs 7, 11, ..., 35.
    assert found.evaluation_seconds == pytest.approx(8 * 2.5)
    assert found.seconds == pytest.approx(training + 20)
    assert found.startup_seconds == 30.0
    assert found.joules == pytest.approx(0.5 * 35 * 1_281_167)
    assert found.origin == "measured rate, projected"
    # The last epoch is evaluated too: 8 evaluations of 34 epochs, 9 of 37.
    fewest = 34 * 1_281_167 / found.rate_high + 8 * 2.5
    most = 37 * 1_281_167 / found.rate_low + 9 * 2.5
    assert found.seconds_low == pytest.approx(fewest)
    assert found.seconds_high == pytest.approx(most)
    assert found.rate_low < 10_000 < found.rate_high


def test_a_single_run_has_no_range_and_what_is_not_known_is_left_out():
    found = project(WORK, summarise([10_000.0]), where="here")

    assert (found.seconds_low, found.seconds_high) == (None, None)
    assert (found.evaluation_seconds, found.joules) == (None, None)
    assert found.seconds == found.training_seconds


def test_a_published_rate_is_that_of_the_median_row_and_says_how_many_there_are():
    [found] = from_published(WORK, ["H100-SXM-80GB"], precision="fp16")

    rows = [
        row
        for row in lookup(model="resnet50", gpu_name="H100-SXM-80GB", data="real")
        if row.world_size == 8 and row.precision in ("fp16", "bf16")
    ]
    assert found.where == "8 x H100-SXM-80GB"
    assert found.origin == "published rate, projected"
    assert found.rate_n == len(rows) > 5
    assert found.images_per_second in {row.images_per_second for row in rows}
    assert found.rate_low <= found.images_per_second <= found.rate_high
    assert found.precision == "fp16"
    # What the same rows took as a whole is near, and was not used.
    assert 60 * found.published_minutes[0] == pytest.approx(found.seconds, rel=0.15)


def test_a_published_rate_of_another_size_is_that_of_the_fewest_gpus():
    [estimate] = from_published(WORK, ["H100-SXM-80GB"], precision="fp16", world_size=7)

    rows = lookup(model="resnet50", gpu_name="H100-SXM-80GB", data="real")
    sizes = {row.world_size for row in rows if row.precision in ("fp16", "bf16")}
    assert estimate.where == f"{min(sizes)} x H100-SXM-80GB"
    assert len(sizes) > 1


def test_published_rates_at_another_image_size_are_left_out():
    [found] = from_published(WORK, ["A100-SXM4-40GB"], precision="fp16")

    [largest] = {row.images_per_second for row in published(publisher="ffcv")[:1]}
    assert found.rate_high < largest


def test_a_family_is_all_its_products_and_no_gpu_is_refused():
    found = from_published(WORK, ["V100", "A100-SXM4-80GB"], precision="fp16")

    names = [one.where for one in found]
    assert names[-1] == "8 x A100-SXM4-80GB"
    assert len(names) > 3
    assert all("V100" in name for name in names[:-1])
    with pytest.raises(ConfigError, match="GPU 'toaster' is not in the published"):
        from_published(WORK, ["toaster"], precision="fp16")


def test_expected_epochs_are_the_median_of_published_counts():
    assert expected_epochs([36, 34, 35], 37) == (35, 34, 36)
    assert expected_epochs([], 90) == (90, 90, 90)
