"""Places of storage, and the data sets that lie there."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbkit.datasets.cache import cache_path
from nbkit.errors import ConfigError
from nbkit.launch.start import existing_data
from nbkit.readspeed.places import describe_place
from nbkit.study.parameters import Parameters
from nbkit.study.storage_data import described_data, put_photos

__all__ = ["Place", "Source", "copies_of", "find_places", "name_and_path"]

_STEPS_IN_AN_EPOCH = 20
"""Of the photographs, if nobody says how often to copy them."""
_PHOTOS = 400


@dataclass(frozen=True)
class Source:
    """One data set at one place."""

    name: str
    """Such as ``local, webdataset``."""
    data: str
    """Its path, or name, as in an experiment."""
    kind: str
    images: int
    """For training."""
    files: int
    bytes: int

    @property
    def bytes_per_image(self) -> float:
        """Mean size; of packed files with what they add."""
        return self.bytes / self.images


@dataclass(frozen=True)
class Place:
    """A place of storage, and what lies there."""

    name: str
    folder: str
    sources: tuple[Source, ...]
    is_ours: bool
    """Whether the photographs were put there; else nothing is ever written."""
    storage: Mapping[str, Any]
    """See `nbkit.readspeed.places.describe_place`."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Place:
        """Return what `dataclasses.asdict` has written."""
        sources = tuple(Source(**one) for one in values["sources"])
        return cls(**{**values, "sources": sources})


def find_places(p: Parameters, values: Mapping[str, Any]) -> Iterable[Place]:
    """Yield every place that is asked for; folders get the photographs.

    Parameters
    ----------
    p
        As given; ``data`` and ``paths`` are lists of ``name=path``.
    values
        The same, with what was left open chosen.

    Raises
    ------
    ConfigError
        If a path leads nowhere, or there is no room.
    """
    for one in p.data or []:
        name, path = name_and_path(one)
        data = existing_data(path)
        source = Source(name=name, data=data, **described_data(data))
        where = _below(data)
        yield Place(name, str(where), (source,), False, describe_place(where))
    folders = p.paths or ([] if p.data else [f"local={_own_folder()}"])
    for one in folders:
        name, path = name_and_path(one)
        folder = Path(path).expanduser().absolute()
        if not folder.is_dir():
            message = (
                f"paths={one!r}: {folder} is no folder; make it, or name a data set "
                "with data."
            )
            raise ConfigError(message)
        put = put_photos(folder, copies_of(p, values), values["forms"])
        sources = tuple(
            Source(name=f"{name}, {form}", data=str(data), **described_data(str(data)))
            for form, data in put.items()
        )
        yield Place(name, str(folder), sources, True, describe_place(folder))


def _own_folder() -> Path:
    folder = cache_path("photos").parent / "storage"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _below(data: str) -> Path:
    """Return where a data set of a name lies."""
    return Path(data) if Path(data).is_absolute() else cache_path(data)


def copies_of(p: Parameters, values: Mapping[str, Any]) -> int:
    """Return how often each photograph is copied: as asked, or enough for an epoch."""
    if p.replicate is not None:
        return p.replicate
    batch = values["batch_size_per_gpu"] * p.gpus
    return max(1, math.ceil(_STEPS_IN_AN_EPOCH * batch / _PHOTOS))


def name_and_path(text: str) -> tuple[str, str]:
    """Return the parts of ``name=path``; a path alone is called by its last folder."""
    name, equals, path = text.partition("=")
    return (name, path) if equals and "/" not in name else (Path(text).name, text)
