"""Images where storage is to be tried, and their pages out of memory before a run."""

from __future__ import annotations

import shutil
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from nbkit.datasets.find import find
from nbkit.datasets.listing import Listing
from nbkit.datasets.manifest import write_manifest
from nbkit.datasets.packing import Format, pack
from nbkit.datasets.photos import photos_folder
from nbkit.errors import ConfigError
from nbkit.readspeed.cache import make_cold, warm_up
from nbkit.store.metrics import store_error
from nbkit.store.paths import manifests_folder
from nbkit.telemetry.storage import describe_storage

__all__ = ["FORMS", "before_start", "described_data", "put_photos"]

FORMS = ("files", "webdataset", "recordio", "tfrecord")
_FILES = FORMS[0]


def put_photos(folder: Path, copies: int, forms: Sequence[str]) -> dict[str, Path]:
    """Put the built-in photographs into a folder, unless they are there already.

    Parameters
    ----------
    folder
        Exists. The photographs get a folder in it, which stays.
    copies
        How often each of them: more bytes than memory, if there are enough.
    forms
        Of `FORMS`: as files, and packed.

    Returns
    -------
    dict of Path
        A data set by its form.

    Raises
    ------
    ConfigError
        If there is no room.
    StoreError
        If the folder cannot be written.
    """
    home = folder / f"nbkit-photos-{copies}"
    photos = sorted((photos_folder() / "train").glob("*/*"))
    missing = [form for form in (_FILES, *forms) if not (home / form).is_dir()]
    needed = copies * len(set(missing)) * sum(photo.stat().st_size for photo in photos)
    free = describe_storage(folder)["free_bytes"]
    if needed > free:
        message = (
            f"replicate={copies} needs {needed:,} bytes, but {folder} has {free:,} "
            "free; use a smaller one, fewer forms or another folder."
        )
        raise ConfigError(message)
    if _FILES in missing:
        _copy(photos, home / _FILES, copies)
    for form in forms:
        if form in missing and form != _FILES:
            packed = cast(Format, form)
            pack(home / _FILES, home / form, packed, on_progress=_say_nothing)
    return {form: home / form for form in forms}


def _say_nothing(done: int, total: int) -> None:
    """Hear how far packing is."""


def _copy(photos: Sequence[Path], folder: Path, copies: int) -> None:
    """Write every photograph so many times; all of them are there, or nothing."""
    temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
    try:
        for photo in photos:
            target = temporary / photo.parent.name
            target.mkdir(parents=True, exist_ok=True)
            data = photo.read_bytes()
            for number in range(copies):
                (target / f"{photo.stem}-{number:05}{photo.suffix}").write_bytes(data)
        temporary.rename(folder)
    except OSError as error:
        raise store_error(folder, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def described_data(data: str) -> dict[str, Any]:
    """Return what a data set amounts to, as JSON values.

    Returns
    -------
    dict
        ``kind``, ``files``, ``images`` (for training) and ``bytes``.
    """
    listing = find(data)
    fingerprint = listing.fingerprint()
    return {
        "kind": listing.kind,
        "files": fingerprint.files,
        "images": len(listing.train),
        "bytes": fingerprint.bytes,
    }


def before_start(plan: Mapping[str, Any], data: str) -> dict[str, str]:
    """Bring a data set's pages into the state that a study declares, and prove it.

    Parameters
    ----------
    plan
        The study's; ``cache`` is ``cold`` or ``warm``.
    data
        As in an experiment.

    Returns
    -------
    dict of str
        Tags for the run's record: ``cache``, ``cache_proven`` and ``cache_reason``.

    Raises
    ------
    NotColdError
        If it is declared cold, and something of it is in memory.
    """
    listing = find(data)
    _look_at(listing, data)
    files = [listing.root / name for name in listing.files]
    known = make_cold(files) if plan["cache"] == "cold" else warm_up(files)
    return {
        "cache": known.state,
        "cache_proven": "yes" if known.proven else "no",
        "cache_reason": known.reason,
    }


def _look_at(listing: Listing, data: str) -> None:
    """Decide now which images are readable: the first run would read all of them."""
    fingerprint = listing.fingerprint()
    known = manifests_folder() / f"{fingerprint.stamp}.jsonl"
    if not known.exists():
        sys.stdout.write(f"Looking once at every image of {data}\n")
        sys.stdout.flush()
        write_manifest(listing, fingerprint, known)
