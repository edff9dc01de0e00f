"""Counts with their noun in the singular or plural, and shortened lists of names."""

from __future__ import annotations

from collections.abc import Sequence


def plural(count: int, singular: str, many: str | None = None) -> str:
    """Return a count and its noun; ``many`` where an s at the end is not enough.

    Examples
    --------
    >>> plural(1, "image"), plural(1200, "image"), plural(2, "class", "classes")
    ('1 image', '1,200 images', '2 classes')
    """
    return f"{count:,} {singular if count == 1 else many or singular + 's'}"


def few(names: Sequence[str]) -> str:
    """Return up to three names for a message, and whether there are more."""
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
