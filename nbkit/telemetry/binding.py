"""pynvml with one error type: whatever a call raises is an NVML error.

Drivers answer with names that are not UTF-8, or with more than a binding knows; the
binding then raises what Python raises. Such a call has no answer, like one that the
driver refuses. Functions that a binding lacks are functions that the driver lacks.
"""

from __future__ import annotations

import ctypes
import functools
from types import ModuleType
from typing import Any

UNREADABLE = (
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    ctypes.ArgumentError,
)
"""What is raised where an answer is not what its documentation says."""

_NEEDED = (
    "NVMLError",
    "NVML_ERROR_ARGUMENT_VERSION_MISMATCH",
    "NVML_ERROR_DEPRECATED",
    "NVML_FI_DEV_PCIE_COUNT_RX_BYTES",
    "NVML_GPM_METRIC_ANY_TENSOR_UTIL",
    "nvmlEventSetWait_v2",
    "nvmlInit",
    "nvmlMemory_v2",
)
"""Newest names of each kind that are used: who has these has all."""


class Binding:
    """The module, whose functions raise only NVML's errors."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        """Return a constant or class of the module, or a function as said above."""
        if not (name.startswith("nvml") and name[4:5].isupper()):
            return getattr(self._module, name)
        attribute = getattr(self._module, name, None)
        if attribute is None:
            return functools.partial(self._refuse, "NVML_ERROR_FUNCTION_NOT_FOUND")
        if not callable(attribute) or isinstance(attribute, type):
            return attribute
        return functools.partial(self._call, attribute)

    def missing(self) -> list[str]:
        """Return names that nvidia-ml-py has and this module lacks."""
        return [name for name in _NEEDED if not hasattr(self._module, name)]

    @property
    def file(self) -> str:
        """File of the module."""
        return str(getattr(self._module, "__file__", None) or self._module)

    def _call(self, function: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return function(*arguments, **named)
        except UNREADABLE as error:
            code = self._module.NVML_ERROR_UNKNOWN
            raise self._module.NVMLError(code) from error

    def _refuse(self, code: str, *_: Any, **__: Any) -> Any:
        raise self._module.NVMLError(getattr(self._module, code))


@functools.cache
def binding_of(module: ModuleType) -> Binding:
    """Return the binding of a module, always the same one."""
    return Binding(module)
