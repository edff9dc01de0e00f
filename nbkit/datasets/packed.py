"""Base of the packed formats: their files, and the counts in them.

A pack is a folder of packed files ("shards"). The words in a shard's path say whether
its images are for training or for evaluation. Packs that nbkit writes hold a small file
besides, because two of the three formats have no place for the names of classes.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

from nbkit.datasets.folders import check_links, names_in, readable
from nbkit.datasets.listing import Contents, Listing
from nbkit.datasets.samples import RECORDIO_MAGIC, ImageSample
from nbkit.datasets.shards import Packed, missing_shards, shards_below, use_of
from nbkit.datasets.skipped_files import is_archive, suffix_kind
from nbkit.datasets.splits import EVALUATION, split_of
from nbkit.errors import ConfigError
from nbkit.plural import plural
from nbkit.reading import read_file

DESCRIPTION = "dataset.json"
_SCHEMA = "nbkit.pack/1"

_LISTING_THREADS = 16
"""Shards listed concurrently, for disks that answer slowly."""
_BETWEEN_CALLS_SECONDS = 1.0

_MOST_WITH_GAPS, _MOST_PER_DISTINCT = 100_000, 10
"""Numbers of classes may leave gaps, as those of a part of a larger set do; above the
first limit, no more than so many for each that occurs."""


@dataclass(frozen=True)
class PackDescription:
    """Description file of a pack."""

    classes: Sequence[str]
    is_multi_label: bool
    images: Mapping[str, int] = field(default_factory=dict)
    """Expected number of images by split; empty if not given."""

    def write(self, folder: Path) -> None:
        """Write it into a pack's folder."""
        text = json.dumps(
            {
                "schema": _SCHEMA,
                "is_multi_label": self.is_multi_label,
                "images": dict(self.images),
                "classes": list(self.classes),
            },
            indent=1,
        )
        (folder / DESCRIPTION).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> PackDescription | None:
        """Return a pack's description; None if it has none."""
        path = folder / DESCRIPTION
        try:
            entries: dict[str, Any] = json.loads(read_file(path))
            if entries["schema"] != _SCHEMA:
                message = f"schema {entries['schema']!r}, not {_SCHEMA!r}"
                raise ValueError(message)
            return cls(
                list(entries["classes"]),
                bool(entries["is_multi_label"]),
                {split: int(n) for split, n in entries.get("images", {}).items()},
            )
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            message = (
                f"{path} is not a valid pack description ({error}). Remove it to use "
                "numbers as class names."
            )
            raise ConfigError(message) from error


def list_packed(
    kind: str,
    root: Path,
    is_shard: Callable[[str], bool],
    read_shard: Callable[[Path], Iterable[Packed]],
    on_wait: Callable[[], None] | None,
    beside: str | None = None,
) -> Listing:
    """Return the listing of the shards in a folder, which are read on first use."""
    with readable(root):
        check_links(root, root, split_of)
        use = use_of(root, shards_below(root, is_shard))
        unpacked = [name for name in names_in(root)[1] if name not in use]
    shards = [shard for shard in use if use[shard]]
    notes = missing_shards(shards)
    if unused := len(use) - len(shards):
        skipped = plural(unused, "packed test file")
        notes.append(f"{skipped} skipped: evaluation uses the validation files")
    described_by = [DESCRIPTION]
    if beside is not None:
        described_by += [str(Path(shard).with_suffix(beside)) for shard in shards]
    described_by = [name for name in described_by if (root / name).exists()]

    def read() -> Contents:
        with readable(root):
            paths = [root / shard for shard in shards]
            images_of = _read_all(paths, read_shard, on_wait)
        images = list(zip(map(use.__getitem__, shards), shards, images_of, strict=True))
        return _contents(kind, root, images)

    return Listing(
        kind,
        root,
        read,
        shards,
        described_by,
        skipped_files=Counter(map(suffix_kind, filter(is_archive, unpacked))),
        notes=notes,
    )


def _read_all(
    paths: Sequence[Path],
    read_shard: Callable[[Path], Iterable[Packed]],
    on_wait: Callable[[], None] | None,
) -> list[list[Packed]]:
    """Return the images of each shard."""
    is_over = threading.Event()

    def read(path: Path) -> list[Packed]:
        return list(takewhile(lambda _: not is_over.is_set(), read_shard(path)))

    with ThreadPoolExecutor(_LISTING_THREADS) as pool:
        futures = [pool.submit(read, path) for path in paths]
        try:
            waiting = set(futures)
            while waiting:
                done, waiting = wait(
                    waiting, _BETWEEN_CALLS_SECONDS, return_when=FIRST_EXCEPTION
                )
                for future in done:
                    future.result()
                if on_wait is not None:
                    on_wait()
        except BaseException:
            is_over.set()
            pool.shutdown(cancel_futures=True)
            raise
    return [future.result() for future in futures]


def _contents(
    kind: str,
    root: Path,
    shards: Sequence[tuple[str | None, str, list[Packed]]],
) -> Contents:
    """Return the contents of shards: their use, path and images."""
    images_of = [images for _, _, images in shards]
    if not any(images_of):
        message = (
            f"data={str(root)!r} has no image in {plural(len(shards), f'{kind} file')}"
            ". Pack images with their labels."
        )
        raise ConfigError(message)
    description = PackDescription.read(root)
    if description is not None:
        is_multi_label = description.is_multi_label
    else:
        is_multi_label = any(
            len(image.labels) != 1 for part in images_of for image in part
        )
    samples: dict[str | None, list[ImageSample]] = {"train": [], "evaluation": []}
    for number, (use, shard, images) in enumerate(shards):
        for index, image in enumerate(images):
            name = image.name or f"{shard}/{index}"
            label = image.labels if is_multi_label else image.labels[0]
            size = sum(length for _, length in image.pieces)
            size += len(RECORDIO_MAGIC) * (len(image.pieces) - 1)
            sample = ImageSample(name, label, size, number, image.pieces)
            samples[use].append(sample)
    if description is not None:
        _check_whole(root, description.images, samples)
    if not samples["train"]:
        message = (
            f"data={str(root)!r} has no training images, only images for evaluation "
            f"({kind} files with {', '.join(EVALUATION[:-1])} or {EVALUATION[-1]} in "
            "their paths). Pass the folder that also contains the training files."
        )
        raise ConfigError(message)
    for images in samples.values():
        images.sort(key=lambda sample: (sample.name, sample.shard, sample.pieces))
    classes = _classes(root, images_of, description, is_multi_label)
    if not is_multi_label:
        _check_several(root, samples["train"], classes)
    return Contents(
        classes,
        samples["train"],
        samples["evaluation"],
        is_multi_label,
    )


def _check_whole(
    root: Path,
    images: Mapping[str, int],
    samples: Mapping[str | None, Sequence[ImageSample]],
) -> None:
    """Refuse a pack of which files are missing, as after a copy that was ended."""
    for split, count in images.items():
        there = len(samples.get(split, ()))
        if there < count:
            message = (
                f"data={str(root)!r} has {plural(there, 'image')} for {split}, but "
                f"{DESCRIPTION} lists {count:,}: packed files are missing. Copy all "
                f"files, or remove 'images' from {DESCRIPTION}."
            )
            raise ConfigError(message)


def _check_several(root: Path, train: list[ImageSample], classes: list[str]) -> None:
    there = {sample.label for sample in train}
    if len(there) < 2:
        only = ", ".join(classes[label] for label in there if isinstance(label, int))
        message = (
            f"data={str(root)!r} has training images of 1 class ({only}), but a "
            "classifier needs 2 or more. Add the files of the other classes, or pack "
            "the images with other labels."
        )
        raise ConfigError(message)


def _classes(
    root: Path,
    images_of: list[list[Packed]],
    description: PackDescription | None,
    is_multi_label: bool,
) -> list[str]:
    """Return the names of classes or labels, after a check of every label."""
    count = _count_labels(root, images_of, is_multi_label)
    if description is None:
        if not is_multi_label:
            _check_that_labels_count(root, images_of, count)
        names = [str(number) for number in range(count)]
        for part in images_of:
            for image in part:
                if image.class_name and not is_multi_label:
                    names[image.labels[0]] = image.class_name
        return _number_duplicates(names)
    described = len(description.classes)
    if described < count or (is_multi_label and described != count):
        message = (
            f"data={str(root)!r}: the files have "
            f"{plural(count, 'class or label', 'classes or labels')}, but "
            f"{DESCRIPTION} lists {described:,}. Correct or remove {DESCRIPTION}."
        )
        raise ConfigError(message)
    return _number_duplicates(description.classes)


def _number_duplicates(names: Sequence[str]) -> list[str]:
    """Return names with the label's number where several labels have the same."""
    counts = Counter(names)
    return [
        f"{name} ({number})" if counts[name] > 1 else name
        for number, name in enumerate(names)
    ]


def _check_that_labels_count(
    root: Path, images_of: list[list[Packed]], count: int
) -> None:
    """Refuse labels that number something else than classes, such as products."""
    if count <= _MOST_WITH_GAPS:
        return
    distinct = len({image.labels[0] for part in images_of for image in part})
    if count > _MOST_PER_DISTINCT * distinct:
        message = (
            f"data={str(root)!r}: the largest label is {count - 1:,} (limit "
            f"{max(_MOST_WITH_GAPS, _MOST_PER_DISTINCT * distinct) - 1:,} for "
            f"{plural(distinct, 'distinct label')}). Number the classes from 0, "
            "without gaps."
        )
        raise ConfigError(message)


def _count_labels(
    root: Path, images_of: list[list[Packed]], is_multi_label: bool
) -> int:
    """Return how many classes or labels there are, if labels fit together."""
    lengths, numbers = set(), set()
    for part in images_of:
        for image in part:
            lengths.add(len(image.labels))
            numbers.update(image.labels)
    counts = " to ".join(f"{n}" for n in sorted({min(lengths), max(lengths)}))
    noun = "label" if lengths == {1} else "labels"
    have = f"data={str(root)!r} has images with {counts} {noun} (values from "
    have += f"{min(numbers, default=0)} to {max(numbers, default=0)}), but "
    if is_multi_label:
        if len(lengths) > 1 or not numbers <= {0, 1}:
            message = (
                f"{have}a multi-label set requires the same number of labels for "
                "every image, each 0 or 1. Pack the images with such labels, or with "
                "one class index per image."
            )
            raise ConfigError(message)
        return max(lengths)
    if lengths != {1} or min(numbers) < 0:
        message = (
            f"{have}a single-label set requires one class index per image, 0 or more. "
            "Pack each image with its class index."
        )
        raise ConfigError(message)
    return max(numbers) + 1
