"""Writing pickles as cloudpickle does, with the file names of code.

A traceback of unpickled code shows its file and line, and `inspect.getsource` finds its
source. cloudpickle leaves file names out from 3.1.3 on.
"""

from __future__ import annotations

import hashlib
import io
from operator import methodcaller
from types import CodeType
from typing import Any

import cloudpickle

__all__ = ["dumps", "pickle_sha256"]


def dumps(value: Any) -> tuple[bytes, set[str]]:
    """Return a value's pickle, and the file names of the code that is in it.

    Raises
    ------
    Exception
        Whatever a value that cannot be pickled raises.
    """
    with io.BytesIO() as file:
        pickler = _CodePickler(file)
        pickler.dump(value)
        return file.getvalue(), pickler.code_files


def pickle_sha256(value: Any) -> str:
    """Return the hash of a value's pickle without file names.

    Those of cells differ from kernel to kernel.
    """
    digest = _Digest()
    _CodePickler(digest, with_names=False).dump(value)
    return digest.sha256.hexdigest()


class _Digest:
    """A file that keeps nothing but the hash of what is written to it."""

    def __init__(self) -> None:
        self.sha256 = hashlib.sha256()

    def write(self, data: Any) -> int:
        self.sha256.update(data)
        return memoryview(data).nbytes


class _CodePickler(cloudpickle.Pickler):
    """cloudpickle's, whose code keeps the name of its file."""

    def __init__(self, file: Any, *, with_names: bool = True) -> None:
        super().__init__(file)
        self.code_files: set[str] = set()
        self._with_names = with_names

    def reducer_override(self, obj: Any) -> Any:
        """Return how an object is made anew; for code, also how it gets its name."""
        if not isinstance(obj, CodeType):
            return super().reducer_override(obj)
        self.code_files.add(obj.co_filename)
        if not self._with_names:
            obj = obj.replace(co_filename="")
        reduced = super().reducer_override(obj)
        if reduced is NotImplemented:
            reduced = self.dispatch_table[CodeType](obj)
        rename = methodcaller("replace", co_filename=obj.co_filename)
        return rename, (_Made(reduced),)


class _Made:
    """Is pickled as what a reduced value makes."""

    def __init__(self, reduced: Any) -> None:
        self._reduced = reduced

    def __reduce__(self) -> Any:
        return self._reduced
