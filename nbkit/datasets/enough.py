"""Number of images that a run needs, for its plan and its ranks alike."""

from __future__ import annotations

from collections.abc import Iterable

from nbkit.config import ExperimentConfig
from nbkit.datasets.cache import NAMED_IMAGES
from nbkit.datasets.find import find
from nbkit.errors import ConfigError
from nbkit.plural import plural


def check_enough_images(configs: Iterable[ExperimentConfig]) -> None:
    """Raise for data that the ranks would refuse after their start."""
    sizes = dict(NAMED_IMAGES)
    for config in configs:
        if config.data == "synthetic":
            continue
        if config.data not in sizes:
            images = find(
                config.data,
                missing_labels=config.missing_labels,
                uncertain_labels=config.uncertain_labels,
            ).contents
            labels = len(images.classes) if images.is_multi_label else 0
            sizes[config.data] = len(images.train), len(images.evaluation), labels
        train, evaluation, labels = sizes[config.data]
        if labels:
            check_several_labels(config, labels)
        if config.evaluation_period_epochs is not None and not evaluation:
            raise ConfigError(no_evaluation_images(config))
        batch = config.batch_size_per_gpu
        if isinstance(batch, int) and (
            message := too_few_images(config, train, batch, config.world_size)
        ):
            raise ConfigError(message)


def check_several_labels(config: ExperimentConfig, count: int) -> None:
    """Raise for settings that require one class per image."""
    if config.label_smoothing:
        message = (
            f"label_smoothing={config.label_smoothing} requires one class per image, "
            f"but data={config.data!r} has {plural(count, 'label')} per image. Set "
            "label_smoothing=0."
        )
        raise ConfigError(message)
    if config.target_accuracy is not None:
        message = (
            f"target_accuracy={config.target_accuracy} requires one class per image, "
            f"but data={config.data!r} has {plural(count, 'label')} per image, "
            "evaluated by AUROC. Set target_accuracy=None."
        )
        raise ConfigError(message)


def no_evaluation_images(config: ExperimentConfig) -> str:
    """Return the error text for data without evaluation images."""
    return (
        f"evaluation_period_epochs={config.evaluation_period_epochs}, but "
        f"data={config.data!r} has no evaluation images. Use folders train/<class>/ "
        "and val/<class>/, packed files named train and val, or a column 'split' or "
        "'patient_id' in a CSV file, or set evaluation_period_epochs=None."
    )


def too_few_images(
    config: ExperimentConfig, images: int, batch_size: int, ranks: int
) -> str | None:
    """Return the error text for data smaller than one global batch, or None."""
    accumulation = config.gradient_accumulation_steps
    needed = batch_size * ranks * accumulation
    if images >= needed:
        return None
    fitting = images // (ranks * accumulation)
    remedy = f"batch_size_per_gpu={fitting} or less"
    if not fitting:
        remedy = f"batch_size_per_gpu=1 with ranks x accumulation steps <= {images}"
    return (
        f"data={config.data!r} has {plural(images, 'training image')}, but one global "
        f"batch needs {needed:,} ({plural(batch_size, 'image')} x "
        f"{plural(ranks, 'rank')} x {plural(accumulation, 'accumulation step')}). Use "
        f"{remedy}, or more images."
    )
