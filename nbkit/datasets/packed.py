"""What all packed formats share: which files there are, and what they amount to.

A pack is a folder of packed files ("shards"). The words in a shard's path say whether
its images are for training or for evaluation. Packs that nbkit writes hold a small file
besides, because two of the three formats have no place for the names of classes.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbkit.datasets.listing import Contents, Listing
from nbkit.datasets.samples import RECORDIO_MAGIC, Pieces, Sample
from nbkit.errors import ConfigError
from nbkit.reading import read_file

__all__ = [
    "DESCRIPTION",
    "Description",
    "Packed",
    "damaged",
    "is_for_evaluation",
    "list_packed",
    "shards_below",
]

DESCRIPTION = "dataset.json"
_SCHEMA = "nbkit.pack/1"

_EVALUATION = {"val", "valid", "validation", "test"}
_LISTING_THREADS = 16
"""Shards listed at once, for disks that answer slowly."""
_BETWEEN_CALLS_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Packed:
    """One image as its shard describes it."""

    name: str | None
    """Its path before it was packed, if the shard knows."""
    labels: tuple[int, ...]
    """The index of its class, or 0 or 1 for each label."""
    pieces: Pieces
    class_name: str | None = None


@dataclass(frozen=True)
class Description:
    """What a pack's own description says."""

    classes: Sequence[str]
    is_multi_label: bool

    def write(self, folder: Path) -> None:
        """Put it into a pack's folder."""
        text = json.dumps(
            {
                "schema": _SCHEMA,
                "is_multi_label": self.is_multi_label,
                "classes": list(self.classes),
            },
            indent=1,
        )
        (folder / DESCRIPTION).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Description | None:
        """Return a pack's description; None if it has none.

        Raises
        ------
        ConfigError
            If there is one that nbkit did not write.
        """
        path = folder / DESCRIPTION
        try:
            entries: dict[str, Any] = json.loads(read_file(path))
            if entries["schema"] != _SCHEMA:
                message = f"schema {entries['schema']!r}, not {_SCHEMA!r}"
                raise ValueError(message)
            return cls(list(entries["classes"]), bool(entries["is_multi_label"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            message = (
                f"{path} does not describe a pack ({error}); remove it, and classes "
                "are named by their numbers."
            )
            raise ConfigError(message) from error


def damaged(path: Path, offset: int, what: str) -> ConfigError:
    """Return the error of a shard that is not as its format wants it.

    Parameters
    ----------
    path
        The shard.
    offset
        Where, in bytes.
    what
        What is wrong there.
    """
    return ConfigError(
        f"{path} is damaged at byte {offset:,}: {what}; copy it again, or pack the "
        "images anew."
    )


def shards_below(root: Path, is_shard: Callable[[str], bool]) -> list[str]:
    """Return the shards in a folder and in its folders of splits, sorted.

    Parameters
    ----------
    root
        The folder; one that it holds counts if it is called train, val, valid,
        validation or test.
    is_shard
        Tells a shard by its file name.
    """
    folders = [root, *(root / name for name in ("train", *_EVALUATION))]
    return sorted(
        path.relative_to(root).as_posix()
        for folder in folders
        if folder.is_dir()
        for path in folder.iterdir()
        if is_shard(path.name) and not path.name.startswith(".") and path.is_file()
    )


def is_for_evaluation(shard: str) -> bool:
    """Tell what a shard is for by the words of its path, such as ``val-00000.tar``."""
    return not _EVALUATION.isdisjoint(re.split(r"[\W_\d]+", shard.lower()))


def list_packed(
    kind: str,
    root: Path,
    is_shard: Callable[[str], bool],
    read_shard: Callable[[Path], Iterable[Packed]],
    on_wait: Callable[[], None] | None,
    beside: str | None = None,
) -> Listing:
    """Return what the shards in a folder hold; they are read when it is asked for.

    Parameters
    ----------
    kind
        Name of the format.
    root
        The folder.
    is_shard
        Tells a shard by its file name.
    read_shard
        Gives a shard's images. Reading raises `ConfigError` if a shard is damaged, or
        if labels do not fit together.
    on_wait
        Called every second while shards are read; what it raises ends that.
    beside
        Suffix of files beside the shards that are asked for names.

    Raises
    ------
    ConfigError
        If the folder cannot be read.
    """
    with _readable(root):
        shards = shards_below(root, is_shard)
        described_by = [DESCRIPTION]
        if beside is not None:
            described_by += [str(Path(shard).with_suffix(beside)) for shard in shards]
        described_by = [name for name in described_by if (root / name).exists()]

    def read() -> Contents:
        with _readable(root):
            found = _read_all([root / shard for shard in shards], read_shard, on_wait)
        return _contents(kind, root, shards, found)

    return Listing(kind, root, read, shards, described_by)


@contextlib.contextmanager
def _readable(root: Path) -> Iterator[None]:
    """Say what to do when something cannot be read."""
    try:
        yield
    except OSError as error:
        message = (
            f"data={str(root)!r}: {error.filename} cannot be read "
            f"({error.strerror}); mend its permissions or copy the data elsewhere."
        )
        raise ConfigError(message) from error


def _read_all(
    paths: Sequence[Path],
    read_shard: Callable[[Path], Iterable[Packed]],
    on_wait: Callable[[], None] | None,
) -> list[list[Packed]]:
    is_over = threading.Event()

    def read(path: Path) -> list[Packed]:
        images = []
        for image in read_shard(path):
            if is_over.is_set():
                break
            images.append(image)
        return images

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
    kind: str, root: Path, shards: Sequence[str], found: list[list[Packed]]
) -> Contents:
    description = Description.read(root)
    if description is not None:
        is_multi_label = description.is_multi_label
    else:
        is_multi_label = any(len(image.labels) != 1 for part in found for image in part)
    train: list[Sample] = []
    evaluation: list[Sample] = []
    for number, (shard, images) in enumerate(zip(shards, found, strict=True)):
        samples = evaluation if is_for_evaluation(shard) else train
        for index, image in enumerate(images):
            name = image.name or f"{shard}/{index}"
            samples.append(_sample(name, image, number, is_multi_label))
    if not train:
        message = (
            f"data={str(root)!r} has no training images: none in {len(shards)} {kind} "
            f"files but those named {', '.join(sorted(_EVALUATION))}; give the folder "
            "that holds the training files too."
        )
        raise ConfigError(message)
    for samples in (train, evaluation):
        samples.sort(key=lambda sample: (sample.name, sample.shard, sample.pieces))
    classes = _classes(root, found, description, is_multi_label)
    return Contents(classes, train, evaluation, is_multi_label)


def _sample(name: str, image: Packed, shard: int, is_multi_label: bool) -> Sample:
    size = sum(length for _, length in image.pieces)
    size += len(RECORDIO_MAGIC) * (len(image.pieces) - 1)
    label = image.labels if is_multi_label else image.labels[0]
    return Sample(name, label, size, shard, image.pieces)


def _classes(
    root: Path,
    found: list[list[Packed]],
    description: Description | None,
    is_multi_label: bool,
) -> list[str]:
    """Return the names of classes or labels, after a look at every label."""
    count = _count_labels(root, found, is_multi_label)
    if description is None:
        names = [str(number) for number in range(count)]
        for part in found:
            for image in part:
                if image.class_name and not is_multi_label:
                    names[image.labels[0]] = image.class_name
        return names
    known = len(description.classes)
    if known < count or (is_multi_label and known != count):
        message = (
            f"data={str(root)!r}: the files have {count} classes, but {DESCRIPTION} "
            f"names {known}; it belongs to other files: remove it."
        )
        raise ConfigError(message)
    return list(description.classes)


def _count_labels(root: Path, found: list[list[Packed]], is_multi_label: bool) -> int:
    """Return how many classes or labels there are, if labels fit together."""
    lengths, numbers = set(), set()
    for part in found:
        for image in part:
            lengths.add(len(image.labels))
            numbers.update(image.labels)
    have = f"data={str(root)!r}: images have {min(lengths)} to {max(lengths)} labels "
    have += f"from {min(numbers, default=0)} to {max(numbers, default=0)}, but "
    if is_multi_label:
        if len(lengths) > 1 or not numbers <= {0, 1}:
            message = (
                f"{have}several labels must be as many for every image, each 0 or 1; "
                "pack them so, or give every image one class."
            )
            raise ConfigError(message)
        return max(lengths)
    if lengths != {1} or min(numbers) < 0:
        message = (
            f"{have}an image has one class, counted from 0; pack the images with other "
            "labels."
        )
        raise ConfigError(message)
    return max(numbers) + 1
