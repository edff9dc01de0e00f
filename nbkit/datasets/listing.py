"""Listing of a data set, before an image is opened."""

from __future__ import annotations

import functools
import hashlib
import os
import stat
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from nbkit.datasets.samples import Decoding, ImageSample, Samples
from nbkit.errors import ConfigError, StoreError
from nbkit.reading import read_file

# What torchvision's ImageFolder takes:
# https://docs.pytorch.org/vision/stable/generated/torchvision.datasets.ImageFolder.html
IMAGE_SUFFIXES = (
    ".jpg",
    ".jpeg",
    ".png",
    ".ppm",
    ".bmp",
    ".pgm",
    ".tif",
    ".tiff",
    ".webp",
)

# A network file system answers in a millisecond, one after the other: a million files
# would take longer than a rank may stay silent. The kernel answers many together.
_STAT_THREADS = 16
_FILES_PER_TASK = 256


@dataclass(frozen=True)
class Contents:
    """The images of a data set, in the order of their names."""

    classes: Sequence[str]
    """Names of the classes, or of the labels if an image can have several."""
    train: Sequence[ImageSample]
    evaluation: Sequence[ImageSample]
    """Empty if there are none."""
    is_multi_label: bool = False
    patients: Mapping[str, str] = field(default_factory=dict)
    """Patient of each image, by the image's name; empty if unknown."""
    split_by: str | None = None
    """How the evaluation images were chosen, in words; None if by folders."""


@dataclass(frozen=True)
class Listing:
    """A data set, whose images are listed on first use."""

    kind: str
    """``image folder``, ``multi-label``, ``NIH ChestX-ray14``, ``webdataset``,
    ``recordio``, ``tfrecord``."""
    root: Path
    """The folder to which names and packed files are relative."""
    read: Callable[[], Contents]
    """Lists the images, which takes minutes for a million in packed files. Raises
    `ConfigError` if it finds something that cannot be used."""
    shards: Sequence[str] = ()
    """The packed files, below ``root``."""
    described_by: Sequence[str] = ()
    """Files below ``root`` that contain names, labels or classes."""
    rule: str | None = None
    """Name of the rule by which nbkit split the images; part of the stamp, so that a
    manifest with a split by another rule is not used."""
    skipped_files: Mapping[str, int] = field(default_factory=dict)
    """Number of files that are not part of the data, by suffix."""
    notes: Sequence[str] = ()
    """Further notes on how the data are read, such as omitted files."""

    @functools.cached_property
    def contents(self) -> Contents:
        """The images; listed on first use."""
        return self.read()

    @property
    def files(self) -> list[str]:
        """Every file that holds images, below ``root``."""
        if self.shards:
            return list(self.shards)
        return [sample.name for _, samples in self.splits() for sample in samples]

    def fingerprint(self) -> Fingerprint:
        """Return what identifies this data set, without reading the images."""
        files = self.files
        tasks = [
            files[start : start + _FILES_PER_TASK]
            for start in range(0, len(files), _FILES_PER_TASK)
        ]
        contents, stamp = hashlib.sha256(), hashlib.sha256()
        stamp.update(os.fsencode(self.root.resolve()))
        if self.rule is not None:
            stamp.update(b"\0" + self.rule.encode() + b"\0")
        total_bytes = 0
        try:
            with ThreadPoolExecutor(_STAT_THREADS) as pool:
                # The results come in the order of the tasks.
                for lines, times, size in pool.map(self._stat, tasks):
                    contents.update(lines)
                    stamp.update(lines + times)
                    total_bytes += size
            for name in self.described_by:
                # Another label may have the same length: here the content counts.
                content = hashlib.sha256(read_file(self.root / name, None)).digest()
                contents.update(os.fsencode(name) + b"\0" + content)
                stamp.update(os.fsencode(name) + b"\0" + content)
        except StoreError as error:
            # A list of names that is a pipe, or may not be read: the text says which.
            message = f"data={str(self.root)!r}: {error}"
            raise ConfigError(message) from error
        except OSError as error:
            message = (
                f"data={str(self.root)!r}: {error.filename} cannot be read "
                f"({error.strerror}). Restore it, and do not change data in use."
            )
            raise ConfigError(message) from error
        return Fingerprint(
            str(self.root),
            self.kind,
            len(files),
            total_bytes,
            contents.hexdigest(),
            stamp.hexdigest(),
        )

    def _stat(self, names: list[str]) -> tuple[bytes, bytes, int]:
        """Return lines of paths and sizes, the files' times, and their bytes."""
        lines, times, total_bytes = [], [], 0
        for name in names:
            try:
                status = (self.root / name).stat()
            except OSError:
                if not is_broken_symlink(self.root / name):
                    raise
                # It is skipped when the images are looked at.
                lines.append(os.fsencode(name) + b"\0link\n")
                continue
            if not stat.S_ISREG(status.st_mode):
                message = (
                    f"data={str(self.root)!r}: {name} is not a regular file, but a "
                    "pipe or device. Remove it."
                )
                raise ConfigError(message)
            lines.append(os.fsencode(name) + f"\0{status.st_size}\n".encode())
            times.append(f"{status.st_mtime_ns}\n".encode())
            total_bytes += status.st_size
        return b"".join(lines), b"".join(times), total_bytes

    def splits(self) -> Iterator[tuple[str, Sequence[ImageSample]]]:
        """Yield ``train`` and ``evaluation`` with their images."""
        yield "train", self.contents.train
        yield "evaluation", self.contents.evaluation

    def open(self) -> Samples:
        """Return all images, training images first, to read their files."""
        unknown = Decoding(0, 0, 1, is_plain=False)
        return Samples(
            self.root,
            self.shards,
            (
                replace(sample, decoding=unknown, size_bytes=sample.size_bytes or 0)
                for _, samples in self.splits()
                for sample in samples
            ),
        )


def alike_classes(classes: Sequence[str]) -> list[str]:
    """Return a note on classes that differ only in case, blanks or Unicode form."""
    names: dict[str, list[str]] = {}
    for name in classes:
        plain = " ".join(unicodedata.normalize("NFKC", name).split()).casefold()
        names.setdefault(plain, []).append(name)
    alike = [" and ".join(map(repr, group)) for group in names.values() if group[1:]]
    what = "class names differ only in case, spaces or Unicode form"
    return [f"{what}: {', '.join(alike)}"] if alike else []


def is_image(name: str) -> bool:
    """Return whether a file is an image, by its name."""
    return name.lower().endswith(IMAGE_SUFFIXES)


def is_broken_symlink(path: Path) -> bool:
    """Tell whether a path is a link to nothing, or to itself."""
    return path.is_symlink() and not path.exists()


@dataclass(frozen=True)
class Fingerprint:
    """Identity of a data set."""

    source: str
    """Folder of the data set."""
    kind: str
    files: int
    bytes: int
    sha256: str
    """Hash of the path and the size of every file, in order, and of the content of
    files with labels; the same for a copy elsewhere."""
    stamp: str
    """As ``sha256``, with the folder and the files' times: it changes as soon as a
    file is written."""

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values for a record, without the stamp of this machine."""
        values = asdict(self)
        del values["stamp"]
        return values
