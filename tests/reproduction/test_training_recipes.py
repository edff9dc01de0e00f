"""Training recipes are data with sources, and take what is published from there."""

from __future__ import annotations

import pytest

import nbkit
from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError
from nbkit.recipes.training import training_recipe, training_recipe_names

NAMES = training_recipe_names()


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_is_a_configuration_with_target_and_source(name):
    recipe = training_recipe(name)

    config = ExperimentConfig(**recipe.for_batch(recipe.global_batch_size))

    assert config.target_accuracy == recipe.target_accuracy
    assert config.epochs == recipe.epochs
    assert config.evaluation_period_epochs is not None
    assert config.learning_rate == recipe.fields["learning_rate"]
    assert recipe.source.url.startswith("https://")
    assert recipe.title
    assert recipe.note


def test_the_netapp_recipe_has_the_values_of_the_report():
    fields = dict(training_recipe("netapp_lars").fields)
    config = nbkit.recipe("netapp_resnet50").config()

    assert fields == {name: getattr(config, name) for name in fields}
    assert (fields["optimizer"], fields["learning_rate"]) == ("lars", 10.5)
    assert (fields["label_smoothing"], fields["learning_rate_warmup_epochs"]) == (
        0.1,
        2,
    )
    assert (fields["epochs"], fields["target_accuracy"]) == (37, 0.759)
    assert (fields["evaluation_period_epochs"], fields["polynomial_end"]) == (4, 1e-4)
    # What belongs to its server, not to its accuracy, is not part of it.
    assert not {"gpus", "data", "loader", "seed"} & set(fields)


def test_the_rate_goes_in_proportion_to_the_batch():
    recipe = training_recipe("torchvision_sgd")

    assert recipe.for_batch(256)["learning_rate"] == 0.1
    assert recipe.for_batch(1_024)["learning_rate"] == pytest.approx(0.4)


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(ConfigError, match="Did you mean 'lars'"):
        training_recipe("larz")
