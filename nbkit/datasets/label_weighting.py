"""Check that there are labels for ``label_weighting``."""

from __future__ import annotations

from nbkit.config import ExperimentConfig
from nbkit.datasets.cache import NAMED
from nbkit.errors import ConfigError

_SEVERAL_LABELS = {"synthetic-multilabel"}
"""Built-in sets whose images can have several labels."""


def refuse_one_class(config: ExperimentConfig) -> None:
    """Raise if ``label_weighting`` is set, but each image has one class."""
    if config.label_weighting != "none":
        message = (
            f"label_weighting={config.label_weighting!r} requires several labels per "
            f"image, but data={config.data!r} has one class per image. Set "
            "label_weighting='none'."
        )
        raise ConfigError(message)


def refuse_one_class_by_name(config: ExperimentConfig) -> None:
    """Do the same for data whose name is enough, before reading any."""
    one_class = {"synthetic", *NAMED} - _SEVERAL_LABELS
    if config.task == "train" and config.data in one_class:
        refuse_one_class(config)
