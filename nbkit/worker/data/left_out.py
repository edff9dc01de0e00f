"""Unreadable images: each reason once, with its first images and a count."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nbkit.datasets.manifest import Unreadable

_MOST_REASONS = 8
_NAMED_OF_EACH = 5


def by_reason(images: Sequence[Unreadable]) -> list[list[Unreadable]]:
    """Return the images of each reason, the most frequent reason first."""
    # Numbers make no other reason: of truncated files, each lacks other bytes.
    groups: dict[str, list[Unreadable]] = {}
    for image in images:
        groups.setdefault(re.sub(r"\d[\d,.]*", "0", image.reason), []).append(image)
    return sorted(groups.values(), key=len, reverse=True)


def in_words(images: Sequence[Unreadable]) -> str:
    """Return the reasons, each with its first images and the count of the others."""
    groups = by_reason(images)
    # A single further reason is named: there is little to save.
    hidden = groups[_MOST_REASONS:] if len(groups) > _MOST_REASONS + 1 else []
    parts = []
    for group in groups[: len(groups) - len(hidden)]:
        names = ", ".join(image.name for image in group[:_NAMED_OF_EACH])
        more = len(group) - _NAMED_OF_EACH
        count = f" and {more:,} more" if more > 0 else ""
        parts.append(f"{names}{count} ({group[0].reason})")
    if hidden:
        total = sum(map(len, hidden))
        parts.append(f"{total:,} more images for {len(hidden)} other reasons")
    return ", ".join(parts)
