"""Reading pickled values on the host, wherever their tensors were."""

from __future__ import annotations

import io
import pickle
import sys
from typing import Any

__all__ = ["load_on_host", "load_with_names"]


def load_on_host(data: bytes) -> Any:
    """Return a pickled value; its tensors are on the CPU, also those of a GPU.

    A pickle is a program: only read what you or a person you trust has written.

    Parameters
    ----------
    data
        Made by `pickle` or cloudpickle.
    """
    return _Unpickler(io.BytesIO(data)).load()


def load_with_names(data: bytes) -> tuple[Any, dict[str, Any]]:
    """Return a value, and what names in ``__main__`` mean where it was pickled.

    Parameters
    ----------
    data
        Made by `nbkit.store.pickling.dumps`; earlier versions wrote no names.
    """
    unpickler = _Unpickler(io.BytesIO(data))
    value = unpickler.load()
    try:
        return value, unpickler.load()
    except EOFError:
        return value, {}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Return what a pickle names."""
        found = super().find_class(module, name)
        if (module, name) == ("torch.storage", "_load_from_bytes"):
            # Earlier versions left it to torch to write tensors. It would put one on
            # the device it was on, which is another rank's here, or is not there at
            # all. By now torch has been imported.
            return lambda stored: sys.modules["torch"].load(
                io.BytesIO(stored), map_location="cpu", weights_only=False
            )
        return found
