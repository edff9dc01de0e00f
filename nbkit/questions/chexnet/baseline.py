"""Shortcut baseline of a multi-label set, from global image statistics.

A logistic regression for each label, on twelve statistics of the whole image (how
bright, how contrasty, how sharp; of places in it the border alone). It is fitted to the
training images and asked about those for evaluation. Where a network does no better,
its AUROC is not evidence that it recognises anything in the images.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from nbkit.datasets.listing import Listing
from nbkit.datasets.samples import Samples
from nbkit.errors import ConfigError
from nbkit.packages import pip_install
from nbkit.plural import few, plural
from nbkit.questions.chexnet.planning import ChexnetPlan
from nbkit.studies.idle_machine import wait_before

_MOST_ITERATIONS = 1_000

_MIN_IMAGES_FOR_PROGRESS = 5_000
"""Fewer take no noticeable time."""


@dataclass(frozen=True)
class Baseline:
    """Scores of the shortcut baseline for every evaluation image."""

    files: Sequence[str]
    """Names of the readable images."""
    scores: Mapping[str, Sequence[float] | None]
    """Log-odds by label; None if all training images have it, or none has."""
    train_images: int
    """That it was fitted to."""
    unreadable: Sequence[str]
    """Unreadable images of both splits."""


def prepare(plan: ChexnetPlan) -> ChexnetPlan:
    """Fit the baseline to a plan's training images; return the plan with its scores.

    Raises
    ------
    ConfigError
        If scikit-learn is not installed, no training image is readable, or an image is
        unreadable with ``unreadable_images="stop"``.
    """
    wait_before(plan.arms.values(), plan.wait_for_idle)
    fitted = statistics_baseline(plan.listing)
    config = next(iter(plan.arms.values()))
    if fitted.unreadable and config.unreadable_images == "stop":
        message = (
            f"data={config.data!r} has "
            f"{plural(len(fitted.unreadable), 'unreadable image')} "
            f"({few(fitted.unreadable)}). Fix or remove each one, or use "
            "unreadable_images='skip' instead of 'stop'."
        )
        raise ConfigError(message)
    baseline = {
        "files": list(fitted.files),
        "scores": {
            # As many digits as a run's predictions have.
            label: scores and [float(f"{score:.9g}") for score in scores]
            for label, scores in fitted.scores.items()
        },
        "train_images": fitted.train_images,
        "unreadable": len(fitted.unreadable),
    }
    return replace(plan, prepared={**plan.prepared, "baseline": baseline})


def statistics_baseline(listing: Listing) -> Baseline:
    """Fit the baseline to a set's training images; score those for evaluation."""
    variables = {*os.environ}
    try:
        # A reader of reports needs neither of them.
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
    except ImportError as error:
        message = (
            f"The shortcut baseline requires scikit-learn ({error}). Run "
            f"{pip_install('scikit-learn')}."
        )
        raise ConfigError(message) from error
    # Its import sets variables of OpenMP, which runs that start later would inherit.
    for name in {*os.environ} - variables:
        del os.environ[name]
    statistics = _all_statistics(listing)
    images = listing.contents
    first = len(images.train)
    train = [
        (values, sample.label)
        for values, sample in zip(statistics[:first], images.train, strict=True)
        if values is not None
    ]
    evaluation = [
        (values, sample.name)
        for values, sample in zip(statistics[first:], images.evaluation, strict=True)
        if values is not None
    ]
    if not train:
        message = (
            f"data={str(listing.root)!r} has no readable training image (0 of "
            f"{first:,}). Check the format and permissions of the files."
        )
        raise ConfigError(message)
    inputs = [values for values, _ in train]
    train_labels = [label for _, label in train if not isinstance(label, int)]
    scores: dict[str, list[float] | None] = {}
    for number, label in enumerate(images.classes):
        given = [labels[number] for labels in train_labels]
        if len({*given}) < 2 or not evaluation:
            scores[label] = None
            continue
        model = make_pipeline(
            StandardScaler(), LogisticRegression(max_iter=_MOST_ITERATIONS)
        )
        model.fit(inputs, given)
        logits = model.decision_function([values for values, _ in evaluation])
        scores[label] = [float(logit) for logit in logits]
    return Baseline(
        [name for _, name in evaluation],
        scores,
        len(train),
        [
            sample.name
            for values, sample in zip(
                statistics, (*images.train, *images.evaluation), strict=True
            )
            if values is None
        ],
    )


def _all_statistics(listing: Listing) -> list[list[float] | None]:
    """Return the statistics of every image, training first; None of unreadable ones."""
    samples = listing.open()
    total = len(samples)
    tenth = max(1, total // 10)
    rows: list[list[float] | None] = []
    with (
        # Pillow warns of what it can do without.
        warnings.catch_warnings(action="ignore"),
        ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool,
    ):
        try:
            for start in range(0, total, tenth):
                part = range(start, min(start + tenth, total))
                rows += pool.map(partial(_of_image, samples), part)
                if total > _MIN_IMAGES_FOR_PROGRESS:
                    done = f"statistics of {part.stop:,} of {total:,} images"
                    sys.stdout.write(f"{done}\n")
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
        finally:
            samples.close()
    return rows


def _of_image(samples: Samples, index: int) -> list[float] | None:
    from nbkit.datasets.image_statistics import image_statistics

    try:
        return image_statistics(samples.read(index))
    except Exception:  # noqa: BLE001 - disks and decoders raise many kinds
        return None


def aligned(
    baseline: Mapping[str, Any] | None, files: Sequence[str]
) -> dict[str, list[float] | None] | None:
    """Return the baseline's scores of these files."""
    if baseline is None:
        return None
    place = {file: number for number, file in enumerate(baseline["files"])}
    return {
        label: None if scores is None else [scores[place[file]] for file in files]
        for label, scores in baseline["scores"].items()
    }
