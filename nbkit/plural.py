"""Counts with their noun, right for one and for many; names where they are many."""

from __future__ import annotations

from collections.abc import Sequence


def plural(count: int, one: str, many: str | None = None) -> str:
    """Return a count and its noun; ``many`` where an s at the end is not enough.

    Examples
    --------
    >>> plural(1, "image"), plural(1200, "image"), plural(2, "class", "classes")
    ('1 image', '1,200 images', '2 classes')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def few(names: Sequence[str]) -> str:
    """Return up to three names for a message, and whether there are more."""
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
