"""Files that are not part of a data set, counted by suffix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import PurePath

from nbkit.visible import visible

_SHOWN = 5
_KEPT = 100
_OTHER = "other"
_ARCHIVES = (
    *(".gz", ".tgz", ".zip", ".bz2", ".xz", ".zst", ".7z", ".rar"),
    *(".tar", ".rec", ".tfrecord", ".tfrecords", ".tfrec"),
)


def suffix_kind(name: str) -> str:
    """Return the kind of a file by its suffix, such as ``*.gif``; numbers are none."""
    suffix = PurePath(name.lower()).suffix
    if not suffix or suffix[1:].isdigit():
        return "with no suffix"
    return f"*{suffix}"


def is_archive(name: str) -> bool:
    """Return whether a name is that of a packed or compressed file."""
    return name.lower().endswith(_ARCHIVES)


def most_frequent(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the counts of the most frequent suffixes, and the rest as ``other``."""
    kept = dict(Counter(counts).most_common(_KEPT))
    other = sum(counts.values()) - sum(kept.values())
    return kept | ({_OTHER: other} if other else {})


def in_words(counts: Mapping[str, int]) -> str:
    """Return the counts, the largest first."""
    ordered = Counter(counts).most_common()
    shown = [f"{count:,} {visible(kind)}" for kind, count in ordered[:_SHOWN]]
    if more := sum(count for _, count in ordered[_SHOWN:]):
        shown.append(f"{more:,} more")
    return ", ".join(shown)


def remedy(counts: Mapping[str, int]) -> str:
    """Return the files found instead of images, in words; empty without any."""
    if not counts:
        return ""
    has_archives = any(kind.endswith(_ARCHIVES) for kind in counts)
    how = " (unpack archives; of WebDataset, RecordIO or TFRecord, pass the folder)"
    return f"; found {in_words(counts)}{how if has_archives else ''}"
