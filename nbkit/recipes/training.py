"""Training recipes to a target accuracy, as data, each with its source.

A *recipe* (`nbkit.recipe`) is a published experiment as a whole, its devices and files
with it. A *training recipe* is the part of one that decides about accuracy: model,
optimizer, rates, smoothing, epochs, when to evaluate, and the target. It goes with any
images and devices. One that is part of a recipe takes its values from there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError
from nbkit.recipes.catalogue import recipe
from nbkit.registry import suggest
from nbkit.reports.parts import Source

_FILE = resources.files("nbkit.recipes") / "training_recipes.json"

_PARTS = (
    *("model", "image_size", "precision", "optimizer", "learning_rate", "momentum"),
    *("lars_eta", "weight_decay", "decay_norm_and_bias", "schedule", "step_epochs"),
    *("step_factor", "polynomial_power", "polynomial_end", "label_smoothing"),
    *("learning_rate_warmup_epochs", "crop_area_min", "crop_area_max", "epochs"),
    *("evaluation_period_epochs", "evaluation_offset_epochs", "target_accuracy"),
)
"""Fields that a training recipe may set."""


@dataclass(frozen=True)
class TrainingRecipe:
    """One way to train."""

    name: str
    title: str
    source: Source
    note: str
    """What to know before comparing results."""
    fields: Mapping[str, Any]
    """Of `nbkit.ExperimentConfig`."""
    global_batch_size: int
    """Images per step for which the learning rate was chosen."""
    batch_size_per_gpu: int
    """Images per GPU and step, as published."""
    train_images: int | None = None
    """Training images of its data set; None if it is for any data set."""
    evaluation_images: int | None = None
    epochs_to_target: tuple[int, ...] = ()
    """Published epochs to the target, one number per seed."""
    epochs_source: Source | None = None
    """Where these are published."""

    @property
    def epochs(self) -> int:
        """Maximum number of epochs."""
        return self.fields["epochs"]

    @property
    def target_accuracy(self) -> float:
        """Top-1 accuracy at which it stops, 0 to 1."""
        return self.fields["target_accuracy"]

    def for_batch(self, global_batch_size: int) -> dict[str, Any]:
        """Return its fields, with the learning rate scaled to the global batch size.

        References
        ----------
        P. Goyal et al., Accurate, large minibatch SGD,
        https://arxiv.org/abs/1706.02677
        """
        rate = self.fields["learning_rate"] * global_batch_size / self.global_batch_size
        return {**self.fields, "learning_rate": rate}


def training_recipe(name: str) -> TrainingRecipe:
    """Return a training recipe."""
    contents = _contents()
    if name not in contents:
        names = list(contents)
        message = (
            f"recipe={name!r} is not a training recipe. Use one of {', '.join(names)}."
            f"{suggest(name, names)}"
        )
        raise ConfigError(message)
    content = contents[name]
    counts = content.get("epochs_to_target")
    fields, source = _fields_and_source(content)
    return TrainingRecipe(
        name=name,
        title=content["title"],
        source=source,
        note=content["note"],
        fields=fields,
        global_batch_size=content["global_batch_size"],
        batch_size_per_gpu=content["batch_size_per_gpu"],
        train_images=content.get("train_images"),
        evaluation_images=content.get("evaluation_images"),
        epochs_to_target=tuple(counts["counts"]) if counts else (),
        epochs_source=Source(counts["text"], counts["url"]) if counts else None,
    )


def training_recipe_names() -> list[str]:
    """Return the names of nbkit's training recipes, in the order of their file."""
    return list(_contents())


def _contents() -> dict[str, Any]:
    return json.loads(_FILE.read_text(encoding="utf-8"))


def _fields_and_source(content: Mapping[str, Any]) -> tuple[dict[str, Any], Source]:
    """Return the fields and where they are published; those of a recipe from there."""
    if "recipe" not in content:
        fields = dict(content["fields"])
        ExperimentConfig(**fields)  # raises if the file has an unknown field
        return fields, Source(**content["source"])
    published = recipe(content["recipe"])
    config = published.config()
    fields = {
        name: getattr(config, name)
        for name in _PARTS
        if name in config.model_fields_set
    }
    return fields, Source(published.source["title"], published.source["url"])
