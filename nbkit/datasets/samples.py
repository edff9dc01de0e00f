"""The images of one split by index: names, labels, and where their bytes are."""

from __future__ import annotations

import contextlib
import os
import threading
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from nbkit.reading import descriptor_of, read_file

Pieces: TypeAlias = tuple[tuple[int, int], ...]
"""Offset and length of each piece of an image inside a packed file, in bytes."""

RECORDIO_MAGIC = (0xCED7230A).to_bytes(4, "little")
"""What joins the pieces of a record: RecordIO cuts it out of the data it wraps
(https://github.com/dmlc/dmlc-core/blob/main/include/dmlc/recordio.h)."""

_OPENING = threading.Lock()

MOST_OPEN = 256
"""Packed files that a process keeps open: it may have 1,024 files in all."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """Facts that a decoder needs before it reads an image."""

    width: int
    """Width in pixels of the upright image."""
    height: int
    orientation: int
    """EXIF orientation, 1 to 8; 1 is upright."""
    is_plain: bool
    """Whether it is a plain 8-bit JPEG (gray or RGB) or RGB PNG, which every decoder
    reads alike. Other decoders receive all other images re-encoded by Pillow."""
    is_high_bit_depth: bool = field(default=False, compare=False)
    """Whether it is grayscale of more than 8 bits; known only during the check."""
    is_coarse: bool = field(default=False, compare=False)
    """Whether 8 bits keep few of its gray levels; known only during the check."""

    @property
    def stored_size(self) -> tuple[int, int]:
        """Width and height of the pixels in the file, before any rotation."""
        width, height = self.width, self.height
        return (height, width) if self.orientation >= 5 else (width, height)


@dataclass(frozen=True, slots=True)
class ImageSample:
    """One image of a listing."""

    name: str
    """Path relative to the data's folder, also for an image in a packed file."""
    label: int | tuple[int, ...]
    """Index of its class, or 0 or 1 for each label."""
    size_bytes: int | None
    """Size of the image's file; None until it has been read."""
    shard: int | None = None
    """Index of the packed file that holds it; None if the image is a separate file."""
    pieces: Pieces = ()
    """Offset and length of its pieces in the packed file."""
    decoding: Decoding | None = field(default=None)
    """Facts for decoders; None until the image has been checked."""


class Samples:
    """Many images, in a few flat arrays.

    A million Python objects would gradually be copied into every loading process,
    because using an object writes its reference count.
    """

    def __init__(
        self, root: Path, shards: Sequence[str], samples: Iterable[ImageSample]
    ) -> None:
        self._root = root
        self._shards = list(shards)
        self._names = bytearray()
        self._name_ends = array("Q", [0])
        self._labels = array("q")
        self._labels_per_sample = 0
        self._numbers = array("q")
        """For each sample: bytes, shard, first offset, width, height, orientation,
        plain."""
        self._more_pieces: dict[int, Pieces] = {}
        self._descriptors: dict[tuple[int, int], int] = {}
        for sample in samples:
            self._append(sample)

    def __len__(self) -> int:
        return len(self._name_ends) - 1

    @property
    def are_packed(self) -> bool:
        """Whether the images are in packed files."""
        return bool(self._shards)

    def name(self, index: int) -> str:
        """Return an image's path below the data's folder."""
        start, end = self._name_ends[index], self._name_ends[index + 1]
        return os.fsdecode(bytes(self._names[start:end]))

    def label(self, index: int) -> int | tuple[int, ...]:
        """Return the index of an image's class, or 0 or 1 for each label."""
        if not self._labels_per_sample:
            return self._labels[index]
        start = index * self._labels_per_sample
        return tuple(self._labels[start : start + self._labels_per_sample])

    def classes(self) -> set[int]:
        """Return the classes, or labels, that have an image."""
        labels = self._labels_per_sample
        if not labels:
            return set(self._labels)
        return {label for label in range(labels) if 1 in self._labels[label::labels]}

    def size_bytes(self, index: int) -> int:
        """Return the length of an image's file, in bytes."""
        return self._number(index, 0)

    def decoding(self, index: int) -> Decoding:
        """Return the facts that a decoder needs."""
        width, height, orientation, is_plain = (
            self._number(index, place) for place in (3, 4, 5, 6)
        )
        return Decoding(width, height, orientation, bool(is_plain))

    def packed_at(self, index: int) -> tuple[int, int]:
        """Return the number of the packed file that holds an image, and its offset."""
        # The number is -1 where the image is a separate file.
        return self._number(index, 1), self._number(index, 2)

    def place(self, index: int) -> str:
        """Return the path of an image, or its name and packed file, for messages."""
        shard = self._number(index, 1)
        if shard < 0:
            return str(self._root / self.name(index))
        return f"{self.name(index)} in {self._root / self._shards[shard]}"

    def read(self, index: int) -> bytes:
        """Return the bytes of an image's file."""
        shard = self._number(index, 1)
        if shard < 0:
            return read_file(self._root / self.name(index), None)
        size, offset = self._number(index, 0), self._number(index, 2)
        pieces = self._more_pieces.get(index, ((offset, size),))
        with self._open_shard(shard) as descriptor:
            return RECORDIO_MAGIC.join(
                os.pread(descriptor, length, start) for start, length in pieces
            )

    def _append(self, sample: ImageSample) -> None:
        looked, size_bytes = sample.decoding, sample.size_bytes
        assert looked is not None, "only checked images are listed"
        assert size_bytes is not None
        self._names += os.fsencode(sample.name)
        self._name_ends.append(len(self._names))
        if isinstance(sample.label, int):
            self._labels.append(sample.label)
        else:
            self._labels.extend(sample.label)
            self._labels_per_sample = len(sample.label)
        if len(sample.pieces) > 1:
            self._more_pieces[len(self) - 1] = sample.pieces
        self._numbers.extend(
            (
                size_bytes,
                -1 if sample.shard is None else sample.shard,
                sample.pieces[0][0] if sample.pieces else 0,
                looked.width,
                looked.height,
                looked.orientation,
                looked.is_plain,
            )
        )

    def _number(self, index: int, place: int) -> int:
        return self._numbers[index * 7 + place]

    @contextlib.contextmanager
    def _open_shard(self, shard: int) -> Iterator[int]:
        """Give a packed file's descriptor; most stay open, in every process its own."""
        key = (os.getpid(), shard)
        with _OPENING:
            descriptor = self._descriptors.get(key)
            if descriptor is None:
                path = self._root / self._shards[shard]
                descriptor = descriptor_of(path)
                if len(self._descriptors) < MOST_OPEN:
                    self._descriptors[key] = descriptor
            stays = key in self._descriptors
        try:
            yield descriptor
        finally:
            if not stays:
                os.close(descriptor)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_descriptors": {}}

    def close(self) -> None:
        """Close the packed files that this process opened."""
        for (pid, shard), descriptor in list(self._descriptors.items()):
            if pid == os.getpid():
                del self._descriptors[pid, shard]
                os.close(descriptor)
