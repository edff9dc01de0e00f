"""Files that are not part of a data set: counted by suffix, and what can be done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import PurePath

from nbkit.plural import plural
from nbkit.visible import visible

COMPRESSED = (".gz", ".tgz", ".zip", ".bz2", ".xz", ".zst", ".zlib", ".7z", ".rar")
HIDDEN_FOLDERS = "hidden folders"
_SHOWN = 5
_KEPT = 100
_LONGEST_SUFFIX = 10
_OTHER = "other"

_RECORDS = (".tfrec", ".record", ".records")
_SHARDS = (".tar", ".rec", ".tfrecord", ".tfrecords")


def kind_of(name: str) -> str:
    """Return what such files are counted as: ``*.gif``, or ``hidden *.gif``."""
    path = PurePath(name.lower())
    suffixes, hidden = path.suffixes, "hidden " * path.name.startswith(".")
    # To a person, .tar.gz is one suffix.
    last = suffixes[-2 if suffixes[-1:] == [".gz"] else -1 :]
    shown = "".join(filter(_says_a_kind, last))
    return hidden + (f"*{shown}" if shown else "with no suffix")


def _says_a_kind(suffix: str) -> bool:
    """Tell a suffix from a number or the end of a sentence."""
    letters = suffix.removeprefix(".")
    return len(letters) <= _LONGEST_SUFFIX and not letters.isdigit()


def is_archive(name: str) -> bool:
    """Tell by its name whether a file may hold images: packed, or compressed."""
    return name.lower().endswith((*COMPRESSED, *_SHARDS, *_RECORDS))


def most_frequent(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the counts of the most frequent kinds, and of all else as ``other``."""
    kinds = Counter(counts)
    other = kinds.pop(_OTHER, 0)
    kept = dict(kinds.most_common(_KEPT))
    other += kinds.total() - sum(kept.values())
    return kept | ({_OTHER: other} if other else {})


def counted(counts: Mapping[str, int]) -> str:
    """Return how many there are of all kinds: ``3 files``."""
    count = sum(counts.values())
    folders = [kind for kind in counts if kind.startswith(HIDDEN_FOLDERS)]
    if folders and len(folders) == len(counts):
        return plural(count, "folder")
    return plural(count, "file", "files and folders" if folders else None)


def in_words(counts: Mapping[str, int]) -> str:
    """Return the counts, the largest first."""
    ordered = Counter(counts).most_common()
    # The name of a single further kind is as short as its count.
    hidden = ordered[_SHOWN:] if len(ordered) > _SHOWN + 1 else []
    named = ordered[: len(ordered) - len(hidden)]
    shown = [f"{count:,} {_kind(kind, count)}" for kind, count in named]
    if hidden:
        more = sum(count for _, count in hidden)
        shown.append(f"{more:,} of {len(hidden)} more kinds")
    return ", ".join(shown)


def _kind(kind: str, count: int) -> str:
    if count == 1 and kind.startswith(HIDDEN_FOLDERS):
        kind = HIDDEN_FOLDERS.removesuffix("s") + kind.removeprefix(HIDDEN_FOLDERS)
    return visible(kind)


def remedy(counts: Mapping[str, int]) -> str:
    """Return what there is instead of images and how to use it; nothing for nothing."""
    if not counts:
        return ""
    kinds = tuple(kind.partition(" ")[0] for kind in counts)
    found = f"; found {in_words(counts)}"
    if any(kind.endswith(COMPRESSED) for kind in kinds):
        return f"{found}: unpack compressed files"
    if any(kind.endswith(_RECORDS) for kind in kinds):
        return f"{found}: name TFRecord files *.tfrecord"
    if any(kind.endswith(_SHARDS) for kind in kinds):
        return f"{found}: give the folder that holds the packed files"
    return found
