"""The honest baseline of a multi-label set: what global statistics alone can tell.

A logistic regression for each label, on twelve statistics of the whole image (how
bright, how contrasty, how sharp; of places in it the border alone). It is fitted to the
training images and asked about those for evaluation. Where a network does no better,
its AUROC is not evidence that it recognises anything in the images.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain

from nbkit.datasets.listing import Listing
from nbkit.datasets.samples import Samples
from nbkit.errors import ConfigError
from nbkit.packages import pip_install

_IMAGES_PER_TASK = 32

_MOST_ITERATIONS = 1_000

FitProgress = Callable[[int, int], None]
"""Called with the number of images read and of all."""


@dataclass(frozen=True)
class Baseline:
    """What the baseline says of every evaluation image."""

    files: Sequence[str]
    """Names of the images, those that can be read."""
    scores: Mapping[str, Sequence[float] | None]
    """Log-odds by label; None where all training images have it, or none."""
    train_images: int
    """That it was fitted to."""
    unreadable: Sequence[str]
    """Images that were left out, of both splits."""


def statistics_baseline(
    listing: Listing,
    *,
    threads: int | None = None,
    on_progress: FitProgress | None = None,
) -> Baseline:
    """Fit the baseline to a set's training images; score those for evaluation."""
    variables = {*os.environ}
    try:
        # A reader of reports needs neither of them.
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
    except ImportError as error:
        message = (
            f"The shortcut baseline needs scikit-learn ({error}). Run "
            f"{pip_install('scikit-learn')}."
        )
        raise ConfigError(message) from error
    # Its import sets variables of OpenMP, which runs that start later would inherit.
    for name in {*os.environ} - variables:
        del os.environ[name]
    statistics = _all_statistics(listing, threads, on_progress)
    first = len(listing.train)
    train = [
        (values, sample.label)
        for values, sample in zip(statistics[:first], listing.train, strict=True)
        if values is not None
    ]
    evaluation = [
        (values, sample.name)
        for values, sample in zip(statistics[first:], listing.evaluation, strict=True)
        if values is not None
    ]
    if not train:
        message = (
            f"data={str(listing.root)!r} has no readable training image, which the "
            "baseline needs. Fix the files."
        )
        raise ConfigError(message)
    inputs = [values for values, _ in train]
    train_labels = [label for _, label in train if not isinstance(label, int)]
    scores: dict[str, list[float] | None] = {}
    for number, label in enumerate(listing.classes):
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
                statistics, (*listing.train, *listing.evaluation), strict=True
            )
            if values is None
        ],
    )


def _all_statistics(
    listing: Listing, threads: int | None, on_progress: FitProgress | None
) -> list[list[float] | None]:
    """Return the statistics of every image, training first; None of unreadable ones."""
    samples = listing.open()
    total = len(samples)
    parts = [
        range(start, min(start + _IMAGES_PER_TASK, total))
        for start in range(0, total, _IMAGES_PER_TASK)
    ]
    rows: list[list[list[float] | None]] = []
    with (
        # Pillow warns of what it can do without.
        warnings.catch_warnings(action="ignore"),
        ThreadPoolExecutor(threads or len(os.sched_getaffinity(0))) as pool,
    ):
        try:
            for part, values in zip(
                parts,
                pool.map(lambda part: _of_part(samples, part), parts),
                strict=True,
            ):
                rows.append(values)
                if on_progress is not None:
                    on_progress(part.stop, total)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
        finally:
            samples.close()
    return [*chain.from_iterable(rows)]


def _of_part(samples: Samples, part: range) -> list[list[float] | None]:
    return [_of_image(samples, index) for index in part]


def _of_image(samples: Samples, index: int) -> list[float] | None:
    from nbkit.datasets.image_statistics import image_statistics

    try:
        return image_statistics(samples.read(index))
    except Exception:  # noqa: BLE001 - disks and decoders raise many kinds
        return None
