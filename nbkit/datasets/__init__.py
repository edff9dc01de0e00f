"""Image data sets: listing, check of every image, packing.

`pack` is imported when it is first used: launching a run needs no image library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbkit.datasets.packing import pack

__all__ = ["pack"]


def __getattr__(name: str) -> Any:
    if name == "pack":
        from nbkit.datasets.packing import pack

        return pack
    message = f"module 'nbkit.datasets' has no attribute {name!r}"
    raise AttributeError(message)
