"""Images that cannot be read: each reason once, with its first image and its count."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nbkit.datasets.manifest import Unreadable

__all__ = ["by_reason", "in_words"]

_MOST_REASONS = 8


def by_reason(images: Sequence[Unreadable]) -> list[list[Unreadable]]:
    """Return the images of each reason, the most frequent reason first.

    Numbers make no other reason: of truncated files, each lacks other bytes.
    """
    groups: dict[str, list[Unreadable]] = {}
    for one in images:
        groups.setdefault(re.sub(r"\d[\d,.]*", "0", one.reason), []).append(one)
    return sorted(groups.values(), key=len, reverse=True)


def in_words(images: Sequence[Unreadable]) -> str:
    """Return the reasons, each with its first image and the count of the others."""
    groups = by_reason(images)
    said = [_said(group[0], len(group) - 1) for group in groups[:_MOST_REASONS]]
    hidden = groups[_MOST_REASONS:]
    if hidden:
        said.append(f"{sum(map(len, hidden)):,} more for {len(hidden)} other reasons")
    return ", ".join(said)


def _said(first: Unreadable, more: int) -> str:
    others = f" and {more:,} more" if more else ""
    return f"{first.name}{others} ({first.reason})"
