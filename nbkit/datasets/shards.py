"""The files of a pack, and the split of each."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nbkit.datasets.samples import Pieces
from nbkit.datasets.splits import is_held_out, split_of, splits_in
from nbkit.errors import ConfigError
from nbkit.reading import open_regular

_OF = re.compile(r"(.*-)(\d+)-of-(\d+)", re.DOTALL)
"""How the names of shards begin that say how many there are."""
_BEGINNING_BYTES = 40


@dataclass(frozen=True, slots=True)
class Packed:
    """One image in a shard."""

    name: str | None
    """Path of the image before packing, if the shard contains it."""
    labels: tuple[int, ...]
    """Index of its class, or 0 or 1 for each label."""
    pieces: Pieces
    class_name: str | None = None


def damaged(path: Path, offset: int, what: str) -> ConfigError:
    """Return the error for a shard with invalid content."""
    if offset == 0:
        with suppress(OSError), open_regular(path) as file:
            # A pointer of Git LFS, a web page or a compressed file says so itself.
            what += f"; the file begins with {file.read(_BEGINNING_BYTES)!r}"
    return ConfigError(
        f"{path} is damaged at byte {offset:,}: {what}. Copy the file again, or pack "
        "the images again."
    )


def shards_below(root: Path, is_shard: Callable[[str], bool]) -> list[str]:
    """Return the shards in a folder and in its folders of splits, sorted."""
    folders = [path for path in root.iterdir() if split_of(path.name) and path.is_dir()]
    shards = [
        path
        for folder in (root, *folders)
        for path in folder.iterdir()
        if is_shard(path.name) and not path.name.startswith(".") and not path.is_dir()
    ]
    for path in shards:
        if not path.is_file():
            message = (
                f"data={str(root)!r}: {path} is not a regular file, but a pipe, a "
                "device or a broken link. Remove it."
            )
            raise ConfigError(message)
    return sorted(path.relative_to(root).as_posix() for path in shards)


def use_of(root: Path, shards: Sequence[str]) -> dict[str, str | None]:
    """Return the split of each shard, from the words of its path."""
    held_out = [shard for shard in shards if is_held_out(shard)]
    if 0 < len(held_out) < len(shards):
        message = (
            f"data={str(root)!r}: the split of {held_out[0]} is neither training nor "
            "evaluation. Include train or val in its name, or move it."
        )
        raise ConfigError(message)
    splits = {shard: splits_in(shard) or {"train"} for shard in shards}
    has_validation = any("validation" in split for split in splits.values())
    use: dict[str, str | None] = {}
    for shard, split in splits.items():
        if "train" in split and len(split) > 1:
            message = (
                f"data={str(root)!r}: the split of {shard} is ambiguous: its path "
                f"names {' and '.join(sorted(split))}. Rename it."
            )
            raise ConfigError(message)
        use[shard] = "train" if split == {"train"} else "evaluation"
        if has_validation and split == {"test"}:
            use[shard] = None
    return use


def missing_shards(shards: Sequence[str]) -> list[str]:
    """Return notes on missing shards that the names of others count."""
    numbers: dict[tuple[str, str], set[int]] = {}
    for shard in shards:
        if counted := _OF.match(shard):
            before, number, total = counted.groups()
            numbers.setdefault((before, total), set()).add(int(number))
    return [
        f"missing packed files: {int(total) - len(there):,} of {int(total):,} "
        f"({before}*-of-{total})"
        for (before, total), there in numbers.items()
        if len(there) < int(total)
    ]
