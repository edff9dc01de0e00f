"""Hooks that run once a package is imported by the user's code."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any

Hook = Callable[[ModuleType], None]


def after_import(hooks: Mapping[str, Hook]) -> None:
    """Call a hook with each of these modules, once it is imported."""
    sys.meta_path.insert(0, _Finder(hooks))


class _Finder(MetaPathFinder):
    """Finds the modules as Python does, and calls a hook after each is loaded."""

    def __init__(self, hooks: Mapping[str, Hook]) -> None:
        self._hooks = hooks

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return how a module is loaded; None for any other."""
        hook = self._hooks.get(fullname)
        if hook is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def load_and_call(module: ModuleType) -> None:
            load(module)
            # Another version may lack what the hook changes: then it is not followed.
            with suppress(AttributeError):
                hook(module)

        with suppress(AttributeError):  # a loader that cannot be changed
            spec.loader.exec_module = load_and_call  # type: ignore[method-assign]
        return spec
