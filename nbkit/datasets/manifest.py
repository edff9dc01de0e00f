"""The manifest: every readable image of a data set, decided once for all loaders.

Looking at a data set means to decode every image once. The outcome is a file of JSON
lines in the store, named by the data set's stamp and by what decoded it, so that this
happens once, until the data change or another Pillow is installed. A run
has the file in its own folder as well; it is the one place where its loaders learn
which images there are, what their labels are, and in which order they are counted.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from nbkit.datasets.check import UnreadableImageError, inspect_image
from nbkit.datasets.listing import Fingerprint, Listing, is_broken_symlink
from nbkit.datasets.rgb import decoder_version
from nbkit.datasets.samples import Decoding, ImageSample, Pieces, Samples
from nbkit.errors import ConfigError, StoreError
from nbkit.reading import lines_of, open_regular

SCHEMA = "nbkit.manifest/1"
_IMAGES_PER_TASK = 32

RULES = "rules 7"
"""By which images are looked at: another number as soon as others follow."""
_NAMED_COARSE = 100

CheckProgress = Callable[[int, int], None]
"""Called with the number of images checked and of all."""


@dataclass(frozen=True)
class Unreadable:
    """An image that cannot be read, and is skipped."""

    name: str
    """Path below the data's folder."""
    split: str
    """``train`` or ``evaluation``."""
    reason: str


@dataclass(frozen=True)
class HighBitDepth:
    """Grayscale images of more than 8 bits, which are reduced to 8."""

    count: int = 0
    coarse: int = 0
    """Number of these of which 16 gray levels or fewer are left."""
    first: Sequence[str] = ()
    """Names of the first coarse images."""


@dataclass(frozen=True)
class Manifest:
    """Images of a data set, the same for every loader."""

    kind: str
    root: Path
    classes: Sequence[str]
    is_multi_label: bool
    fingerprint: dict[str, Any]
    train: Samples
    evaluation: Samples
    """Empty if the data set has no evaluation images."""
    unreadable: Sequence[Unreadable]
    """Images that are skipped, unless ``unreadable_images`` stops the run."""
    high_bit_depth: HighBitDepth = field(default_factory=HighBitDepth)
    skipped_files: Mapping[str, int] = field(default_factory=dict)
    """Number of files that are not part of the data, by suffix; empty in a stored
    manifest, because such files come and go."""
    notes: Sequence[str] = ()
    """Further notes on how the data are read; empty in a stored manifest."""

    @property
    def classes_without_training_images(self) -> int:
        """Number of classes, or labels, without a training image."""
        return len(self.classes) - len(self.train.classes())


def manifest_name(fingerprint: Fingerprint) -> str:
    """Return the file name of a data set's manifest in the store."""
    # What cannot be decoded here may be readable for another version of Pillow, or for
    # other rules of nbkit: each has its own manifest.
    text = f"{fingerprint.stamp} {RULES} {decoder_version()}"
    return f"{hashlib.sha256(text.encode()).hexdigest()}.jsonl"


def write_manifest(
    listing: Listing,
    fingerprint: Fingerprint,
    target: Path,
    *,
    threads: int | None = None,
    on_progress: CheckProgress | None = None,
) -> None:
    """Decode every image of a listing once, and write the manifest."""
    lines: list[str] = []
    unreadable: list[dict[str, str]] = []
    counts = {"train": 0, "evaluation": 0}
    high_bit_depth, coarse = 0, list[str]()
    reader = _Reader(listing)
    total = len(reader.images)
    parts = [
        range(start, min(start + _IMAGES_PER_TASK, total))
        for start in range(0, total, _IMAGES_PER_TASK)
    ]
    with (
        # Pillow warns of what it can do without. Filters are the whole process's and
        # must not be changed within the threads.
        warnings.catch_warnings(action="ignore"),
        ThreadPoolExecutor(threads or len(os.sched_getaffinity(0))) as pool,
    ):
        try:
            for part, results in zip(parts, pool.map(reader.look, parts), strict=True):
                for index, looked in zip(part, results, strict=True):
                    split, sample = reader.images[index]
                    if isinstance(looked, str):
                        left_out = Unreadable(sample.name, split, looked)
                        unreadable.append(asdict(left_out))
                    else:
                        counts[split] += 1
                        assert looked.decoding is not None
                        high_bit_depth += looked.decoding.is_high_bit_depth
                        if looked.decoding.is_coarse:
                            coarse.append(sample.name)
                        lines.append(json.dumps(_to_row(looked)))
                if on_progress is not None:
                    on_progress(part.stop, total)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
        finally:
            reader.close()
    header = {
        "schema": SCHEMA,
        "kind": listing.kind,
        "root": str(listing.root),
        "classes": list(listing.contents.classes),
        "is_multi_label": listing.contents.is_multi_label,
        "shards": list(listing.shards),
        "fingerprint": fingerprint.to_dict(),
        **counts,
        "unreadable": unreadable,
        "high_bit_depth": asdict(
            HighBitDepth(high_bit_depth, len(coarse), coarse[:_NAMED_COARSE])
        ),
    }
    temporary = target.with_name(
        f".{target.name}.{os.getpid()}.{threading.get_ident()}"
    )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in (json.dumps(header), *lines))
        temporary.replace(target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        message = (
            f"{target} cannot be written ({error.strerror}). Free some space, or set "
            "NBKIT_HOME to a writable folder."
        )
        raise StoreError(message) from error


def read_manifest(path: Path) -> Manifest:
    """Return a manifest."""
    try:
        with open_regular(path) as file:
            lines = lines_of(file, path)
            header = json.loads(next(lines, b""))
            if header["schema"] != SCHEMA:
                message = f"its schema is {header['schema']!r}, not {SCHEMA!r}"
                raise ValueError(message)
            root = Path(header["root"])
            rows = map(_from_row, lines)
            train = Samples(root, header["shards"], islice(rows, header["train"]))
            evaluation = Samples(root, header["shards"], rows)
            counts = len(train), len(evaluation)
            if counts != (header["train"], header["evaluation"]):
                count = header["train"] + header["evaluation"]
                message = f"{sum(counts)} images, not {count} as in the header"
                raise ValueError(message)
            high_bit_depth = HighBitDepth(**header["high_bit_depth"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        message = (
            f"{path} is not a valid manifest ({error or type(error).__name__}). Remove "
            "it; the next run creates it again."
        )
        raise StoreError(message) from error
    return Manifest(
        header["kind"],
        root,
        header["classes"],
        header["is_multi_label"],
        header["fingerprint"],
        train,
        evaluation,
        [Unreadable(**entry) for entry in header["unreadable"]],
        high_bit_depth,
    )


def known_manifest(path: Path, listing: Listing) -> Manifest | None:
    """Return the stored manifest of these data; None if there is none."""
    if not path.exists():
        return None
    try:
        manifest = read_manifest(path)
    except StoreError:
        return None  # Of another version of nbkit: it is made again.
    # The same folder by another path, which may not stay.
    return manifest if manifest.root == listing.root else None


def _to_row(sample: ImageSample) -> list[Any]:
    looked = sample.decoding
    assert looked is not None
    # Names are bytes on disk; what is not UTF-8 survives as lone surrogates in JSON.
    row: list[Any] = [
        sample.name,
        sample.label,
        sample.size_bytes,
        looked.width,
        looked.height,
        looked.orientation,
        int(looked.is_plain),
    ]
    return row if sample.shard is None else [*row, sample.shard, sample.pieces]


def _from_row(line: bytes) -> ImageSample:
    name, label, size, width, height, orientation, plain, *place = json.loads(line)
    shard: int | None = None
    pieces: Pieces = ()
    if place:
        shard, pieces = place[0], tuple((start, length) for start, length in place[1])
    return ImageSample(
        name,
        label if isinstance(label, int) else tuple(label),
        size,
        shard,
        pieces,
        Decoding(width, height, orientation, bool(plain)),
    )


class _Reader:
    """Reads and decodes images of a listing, in several threads."""

    def __init__(self, listing: Listing) -> None:
        self.images = [
            (split, sample) for split, images in listing.splits() for sample in images
        ]
        self._root = listing.root
        self._samples = listing.open()

    def look(self, part: range) -> list[ImageSample | str]:
        """Return checked images, and the images that cannot be read with the reason."""
        return [self._look(index) for index in part]

    def close(self) -> None:
        self._samples.close()

    def _look(self, index: int) -> ImageSample | str:
        _, sample = self.images[index]
        try:
            data = self._samples.read(index)
            decoding = inspect_image(data)
        except OSError as error:
            if sample.shard is None and is_broken_symlink(self._root / sample.name):
                return "a broken link"
            # This says nothing of the image: what is kept must not depend on it.
            message = (
                f"data={str(self._root)!r}: {self._samples.place(index)} cannot be "
                f"read ({error.strerror or error}). Restore the file or its "
                "permissions, check the file server, and start again."
            )
            raise ConfigError(message) from error
        except (MemoryError, ImportError) as error:
            lacks = "out of memory" if isinstance(error, MemoryError) else str(error)
            message = (
                f"data={str(self._root)!r}: {self._samples.place(index)} cannot be "
                f"decoded on this machine ({lacks}). Free memory, install the missing "
                "library or remove the image, then start again."
            )
            raise ConfigError(message) from error
        except UnreadableImageError as error:
            return str(error)
        return replace(sample, size_bytes=len(data), decoding=decoding)
