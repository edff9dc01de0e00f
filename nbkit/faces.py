"""Faces of packages: names that are imported when they are first used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def attributes(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package.

    Parameters
    ----------
    package
        Its name, for the error.
    homes
        The module of each name. A static table: a package that imported its modules
        to look for names would close a circle.
    """

    def get(name: str) -> Any:
        if name in homes:
            return getattr(importlib.import_module(homes[name]), name)
        message = f"module {package!r} has no attribute {name!r}"
        raise AttributeError(message)

    return get, lambda: sorted(homes)
