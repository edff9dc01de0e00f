"""The files of a pack: which there are, what each is for, and what it is instead."""

from __future__ import annotations

import hashlib
import itertools
import os
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nbkit.datasets.folders import files_below, names_in
from nbkit.datasets.listing import is_one_by_link, leads_nowhere
from nbkit.datasets.passed_over import COMPRESSED, kind_of
from nbkit.datasets.samples import Pieces
from nbkit.datasets.splits import is_held_out, split_of, splits_in
from nbkit.errors import ConfigError
from nbkit.reading import open_regular

_OF = re.compile(r"(.*)-(\d+)-of-(\d+)[^/]*?(\.[^./]*)?", re.DOTALL)
"""Names of shards that say how many there are; a hash may come after that."""


@dataclass(frozen=True, slots=True)
class Packed:
    """One image as its shard describes it."""

    name: str | None
    """Its path before it was packed, if the shard knows."""
    labels: tuple[int, ...]
    """The index of its class, or 0 or 1 for each label."""
    pieces: Pieces
    class_name: str | None = None


def damaged(path: Path, offset: int, what: str) -> ConfigError:
    """Return the error of a shard that is not as its format wants it."""
    if offset == 0:
        with suppress(OSError), open_regular(path) as file:
            # A pointer of Git LFS, a web page or a compressed file says so itself.
            what += f"; the file begins with {file.read(_BEGINNING_BYTES)!r}"
    return ConfigError(
        f"{path} is damaged at byte {offset:,}: {what}; copy it again, or pack the "
        "images again."
    )


def shards_below(
    root: Path, is_shard: Callable[[str], bool], *, is_pack: bool = False
) -> list[str]:
    """Return the shards in a folder and in its folders of splits, sorted."""
    folders = [path for path in root.iterdir() if split_of(path.name) and path.is_dir()]
    shards = [
        path
        for folder in (root, *folders)
        for path in folder.iterdir()
        if is_shard(path.name) and not path.name.startswith(".") and not path.is_dir()
    ]
    regular = [path for path in shards if path.is_file()]
    for path in shards if is_pack else ():
        if path not in regular:
            what = "a link to nothing" if leads_nowhere(path) else "a pipe or device"
            message = (
                f"data={str(root)!r}: {path} is not a regular file, but {what}; remove "
                "it."
            )
            raise ConfigError(message)
    return sorted(path.relative_to(root).as_posix() for path in regular)


def use_of(root: Path, shards: Sequence[str]) -> dict[str, str | None]:
    """Return what each shard is for by the words of its path."""
    held_out = [shard for shard in shards if is_held_out(shard)]
    if 0 < len(held_out) < len(shards):
        message = (
            f"data={str(root)!r}: {held_out[0]} is named for neither training nor "
            "evaluation; name it train or val, or move it elsewhere."
        )
        raise ConfigError(message)
    splits = {shard: splits_in(shard) or {"train"} for shard in shards}
    for shard, said in splits.items():
        if "train" in said and len(said) > 1:
            both = " and ".join(sorted(said))
            message = (
                f"data={str(root)!r}: {shard} is named for {both}, so that its images "
                "would be of both; name it for one of them."
            )
            raise ConfigError(message)
    of_test = {"test"} if any("validation" in said for said in splits.values()) else {}
    use = {
        shard: "train"
        if said == {"train"}
        else None
        if said == of_test
        else "evaluation"
        for shard, said in splits.items()
    }
    seen: dict[tuple[int, int], str] = {}
    for shard in shards:
        found = (root / shard).stat()
        first = seen.setdefault((found.st_dev, found.st_ino), shard)
        # Some file systems number no file, or several alike.
        if (
            found.st_ino
            and first != shard
            and is_one_by_link(root / first, root / shard)
        ):
            message = (
                f"data={str(root)!r}: {first} and {shard} are one file, by a link, so "
                "that its images would count more than once; remove the link."
            )
            raise ConfigError(message)
    return use


def check_copies(
    root: Path, shards: Sequence[str], listings: Sequence[Sequence[Packed]]
) -> None:
    """Refuse a pack with a shard that is there twice, by a copy."""

    def size(number: int) -> int:
        return (root / shards[number]).stat().st_size

    def places(number: int) -> int:
        return hash(tuple((one.labels, one.pieces) for one in listings[number]))

    def content(number: int) -> bytes:
        return _content(root / shards[number], listings[number])

    groups = [[number for number, images in enumerate(listings) if images]]
    for key in (size, places, content):
        groups = [alike for group in groups for alike in _alike(group, key)]
    pairs = (pair for group in groups for pair in itertools.combinations(group, 2))
    for first, second in pairs:
        if _have_one_name(listings[first], listings[second]):
            message = (
                f"data={str(root)!r}: {shards[first]} and {shards[second]} have the "
                "same images; remove one of them."
            )
            raise ConfigError(message)


def _alike(numbers: list[int], key: Callable[[int], Hashable]) -> list[list[int]]:
    """Return groups of two or more numbers that have one key."""
    groups: dict[Hashable, list[int]] = {}
    for number in numbers if len(numbers) > 1 else ():
        groups.setdefault(key(number), []).append(number)
    return [group for group in groups.values() if len(group) > 1]


def _content(path: Path, images: Sequence[Packed]) -> bytes:
    """Return what identifies the bytes of the first, the middle and the last image."""
    content = hashlib.sha256()
    with open_regular(path) as file:
        for image in (images[0], images[len(images) // 2], images[-1]):
            for start, length in image.pieces:
                content.update(os.pread(file.fileno(), length, start))
    return content.digest()


def _have_one_name(some: Iterable[Packed], others: Iterable[Packed]) -> bool:
    """Return whether no image has another name; a copied shard may have lost its."""
    pairs = zip(some, others, strict=True)
    return all(
        one.name == two.name or None in (one.name, two.name) for one, two in pairs
    )


def shards_elsewhere(root: Path, is_shard: Callable[[str], bool]) -> Counter[str]:
    """Count what is called like a shard, but compressed or too far down.

    All the way down in folders of splits; in others what is directly there.
    """
    folders, files = names_in(root)
    counts = Counter(kind_of(name) for name in files if _is_packed(name, is_shard))
    for folder in folders:
        top = root / folder
        is_split = split_of(folder) is not None
        for here, name in files_below(top, further=is_split):
            is_read = is_split and here == str(top)
            if _is_packed(name, is_shard) or (is_shard(name) and not is_read):
                counts[f"{kind_of(name)} in {folder}/"] += 1
    return counts


def shards_missing(shards: Sequence[str]) -> Counter[str]:
    """Count the shards that are not there by what the names of others say."""
    numbers: dict[tuple[str, str, str], set[int]] = {}
    for shard in shards:
        if named := _OF.fullmatch(shard):
            before, number, total, suffix = named.groups("")
            numbers.setdefault((before, total, suffix), set()).add(int(number))
    alone = Counter(key[1] for key, found in numbers.items() if len(found) == 1)
    missing = {
        f"{before}-*-of-{total}{suffix} that are not there": int(total) - len(found)
        for (before, total, suffix), found in numbers.items()
        # A hash before the number makes as many names of one file each.
        if len(found) > 1 or alone[total] == 1
    }
    return +Counter(missing)


def unpacked(name: str) -> str | None:
    """Return the name of a compressed file once it is unpacked; None for others."""
    if not name.lower().endswith(COMPRESSED):
        return None
    stem, suffix = os.path.splitext(name)  # noqa: PTH122 - with its folder
    return f"{stem}.tar" if suffix.lower() == ".tgz" else stem


def _is_packed(name: str, is_shard: Callable[[str], bool]) -> bool:
    """Tell by its name whether a file is a compressed shard."""
    inside = unpacked(name)
    return inside is not None and is_shard(inside)
