"""Private attributes of other packages, as if their next release renamed them."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["renamed"]


def renamed(name: str, package: str) -> property:
    """Return an attribute that is found by its name in a package's own code alone.

    To be set on the class whose objects have it.
    """

    def get(owner: Any) -> Any:
        caller = sys._getframe(1).f_globals["__name__"]
        if caller.partition(".")[0] != package:
            message = f"{type(owner).__name__!r} object has no attribute {name!r}"
            raise AttributeError(message)
        return vars(owner)[f"new{name}"]

    def put(owner: Any, value: Any) -> None:
        vars(owner)[f"new{name}"] = value

    return property(get, put)
