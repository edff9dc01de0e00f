"""Images that are there more than once by a link: used as often, and counted."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

from nbkit.datasets.listing import Listing
from nbkit.datasets.samples import Sample
from nbkit.visible import visible


@dataclass(frozen=True)
class SameFiles:
    """Images that are the same file as one before them."""

    count: int = 0
    relabelled: int = 0
    """Of these, images with another label than the one before."""
    first: Sequence[str] = ()
    """Names of the first two that are one file, with different labels if any are."""

    def __add__(self, other: SameFiles) -> SameFiles:
        """Return the counts of two parts together."""
        first = sorted((self, other), key=lambda one: not one.relabelled)
        return SameFiles(
            self.count + other.count,
            self.relabelled + other.relabelled,
            next((one.first for one in first if one.count), ()),
        )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> SameFiles:
        """Return it from what `dataclasses.asdict` made of it."""
        first = tuple(map(str, values["first"]))
        return cls(int(values["count"]), int(values["relabelled"]), first)


def same_files(
    listing: Listing,
    file_numbers: Iterable[int],
    left_out: Collection[tuple[int | None, str]] = (),
) -> SameFiles:
    """Count the images that are the same file as one before them."""
    numbers = array("q", _places(listing) if listing.shards else file_numbers)
    # Most data sets have no links: a million numbers take less sorted than in a set.
    repeated = {one for one, other in pairwise(sorted(numbers)) if one == other}
    repeated.discard(0)
    if not repeated:
        return SameFiles()
    before: dict[int, Sample] = {}
    count = relabelled = 0
    first: tuple[str, ...] = ()
    for number, sample in zip(numbers, _images(listing), strict=True):
        if number not in repeated or (sample.shard, sample.name) in left_out:
            continue
        original = before.setdefault(number, sample)
        if original is sample:
            continue
        differs = original.label != sample.label
        count += 1
        relabelled += differs
        if not first or (differs and relabelled == 1):
            first = original.name, sample.name
    return SameFiles(count, relabelled, first)


def in_words(found: Mapping[str, Any]) -> str:
    """Return a sentence of the values of `SameFiles`, without its full stop."""
    count, relabelled = found["count"], found["relabelled"]
    what = "image is" if count == 1 else "images are"
    said = f"{count:,} {what} the same file as another, by a link"
    if relabelled:
        few = f"{relabelled:,} of them " if count > 1 else ""
        said += f", {few}with another label"
    return f"{said}: {' and '.join(map(visible, found['first']))}"


def _images(listing: Listing) -> Iterable[Sample]:
    return chain(listing.train, listing.evaluation)


def _places(listing: Listing) -> Iterable[int]:
    """Return a number for the place of every image in packed files."""
    return (
        hash((one.shard, one.pieces)) if one.pieces else 0 for one in _images(listing)
    )
