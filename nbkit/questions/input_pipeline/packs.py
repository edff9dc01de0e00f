"""TFRecord files for the input pipeline notebook."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from nbkit.config import ExperimentConfig
from nbkit.config.pipeline import images_of_every_rank, pipeline_steps
from nbkit.datasets.cache import cache_path
from nbkit.datasets.find import find
from nbkit.datasets.packing import pack
from nbkit.errors import ConfigError, StoreError
from nbkit.plural import plural
from nbkit.reading import expanded
from nbkit.studies.photo_copies import check_room, num_photos, photos_in, put_photos

_PHOTOS = "photos"

_FEWEST_BATCHES = 10
"""Of a rank in an epoch: with fewer, mostly how an epoch begins is measured."""

_BATCHES = 12
_IMAGES = 150
"""Of a rank in an epoch of the built-in set, if one copy of it has not as many: with a
little to lose, and so many files that ranks share them nearly evenly; of more than four
ranks more, since whole files are dealt out."""

_SHARD_MEGABYTES = 1
"""The built-in set in files of this size: enough files for several ranks."""


def copies_for(data: str, batch_size: int, gpus: int) -> int:
    """Return how often the built-in images are needed; other data are as they are."""
    if data != _PHOTOS:
        return 1
    images = _IMAGES + 50 * max(0, gpus - 4)
    return math.ceil(max(_BATCHES * batch_size, images) * gpus / num_photos(1))


def files_folder(data: str, copies: int) -> Path:
    """Return the folder of the TFRecord files, which may not exist yet."""
    if data != _PHOTOS:
        return expanded(data, "data")
    folder = cache_path(_PHOTOS)
    if copies == 1:
        return folder.with_name(f"{folder.name}-tfrecord")
    return photos_in(folder.parent, copies) / "small-tfrecord"


def put_files(data: str, copies: int) -> None:
    """Pack the built-in images if needed; check other data."""
    if data != _PHOTOS:
        kind = find(data).kind
        if kind != "tfrecord":
            message = (
                f"data={data!r} is of kind {kind}, but the pipeline reads TFRecord "
                "files. Pack it with nbkit.datasets.pack(data, folder, 'tfrecord') "
                "and use that folder."
            )
            raise ConfigError(message)
        return
    folder = files_folder(data, copies)
    if folder.is_dir():
        return
    images = data if copies == 1 else str(_copied(copies))
    try:
        pack(images, folder, "tfrecord", shard_megabytes=_SHARD_MEGABYTES)
    except (ConfigError, StoreError):
        # Another process may have finished first.
        if not folder.is_dir():
            raise


def check_images(
    data: str, folder: Path, arms: Mapping[str, ExperimentConfig], batch_size: int
) -> None:
    """Check that an epoch of every arm has enough batches."""
    train = find(str(folder)).contents.train
    files = Counter(sample.shard or 0 for sample in train)
    in_files = [files[number] for number in sorted(files)]
    for config in arms.values():
        ranks = config.world_size
        images = len(train) // ranks
        if config.loader == "tfrecord":
            steps = pipeline_steps(config.loader_config.pipeline)
            images = images_of_every_rank(steps, in_files, ranks, data)
        batches = images // batch_size
        if batches < _FEWEST_BATCHES:
            fitting = images // _FEWEST_BATCHES
            remedy = f"batch_size_per_gpu={fitting} or less, or " if fitting else ""
            fewer = "fewer gpus, or " if ranks > 1 else ""
            message = (
                f"data={data!r} has {plural(len(train), 'training image')}: "
                f"{plural(batches, 'batch', 'batches')} of {batch_size} images per "
                f"epoch{f' on each of {ranks} ranks' * (ranks > 1)} (minimum "
                f"{_FEWEST_BATCHES} batches). Use {remedy}{fewer}more images."
            )
            raise ConfigError(message)


def _copied(copies: int) -> Path:
    """Return a folder with so many copies of every photograph."""
    folder = cache_path(_PHOTOS).parent
    try:
        # As files, and once more packed.
        check_room(folder, copies, ["files", "tfrecord"])
        return put_photos(folder, copies, ["files"])["files"]
    except ConfigError as error:
        problem = str(error).partition(" ")[2].partition(". ")[0]
        message = (
            f"data='photos', copied {copies} times for these batches, {problem}. Use a "
            "smaller batch_size_per_gpu or your own TFRecord files, or free disk space."
        )
        raise ConfigError(message) from error
