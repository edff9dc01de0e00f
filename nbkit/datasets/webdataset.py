"""WebDataset: tar files in which neighbours with one stem belong together.

An image ``train/cat/1.jpg`` is followed by ``train/cat/1.cls``, which holds the index
of its class in digits; or, with several labels, by ``train/cat/1.json``, a list of 0
and 1. The format: https://github.com/webdataset/webdataset#the-webdataset-format
"""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from nbkit.datasets.listing import IMAGE_SUFFIXES, Listing, is_image
from nbkit.datasets.packed import Packed, list_packed
from nbkit.datasets.samples import ImageSample
from nbkit.datasets.shards import damaged
from nbkit.errors import ConfigError

SUFFIX = ".tar"

_LABEL_BYTES = 1 << 20
"""What a label takes at most: a list of 0 and 1 for 300,000 labels."""
_ZEROS_BYTES = 1 << 16
_NO_FILES = (tarfile.DIRTYPE, b"D", b"V")
"""Folders, also as GNU tar lists them in backups, and the label of an archive."""


def list_webdataset(
    root: Path, *, on_wait: Callable[[], None] | None = None
) -> Listing:
    """Return the images in the tar files of a folder."""
    return list_packed("webdataset", root, is_webdataset, _read, on_wait)


def is_webdataset(name: str) -> bool:
    """Return whether a file is a WebDataset shard, by its name."""
    return name.lower().endswith(SUFFIX)


def split_name(path: str) -> tuple[str, str]:
    """Return the stem before the first dot of a name, and the rest."""
    folder, slash, name = path.rpartition("/")
    stem, _, extension = name.partition(".")
    return f"{folder}{slash}{stem}", extension


@dataclass(frozen=True, slots=True)
class _Member:
    """A file in a tar file."""

    name: str
    offset: int
    size: int


@dataclass
class _Parts:
    """Neighbours with one stem."""

    stem: str
    image: _Member | None = None
    others: dict[str, _Member] = field(default_factory=dict)
    """By extension in small letters."""


def _read(path: Path) -> Iterator[Packed]:
    seen: set[str] = set()
    with path.open("rb") as file:
        for parts in _neighbours(path, file):
            if parts.image is None:
                _check_has_no_label(path, file, parts)
                continue
            name = parts.image.name.removeprefix("./")
            if name in seen:
                raise _duplicate_error(path, name)
            seen.add(name)
            place = parts.image.offset, parts.image.size
            yield Packed(name, _labels(path, file, parts), (place,))


def _neighbours(path: Path, file: io.BufferedReader) -> Iterator[_Parts]:
    """Yield files with one stem; without hidden ones."""
    parts: _Parts | None = None
    for member in _members(path, file):
        stem, extension = split_name(member.name)
        if not stem or stem.endswith("/"):
            continue
        if parts is None or parts.stem != stem:
            if parts is not None:
                yield parts
            parts = _Parts(stem)
        if not is_image(member.name):
            if parts.others.setdefault(extension.lower(), member) is not member:
                raise _duplicate_error(path, member.name)
        elif parts.image is None:
            parts.image = member
        elif parts.image.name == member.name:
            raise _duplicate_error(path, member.name)
        else:
            message = (
                f"{path} has two images with the same stem: {parts.image.name!r} and "
                f"{member.name!r}. Rename one, and pack the images again."
            )
            raise ConfigError(message)
    if parts is not None:
        yield parts


def _duplicate_error(path: Path, name: str) -> ConfigError:
    return ConfigError(
        f"{path} contains {name!r} twice, possibly after tar --append. Unpack it, "
        "which keeps the last copy, and pack it again."
    )


def _members(path: Path, file: io.BufferedReader) -> Iterator[_Member]:
    """Yield the files in a tar file, whose end has to be there."""
    end = 0
    try:
        with tarfile.open(fileobj=file, mode="r:") as tar:
            for member in tar:
                end = tar.offset
                if member.type in _NO_FILES:
                    continue
                if not member.isreg() or member.issparse():
                    message = (
                        f"{path}: {member.name!r} is a link, a sparse file or a "
                        "special file. Pack the images with tar --dereference "
                        "--hard-dereference, without --sparse."
                    )
                    raise ConfigError(message)
                yield _Member(member.name, member.offset_data, member.size)
            end = tar.offset
    except tarfile.TarError as error:
        raise damaged(path, end, str(error)) from error
    # The module takes anything that is not a header for the end of the archive.
    if os.pread(file.fileno(), tarfile.BLOCKSIZE, end) != bytes(tarfile.BLOCKSIZE):
        raise damaged(path, end, "neither a file header nor the end of the archive")
    while block := os.pread(file.fileno(), _ZEROS_BYTES, end):
        if block.strip(b"\0"):
            message = (
                f"{path} has data after the end of its archive, possibly because "
                "archives were joined with cat. Unpack it with tar --ignore-zeros, and "
                "pack the images again."
            )
            raise ConfigError(message)
        end += len(block)


def _check_has_no_label(path: Path, file: io.BufferedReader, parts: _Parts) -> None:
    """Refuse a label whose image would be left out, such as that of a GIF."""
    if "cls" not in parts.others:
        try:
            _labels(path, file, parts)
        except ConfigError:
            return  # A text or a .json file of something else.
    names = ", ".join(repr(member.name) for member in parts.others.values())
    message = (
        f"{path}: {parts.stem!r} has a label, but no image ({names}). Add an image "
        f"with one of the suffixes {' '.join(IMAGE_SUFFIXES)}, or remove its label."
    )
    raise ConfigError(message)


def _labels(path: Path, file: io.BufferedReader, parts: _Parts) -> tuple[int, ...]:
    member = parts.others.get("cls") or parts.others.get("json")
    if member is None:
        message = (
            f"{path}: {parts.stem!r} has no label. Add a .cls file with a class index, "
            "or a .json file with a list of zeros and ones."
        )
        raise ConfigError(message)
    text = os.pread(file.fileno(), min(member.size, _LABEL_BYTES), member.offset)
    try:
        value = json.loads(text)
        labels = value if isinstance(value, list) else [value]
        if not labels or not all(type(label) is int for label in labels):
            raise ValueError
    except (ValueError, RecursionError) as error:
        message = (
            f"{path}: {member.name!r} contains {text[:40]!r}, which is neither a class "
            "index nor a list of zeros and ones. Pack the images again."
        )
        raise ConfigError(message) from error
    return tuple(labels)


_Part: TypeAlias = tuple[str, int, int, str]
"""Extension, offset in bytes, size in bytes and name of a file in a tar file."""


class WebDatasetWriter:
    """Writes one tar file and its index for NVIDIA DALI.

    Notes
    -----
    The index is that of DALI's ``wds2idx``:
    https://github.com/NVIDIA/DALI/blob/main/tools/wds2idx.py
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("wb")
        # GNU's format holds names of any length and bytes.
        self._tar = tarfile.open(  # noqa: SIM115 - closed in close()
            fileobj=self._file, mode="w", format=tarfile.GNU_FORMAT
        )
        self._rows: list[tuple[_Part, _Part]] = []

    def add(self, index: int, sample: ImageSample, data: bytes) -> None:
        """Write one image and its label."""
        label = sample.label
        stem, extension = split_name(sample.name)
        if isinstance(label, int):
            text, name = str(label), "cls"
        else:
            text, name = json.dumps(label), "json"
        self._rows.append(
            (
                self._member(sample.name, extension, data),
                self._member(f"{stem}.{name}", name, text.encode()),
            )
        )

    def close(self) -> None:
        """Write the archive's end and the index."""
        self._tar.close()
        self._file.close()
        # DALI splits a row at white space. The older version has no names to split.
        names = (name for row in self._rows for *_, name in row)
        with_names = not any(re.search(r"\s", name) for name in names)
        width = 4 if with_names else 3
        with self._path.with_suffix(".idx").open("wb") as file:
            version = "v1.2" if with_names else "v1.1"
            file.write(f"{version} {len(self._rows)}\n".encode())
            for row in self._rows:
                fields = " ".join(str(value) for part in row for value in part[:width])
                file.write(os.fsencode(fields) + b"\n")

    def _member(self, name: str, extension: str, data: bytes) -> _Part:
        # Nothing else is noted, so that the same images make the same bytes.
        member = tarfile.TarInfo(name)
        member.size = len(data)
        self._tar.addfile(member, io.BytesIO(data))
        blocks = -(-len(data) // tarfile.BLOCKSIZE)
        return extension, self._tar.offset - blocks * tarfile.BLOCKSIZE, len(data), name
