"""What the time_to_accuracy notebook will train is decided before it starts."""

from __future__ import annotations

from functools import partial

import pytest

from nbkit.errors import ConfigError
from nbkit.questions.time_to_accuracy import planning as plan_module
from nbkit.questions.time_to_accuracy.planning import plan
from nbkit.worker.data import synthetic
from tests.datasets.images import write_folder, write_table
from tests.questions.conftest import notebook_parameters
from tests.telemetry.fake_nvml.fake_driver import FakeGpu

WHOLE = ["torchvision_sgd", "netapp_lars"]


parameters = partial(notebook_parameters, "time_to_accuracy")


def test_a_short_run_of_the_whole_recipe_is_measured_once():
    planned = plan(parameters())

    assert list(planned.unrepeated) == ["short run 1 of netapp_lars"]
    assert "from 1 short run with" in " ".join(planned.notes)
    config = planned.unrepeated["short run 1 of netapp_lars"]
    assert (config.model, config.image_size) == ("resnet50", 224)
    assert (config.steps, config.warmup_steps, config.data) == (5, 2, "synthetic")
    # An evaluation of some batches, at the end alone.
    assert config.images_per_epoch == 20 * config.batch_size_per_gpu
    assert config.evaluation_period_epochs > 1_000
    assert plan(parameters(estimate_steps=0)).unrepeated == {}


def test_on_gpus_recipes_are_as_published_and_the_rate_follows_the_batch(drive):
    drive(*(FakeGpu(f"GPU-{letter}") for letter in "abcdefgh"))

    values = {"device": "auto", "gpus": 8, "recipes": WHOLE}
    planned = plan(parameters(data="imagenette", **values))

    sgd, lars = planned.arms.values()
    assert (sgd.learning_rate, sgd.batch_size_per_gpu) == (0.1, 32)
    assert (lars.learning_rate, lars.batch_size_per_gpu) == (10.5, 408)
    assert (lars.precision, lars.epochs, lars.target_accuracy) == ("fp16", 37, 0.759)
    assert planned.repeats == 5
    assert planned.facts["seed_per_repeat"] is True
    assert len(planned.unrepeated) == 3
    said = " ".join(planned.notes)
    assert "Changed:" not in said
    assert "evaluated every 4 epochs after epoch 3" in said


def test_what_is_changed_of_a_recipe_is_said():
    planned = plan(parameters(recipes=["netapp_lars"], batch_size_per_gpu=8, epochs=2))

    assert planned.arms["netapp_lars"].learning_rate == pytest.approx(10.5 * 8 / 3_264)
    [note] = [note for note in planned.notes if note.startswith("netapp_lars: ")]
    assert "at global batch 8, scaled from 10.5 at 3264" in note
    assert "epochs=2 instead of 37" in note
    assert "precision=fp32 instead of fp16" in note


def test_gpus_of_which_nobody_published_a_rate_are_named():
    planned = plan(parameters(estimate_for=["T4", "A100", "B200"]))

    assert planned.facts["estimate_for"] == ["T4", "A100", "B200"]
    assert "on T4, B200" in planned.notes[-1]
    assert "no projection" not in " ".join(plan(parameters()).notes)


def test_synthetic_images_have_as_many_for_evaluation_as_the_plan_takes_them_to():
    assert plan_module.SYNTHETIC_EVALUATION_SHARE == synthetic.EVALUATION_SHARE


def test_recipes_of_different_things_are_not_compared():
    with pytest.raises(ConfigError, match=r"differ in model \(sgd resnet20, netapp"):
        plan(parameters(recipes=["sgd", "netapp_lars"]))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"data": "synthetic"}, "cannot be learned"),
        ({"repeats": 0}, "repeats=0 is below 1"),
        ({"price_per_hour": 0.0}, "price_per_hour=0.0 is not above 0"),
        ({"recipes": ["adamw"]}, "recipe='adamw' is not a training recipe"),
        ({"estimate_recipe": "sgd"}, "has no fixed data set"),
        ({"target_accuracy": 75.9}, "target_accuracy=75.9"),
        ({"estimate_for": ["toaster"]}, "GPU 'toaster' is not in the pub"),
        ({"batch_size_per_gpu": 0}, "batch_size_per_gpu=0 is below 1"),
        ({"data": "/no/such/folder"}, "is not a folder"),
    ],
)
def test_what_cannot_be_used_is_refused_before_anything_starts(values, said):
    with pytest.raises(ConfigError, match=said):
        plan(parameters(**values))


def test_batch_beyond_the_images_is_refused(tmp_path):
    write_folder(tmp_path / "data")

    with pytest.raises(ConfigError, match=r"has 12 training images, .* needs 1,000"):
        plan(parameters(data=str(tmp_path / "data"), batch_size_per_gpu=1_000))
    with pytest.raises(ConfigError, match="data='photos' has 400 training images"):
        plan(parameters(batch_size_per_gpu=401))


def test_data_that_cannot_be_judged_are_refused(tmp_path):
    write_folder(tmp_path / "data")
    unjudged = {"data": str(tmp_path / "data/train"), "batch_size_per_gpu": 4}
    labels = {"data": str(write_table(tmp_path)), "batch_size_per_gpu": 1}

    with pytest.raises(ConfigError, match="has no evaluation images"):
        plan(parameters(**unjudged))
    with pytest.raises(ConfigError, match="2 labels per image, evaluated by"):
        plan(parameters(**labels))
