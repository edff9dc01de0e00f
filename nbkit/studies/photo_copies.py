"""Copies of the built-in photographs, as many as a measurement of storage needs."""

from __future__ import annotations

import os
import random
import shutil
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from nbkit.datasets.packing import PackFormat, pack
from nbkit.datasets.photos import photos_folder
from nbkit.errors import ConfigError, StoreError
from nbkit.store.metrics import store_error
from nbkit.telemetry.storage import describe_storage

FORMS = ("files", "webdataset", "recordio", "tfrecord")
_FILES = FORMS[0]
PHOTOS_PREFIX = "nbkit-photos-"
"""Of the folders that get photographs."""
_ABANDONED_AFTER_SECONDS = 86_400
_JPEG_START, _JPEG_COMMENT = b"\xff\xd8", b"\xff\xfe"
_BLOCK_BYTES = 4096
"""That a filer compares at least, to keep equal ones once."""
_LEAST_COMMENT_BYTES = 32


def photos_in(folder: Path, copies: int) -> Path:
    """Return the photographs' own folder in a folder, which may not be there yet."""
    return folder / f"{PHOTOS_PREFIX}{copies}"


def num_photos(copies: int) -> int:
    """Return how many photographs that is for training."""
    return copies * len(_photos())


def check_room(folder: Path, copies: int, forms: Sequence[str]) -> None:
    """Refuse what has no room; see `put_photos`."""
    missing = _missing(photos_in(folder, copies), forms)
    copy_bytes = sum(photo.stat().st_size + _BLOCK_BYTES for photo in _photos())
    needed = copies * len(missing) * copy_bytes
    free = describe_storage(folder)["free_bytes"]
    if needed > free:
        message = (
            f"replicate={copies} requires {needed:,} bytes, but {folder} has {free:,} "
            "free. Use a smaller replicate, fewer formats or another folder."
        )
        raise ConfigError(message)


def put_photos(folder: Path, copies: int, forms: Sequence[str]) -> dict[str, Path]:
    """Put the built-in photographs into a folder, unless they are there already."""
    home = photos_in(folder, copies)
    check_room(folder, copies, forms)
    _remove_abandoned(home)
    missing = _missing(home, forms)
    if _FILES in missing:
        _copy(_photos(), home / _FILES, copies)
    for form in forms:
        if form in missing and form != _FILES:
            _pack(home / _FILES, home / form, cast(PackFormat, form))
    return {form: home / form for form in forms}


def _photos() -> list[Path]:
    return sorted((photos_folder() / "train").glob("*/*"))


def _missing(home: Path, forms: Sequence[str]) -> set[str]:
    """Return what has to be made: files in any case, to be packed."""
    return {form for form in (_FILES, *forms) if not (home / form).is_dir()}


def _remove_abandoned(home: Path) -> None:
    """Remove what a killed process left long ago."""
    for begun in [path for form in FORMS for path in home.glob(f".{form}.*")]:
        try:
            age_seconds = time.time() - begun.stat().st_mtime
        except FileNotFoundError:
            continue  # its own process has just removed it
        if age_seconds > _ABANDONED_AFTER_SECONDS:
            shutil.rmtree(begun, ignore_errors=True)


def _pack(files: Path, folder: Path, form: PackFormat) -> None:
    """Pack photographs, unless another process is first."""
    try:
        pack(files, folder, form, on_progress=lambda *_: None)
    except (ConfigError, StoreError):
        # It refuses a folder that holds something, before or after its own work.
        if not folder.is_dir():
            raise


def _copy(photos: Sequence[Path], folder: Path, copies: int) -> None:
    """Write every photograph so many times; all of them are there, or nothing."""
    temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
    try:
        for photo in photos:
            target = temporary / photo.parent.name
            target.mkdir(parents=True, exist_ok=True)
            data = photo.read_bytes()
            for number in range(copies):
                name = f"{photo.stem}-{number:05}{photo.suffix}"
                (target / name).write_bytes(_unlike_others(data, name))
        temporary.rename(folder)
    except OSError as error:
        # Another process may have been first: nothing replaces what it has made.
        if not folder.is_dir():
            raise store_error(folder, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _unlike_others(data: bytes, name: str) -> bytes:
    """Return a JPEG file that shows the same and that no filer can keep once for all.

    A random comment follows its first marker. Its length is another for each
    name, always the same, so that blocks after it begin elsewhere in the image.
    """
    if not data.startswith(_JPEG_START):
        return data
    length = _LEAST_COMMENT_BYTES + int(random.Random(name).random() * _BLOCK_BYTES)
    comment = os.urandom(length)
    # The length counts itself.
    segment = _JPEG_COMMENT + (2 + len(comment)).to_bytes(2) + comment
    return _JPEG_START + segment + data[len(_JPEG_START) :]
