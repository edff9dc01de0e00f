"""Counts with their noun, right for one and for many."""

from __future__ import annotations


def plural(count: int, one: str, many: str | None = None) -> str:
    """Return a count and its noun; ``many`` where an s at the end is not enough.

    Examples
    --------
    >>> plural(1, "image"), plural(1200, "image"), plural(2, "class", "classes")
    ('1 image', '1,200 images', '2 classes')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"
