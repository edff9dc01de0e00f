"""Places of storage, and their data sets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from nbkit.config.fields import LABEL_FAULT_FIELDS
from nbkit.datasets.cache import NAMED, cache_path
from nbkit.datasets.listing import IMAGE_SUFFIXES
from nbkit.datasets.recordio import is_recordio
from nbkit.datasets.tfrecord import is_tfrecord
from nbkit.datasets.webdataset import is_webdataset
from nbkit.errors import ParameterError
from nbkit.launch.submit import existing_data
from nbkit.questions.storage.cold_cache import described_data
from nbkit.reading import expanded
from nbkit.readspeed.places import describe_place
from nbkit.studies.parameters import Parameters
from nbkit.studies.photo_copies import (
    PHOTOS_PREFIX,
    check_room,
    num_photos,
    photos_in,
    put_photos,
)

_STEPS_IN_AN_EPOCH = 20
"""Of the photographs, if no number of copies is given."""
_PHOTOS = 400

_SPLITS = ("images", "train", "val", "valid", "validation", "test")
"""Which a data set may have above folders of patients and their studies."""


@dataclass(frozen=True)
class DataSource:
    """One data set at one place."""

    name: str
    """Such as ``local, webdataset``."""
    data: str
    """Its path or name, as in `nbkit.ExperimentConfig.data`."""
    kind: str
    images: int
    """Number of training images; files and bytes are of these."""
    files: int
    bytes: int

    @property
    def bytes_per_image(self) -> float:
        """Mean size of a training image; for packed files, including their overhead."""
        return self.bytes / self.images


@dataclass(frozen=True)
class Place:
    """A storage location and its data sets."""

    name: str
    folder: str
    sources: tuple[DataSource, ...]
    is_ours: bool
    """Whether photographs are written there; otherwise, nothing is written."""
    storage: Mapping[str, Any]
    """See `nbkit.readspeed.places.describe_place`."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Place:
        """Return what `dataclasses.asdict` has written."""
        sources = tuple(DataSource(**value) for value in values["sources"])
        return cls(**{**values, "sources": sources})


@dataclass(frozen=True)
class Wanted:
    """A requested place, before photographs are written."""

    name: str
    folder: Path
    data: Mapping[str, str]
    """Paths of data sets by the names of the sources."""
    images: int
    """For training, of each."""
    is_ours: bool
    storage: Mapping[str, Any] = field(repr=False)
    existing: tuple[DataSource, ...] = ()
    """Existing data sets; empty if photographs are to be written."""
    copies: int = 0
    """Of each photograph."""
    forms: Sequence[str] = ()

    def filled(self) -> Place:
        """Write the photographs if needed, and return the place."""
        if self.is_ours:
            put_photos(self.folder, self.copies, self.forms)
        sources = self.existing or tuple(
            DataSource(name=name, data=data, **described_data(data))
            for name, data in self.data.items()
        )
        return Place(self.name, str(self.folder), sources, self.is_ours, self.storage)


def find_wanted(p: Parameters, values: Mapping[str, Any]) -> list[Wanted]:
    """Return all requested places, without writing anything."""
    rules = {name: p[name] for name in LABEL_FAULT_FIELDS}
    wanted = [_data_set(name, rules) for name in p.data or []]
    folders = p.paths or ([] if p.data else [f"local={_own_folder()}"])
    wanted += [_photographs(folder, copies_of(p, values), values) for folder in folders]
    lines = [
        f"cache='cold': {name.name} is on {name.storage['file_system']}, which is in "
        "memory and never cold. Use cache='warm', or a folder on a disk."
        for name in wanted
        if p.cache == "cold" and name.storage["kind"] == "memory"
    ]
    if lines:
        raise ParameterError("\n".join(lines))
    for name in wanted:
        if name.is_ours:
            check_room(name.folder, name.copies, name.forms)
    return wanted


def _data_set(text: str, rules: Mapping[str, Any]) -> Wanted:
    name, path = name_and_path(text)
    if path == "synthetic":
        message = (
            f"data={text!r}: synthetic images are generated in memory, not read from "
            "storage. Set data to an image folder or 'photos', or omit data to measure "
            "with photographs that nbkit copies to the folders in paths."
        )
        raise ParameterError(message)
    data = existing_data(path, NAMED)
    where = Path(data) if Path(data).is_absolute() else cache_path(data)
    source = DataSource(name=name, data=data, **described_data(data, **rules))
    return Wanted(
        name=name,
        folder=where,
        data={name: data},
        images=source.images,
        is_ours=False,
        storage=describe_place(where),
        existing=(source,),
    )


def _photographs(text: str, copies: int, values: Mapping[str, Any]) -> Wanted:
    name, path = name_and_path(text)
    # As a launch will name the data in it.
    folder = expanded(path, "paths").resolve()
    if not folder.is_dir():
        message = (
            f"paths={text!r}: {folder} is not a folder. Create the folder, or set data."
        )
        raise ParameterError(message)
    held = _first_of_a_data_set(folder)
    if held is not None:
        message = (
            f"paths={text!r}: {folder} contains data ({held.relative_to(folder)}), but "
            f"photographs are only written to folders without data. Use -p data {text} "
            "to read the existing data, or use an empty folder."
        )
        raise ParameterError(message)
    forms = values["forms"]
    home = photos_in(folder, copies)
    return Wanted(
        name=name,
        folder=folder,
        data={f"{name}, {form}": str(home / form) for form in forms},
        images=num_photos(copies),
        is_ours=True,
        storage=describe_place(folder),
        copies=copies,
        forms=forms,
    )


def _first_of_a_data_set(folder: Path) -> Path | None:
    """Return an image or packed file that is not nbkit's; None if there is none.

    Deeper is what is in data sets below a mount, which is not a data set itself.
    """
    levels = ("*", "*/*", "*/*/*", *(f"{split}/*/*/*" for split in _SPLITS))
    for path in chain.from_iterable(map(folder.glob, levels)):
        name = path.name.lower()
        is_ours = path.relative_to(folder).parts[0].startswith((".", PHOTOS_PREFIX))
        is_packed = is_webdataset(name) or is_recordio(name) or is_tfrecord(name)
        if not is_ours and (is_packed or name.endswith(IMAGE_SUFFIXES)):
            return path
    return None


def _own_folder() -> Path:
    folder = cache_path("photos").parent / "storage"
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


def copies_of(p: Parameters, values: Mapping[str, Any]) -> int:
    """Return the copies per photograph: as requested, or enough for an epoch."""
    if p.replicate is not None:
        return p.replicate
    batch = values["batch_size_per_gpu"] * p.gpus
    return max(1, math.ceil(_STEPS_IN_AN_EPOCH * batch / _PHOTOS))


def name_and_path(text: str) -> tuple[str, str]:
    """Return name and path of ``name=path``; the default name is the last folder."""
    name, equals, path = text.partition("=")
    return (name, path) if equals and "/" not in name else (Path(text).name, text)
