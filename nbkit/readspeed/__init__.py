"""Read speed of storage: sequential and random, with cold and warm cache.

Requires neither root nor torch. Names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbkit.readspeed.cache import (
        PageCacheState,
        check_cold,
        drop_page_cache,
        resident_share,
    )
    from nbkit.readspeed.measuring import ReadSpeed, measure

_HOMES = {
    "PageCacheState": "nbkit.readspeed.cache",
    "ReadSpeed": "nbkit.readspeed.measuring",
    "check_cold": "nbkit.readspeed.cache",
    "drop_page_cache": "nbkit.readspeed.cache",
    "measure": "nbkit.readspeed.measuring",
    "resident_share": "nbkit.readspeed.cache",
}

__all__ = [
    "PageCacheState",
    "ReadSpeed",
    "check_cold",
    "drop_page_cache",
    "measure",
    "resident_share",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(_HOMES[name]), name)
    message = f"module 'nbkit.readspeed' has no attribute {name!r}"
    raise AttributeError(message)


def __dir__() -> list[str]:
    return list(__all__)
