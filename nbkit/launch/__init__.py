"""Launching of runs: a detached supervisor that owns the ranks.

``nbkit.launch`` is both this package and the function that launches a run: calling the
package calls `nbkit.launch.start.launch`.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from types import ModuleType
from typing import Any


class _CallableModule(ModuleType):
    """The package, which can be called.

    The import system binds its name in ``nbkit`` to it whatever the facade says.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from nbkit.launch.start import launch

        return launch(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        """Let a function that launches runs go to another process: it imports this."""
        return importlib.import_module, (self.__name__,)

    @property
    def __signature__(self) -> inspect.Signature:
        from nbkit.launch.start import launch

        return inspect.signature(launch)

    def getdoc(self) -> str | None:
        """Return what IPython's ``?`` shows: how to launch, not how it is built."""
        from nbkit.launch.start import launch

        return inspect.getdoc(launch)


sys.modules[__name__].__class__ = _CallableModule
