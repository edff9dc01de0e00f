"""Reading pickled values."""

from __future__ import annotations

import io
import pickle
from typing import Any

from cloudpickle import cloudpickle


def load(data: bytes) -> Any:
    """Return a pickled value; its tensors are on the CPU, also those of a GPU.

    Objects of a class that this process has are of that class, which stays as it is.
    A pickle is a program: only read what you or a person you trust has written.
    """
    return _Unpickler(io.BytesIO(data)).load()


def load_with_names(data: bytes) -> tuple[Any, dict[str, Any]]:
    """Return a value, and what names in ``__main__`` mean where it was pickled."""
    unpickler = _Unpickler(io.BytesIO(data))
    return unpickler.load(), unpickler.load()


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self._classes_before = set(cloudpickle._DYNAMIC_CLASS_TRACKER_BY_CLASS)

    def find_class(self, module: str, name: str) -> Any:
        """Return what a pickle names."""
        if (module, name) == ("cloudpickle.cloudpickle", "_class_setstate"):
            return self._set_state_of_class
        return super().find_class(module, name)

    def _set_state_of_class(self, kind: type, state: Any) -> type:
        """Fill in a class that cloudpickle has made just now, and no other.

        It would also set back one that this process has: to methods whose globals are
        those of the pickle, for everything that uses the class from then on.
        """
        if kind in self._classes_before:
            return kind
        return cloudpickle._class_setstate(kind, state)
