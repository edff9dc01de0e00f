"""Packing of a data set into a few large files, byte for byte."""

from __future__ import annotations

import os
import random
import shutil
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from nbkit.datasets.find import find
from nbkit.datasets.listing import Listing, alike_classes, is_image
from nbkit.datasets.packed import PackDescription
from nbkit.datasets.recordio import RecordIOWriter
from nbkit.datasets.samples import ImageSample, Samples
from nbkit.datasets.skipped_files import in_words
from nbkit.datasets.tfrecord import TFRecordWriter
from nbkit.datasets.webdataset import WebDatasetWriter, split_name
from nbkit.errors import ConfigError, StoreError
from nbkit.plural import plural
from nbkit.reading import expanded
from nbkit.visible import encodable, visible

PackFormat: TypeAlias = Literal["webdataset", "recordio", "tfrecord"]
UnknownLabels: TypeAlias = Literal["refuse", "zero", "one", "ignore"]

PackProgress: TypeAlias = Callable[[int, int], None]
"""Called with the number of images that are packed and of all."""

_SUFFIXES = {"webdataset": ".tar", "recordio": ".rec", "tfrecord": ".tfrecord"}
SHARD_MEGABYTES = 256
_LINE_SECONDS = 5.0
"""Between two lines of progress."""


def pack(
    data: str | Path,
    folder: str | Path,
    format: PackFormat,
    *,
    shard_megabytes: int | None = None,
    missing_labels: UnknownLabels = "refuse",
    uncertain_labels: UnknownLabels = "refuse",
    on_progress: PackProgress | None = None,
) -> Path:
    """Write the images of a data set into a few large files.

    Images keep their bytes, names, labels and split. Training images are shuffled,
    always in the same order, for readers that read a file from front to back. Files
    that training would skip are not packed; one printed line counts them.

    Parameters
    ----------
    data
        As in an experiment: a folder of images or of packed files, a CSV file of
        labels, or the name of a built-in set.
    folder
        The folder to create. It appears only when all files are complete.
    format
        ``webdataset`` (tar files), ``recordio`` (MXNet) or ``tfrecord``, each with the
        index that NVIDIA DALI reads.
    shard_megabytes
        Size at which a new file begins, in 10^6 bytes. None uses 256, or, with
        ``recordio``, a single file, because MXNet and DALI read one file and one index.
    missing_labels, uncertain_labels
        How to read blanks, and -1 or words, in the label columns of a CSV file:
        ``refuse``, ``zero``, ``one``, or ``ignore``, which omits the image.
    on_progress
        Called with the number of images packed and of all, instead of printing lines.

    Returns
    -------
    Path
        The folder, to be passed as ``data`` of an experiment.

    Raises
    ------
    ConfigError
        If the data cannot be listed, the folder is not empty, or the format does not
        support the name of an image.
    StoreError
        If the folder cannot be written.
    """
    folder = expanded(folder, "folder")
    if folder.is_symlink():
        folder = folder.resolve()  # nothing can be renamed to a link's name
    _check_arguments(folder, format, shard_megabytes)
    listing = find(
        str(data), missing_labels=missing_labels, uncertain_labels=uncertain_labels
    )
    _check_names(listing, format)
    if shard_megabytes is None and format != "recordio":
        shard_megabytes = SHARD_MEGABYTES
    shard_bytes = None if shard_megabytes is None else shard_megabytes * 1_000_000
    temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
    try:
        temporary.mkdir(parents=True)
        if on_progress is None:
            _print_notes(listing)
        _write(listing, temporary, format, shard_bytes, on_progress or _Lines())
        for path in (*temporary.iterdir(), temporary):
            _sync(path)
        # Replaces an empty folder, never one that holds something.
        temporary.rename(folder)
        _sync(folder.parent)
    except OSError as error:
        message = (
            f"{folder} cannot be written ({error.strerror or error}). Free some "
            "space, or use a writable folder."
        )
        raise StoreError(message) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _check_arguments(folder: Path, format: str, shard_megabytes: int | None) -> None:
    if format not in get_args(PackFormat):
        known = ", ".join(get_args(PackFormat))
        message = f"format={format!r} is unknown. Use one of {known}."
        raise ConfigError(message)
    if shard_megabytes is not None and shard_megabytes < 1:
        message = f"shard_megabytes={shard_megabytes} is below 1. Use 1 or more."
        raise ConfigError(message)
    if folder.is_mount():
        message = (
            f"folder={str(folder)!r} is a mount point and cannot be replaced. Pass the "
            "path of a subfolder."
        )
        raise ConfigError(message)
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        problem = "holds files" if folder.is_dir() else "is a file"
        message = (
            f"folder={str(folder)!r} {problem}, but packed files require a new or "
            "empty folder. Pass the path of a new folder."
        )
        raise ConfigError(message)


def _check_names(listing: Listing, format: PackFormat) -> None:
    """Refuse names that would come back as others."""
    if format == "webdataset":
        _check_stems(listing)
    if format == "recordio":
        for _, samples in listing.splits():
            for sample in samples:
                if any(sign in sample.name for sign in "\t\n\r"):
                    message = (
                        f"The name {sample.name!r} contains a tab or line break, which "
                        "RecordIO does not support. Use format='tfrecord' or "
                        "'webdataset'."
                    )
                    raise ConfigError(message)


def _check_stems(listing: Listing) -> None:
    for _, samples in listing.splits():
        seen: dict[str, str] = {}
        for sample in samples:
            stem, extension = split_name(sample.name)
            problem = ""
            if not stem or stem.endswith("/") or not is_image(sample.name):
                problem = f"{sample.name!r} has no image suffix"
            elif "." in extension:
                problem = f"{sample.name!r} has more than one dot in its name"
            elif stem in seen:
                problem = f"{seen[stem]!r} and {sample.name!r} have the same stem"
            if problem:
                message = (
                    f"{problem}, but WebDataset requires a unique name up to the first "
                    "dot, then an image suffix. Use format='recordio' or 'tfrecord'."
                )
                raise ConfigError(message)
            seen[stem] = sample.name


def _write(
    listing: Listing,
    folder: Path,
    format: PackFormat,
    shard_bytes: int | None,
    on_progress: PackProgress,
) -> None:
    images = listing.open()
    total, done = len(images), 0
    try:
        for split, samples in listing.splits():
            # The images of both splits have one numbering.
            numbered = list(enumerate(samples, start=done))
            if split == "train":
                random.Random(0).shuffle(numbered)
            shards = _Shards(listing, folder, format, split, shard_bytes)
            try:
                for number, sample in numbered:
                    shards.add(sample, _read(images, number, sample))
                    done += 1
                    on_progress(done, total)
            finally:
                shards.close()
    finally:
        images.close()
    contents = listing.contents
    counts = {split: len(samples) for split, samples in listing.splits()}
    PackDescription(contents.classes, contents.is_multi_label, counts).write(folder)


def _read(images: Samples, number: int, sample: ImageSample) -> bytes:
    try:
        data = images.read(number)
    except StoreError as error:
        message = f"{images.place(number)} cannot be packed: {error}"
        raise ConfigError(message) from error
    except OSError as error:
        message = (
            f"{images.place(number)} cannot be read ({error.strerror}). Fix the file, "
            "or remove it from the data."
        )
        raise ConfigError(message) from error
    if sample.size_bytes not in (None, len(data)):
        # Python raises nothing when it reads past the end of a file.
        message = (
            f"{images.place(number)} cannot be packed: size changed from "
            f"{sample.size_bytes:,} to {len(data):,} bytes. Pack again without "
            "changing the data."
        )
        raise ConfigError(message)
    return data


class _Shards:
    """The files of one split, one after the other."""

    def __init__(
        self,
        listing: Listing,
        folder: Path,
        format: PackFormat,
        split: str,
        shard_bytes: int | None,
    ) -> None:
        self._classes = listing.contents.classes
        self._folder = folder
        self._format = format
        self._name = "val" if split == "evaluation" else split
        self._shard_bytes = shard_bytes
        self._writer: WebDatasetWriter | RecordIOWriter | TFRecordWriter | None = None
        self._written = 0
        self._images = self._files = 0

    def add(self, sample: ImageSample, data: bytes) -> None:
        """Write an image to the current file, or to a new one if that is full."""
        limit = self._shard_bytes
        if limit is not None and self._written and self._written + len(data) > limit:
            self.close()
        if self._writer is None:
            self._writer, self._written = self._open(), 0
        self._writer.add(self._images, sample, data)
        self._written += len(data)
        self._images += 1

    def close(self) -> None:
        """Finish the current file."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()

    def _open(self) -> WebDatasetWriter | RecordIOWriter | TFRecordWriter:
        name = self._name
        if self._shard_bytes is not None:
            name += f"-{self._files:05}"
            self._files += 1
        path = self._folder / f"{name}{_SUFFIXES[self._format]}"
        if self._format == "webdataset":
            return WebDatasetWriter(path)
        if self._format == "recordio":
            return RecordIOWriter(path)
        return TFRecordWriter(path, self._classes)


def _print_notes(listing: Listing) -> None:
    """Print what a person may not expect, and what is not part of the pack."""
    notes = [*listing.notes, *alike_classes(listing.contents.classes)]
    if skipped := listing.skipped_files:
        what = f"{plural(sum(skipped.values()), 'file')} ({in_words(skipped)})"
        notes.append(f"not packed (not part of the data): {what}")
    lines = (f"{visible(note)}\n" for note in notes)
    sys.stdout.writelines(encodable(line, sys.stdout.encoding) for line in lines)


class _Lines:
    """Prints how far it is, now and then."""

    def __init__(self) -> None:
        self._began = self._printed_at = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if done < total and now - self._printed_at < _LINE_SECONDS:
            return
        self._printed_at = now
        rate = done / max(now - self._began, 1e-6)
        images = plural(total, "image")
        sys.stdout.write(f"packed {done:,} of {images}, {rate:,.0f} per second\n")
        sys.stdout.flush()


def _sync(path: Path) -> None:
    """Have the disk hold a file or folder before its name says that it is complete."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
