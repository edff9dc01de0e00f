"""Launching: a detached supervisor starts, owns, watches and ends the ranks.

``nbkit.launch`` is both this package and the function that launches a run: calling the
package calls `nbkit.launch.start.launch`.
"""

from __future__ import annotations

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


sys.modules[__name__].__class__ = _CallableModule
