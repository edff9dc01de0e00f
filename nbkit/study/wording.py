"""Quantities as text: enough figures to compare, none that mean nothing."""

from __future__ import annotations

__all__ = ["gigabytes", "percent", "rate", "size"]

UNKNOWN = "–"
"""What an unknown quantity looks like: never 0, never a guess."""


def rate(images_per_second: float | None) -> str:
    """Return images per second, such as ``12,345``, ``371.2`` or ``3.71``."""
    if images_per_second is None:
        return UNKNOWN
    digits = 0 if images_per_second >= 1000 else 1 if images_per_second >= 10 else 2
    return f"{images_per_second:,.{digits}f}"


def percent(part: float | None) -> str:
    """Return a part of one, such as ``97.3 %``."""
    return UNKNOWN if part is None else f"{part * 100:.1f} %"


def gigabytes(size_bytes: float) -> str:
    """Return a number of gigabytes (1e9) in three figures, without the unit."""
    return f"{size_bytes / 1e9:.3g}"


def size(size_bytes: float | None) -> str:
    """Return a size in binary units, such as ``64 MiB`` or ``20.5 GiB``."""
    if size_bytes is None:
        return UNKNOWN
    for unit in ("B", "KiB", "MiB"):
        if size_bytes < 1024:
            return f"{size_bytes:.0f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f} GiB"
