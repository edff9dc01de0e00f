"""Pickles as cloudpickle writes them, with the file names of code.

A traceback of unpickled code shows its file and line, and `inspect.getsource` finds its
source. cloudpickle leaves file names out from 3.1.3 on.
"""

from __future__ import annotations

import functools
import hashlib
import io
import operator
import pickletools
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from types import CodeType, FunctionType, ModuleType
from typing import Any

import cloudpickle

MAIN = ("__main__", "__mp_main__")
"""The main module; in a child that multiprocessing has spawned, it has two names."""

_MOST_OPCODES = 1_000_000
"""That are searched for names: of data, not of code, there may be any number."""


@dataclass(frozen=True)
class Pickle:
    """A pickled value, and what was met in it."""

    data: bytes
    """Two pickles: the value, and a dict of what names in ``__main__`` mean."""
    code_files: set[str]
    """File names of its code."""
    modules: set[str]
    """Names of modules that who reads it imports, of the user's own at least."""

    def names_in_main(self) -> list[str]:
        """Return names in ``__main__``, which is another module where it is read."""
        names = {name for module, name in _names(self.data) if module in MAIN}
        return sorted(names)


def dumps(value: Any) -> Pickle:
    """Return a value's pickle."""
    with io.BytesIO() as file:
        pickler = _CodePickler(file)
        pickler.dump(value)
        # It refers to what was pickled before.
        pickler.dump(pickler.meanings())
        return Pickle(file.getvalue(), pickler.code_files, pickler.modules)


def pickle_sha256(value: Any) -> str:
    """Return the hash of a value's pickle without the file names of cells."""
    digest = _Digest()
    _CodePickler(digest, with_names=False).dump(value)
    return digest.sha256.hexdigest()


def _has_slots_of_main(kind: type) -> bool:
    """Return whether objects of a class of ``__main__`` have slots, and no own way."""
    return (
        not issubclass(kind, type)
        and kind.__module__ in MAIN
        and "__slots__" in vars(kind)
        and kind.__reduce_ex__ is object.__reduce_ex__
        and kind.__reduce__ is object.__reduce__
        and not hasattr(kind, "__setstate__")
    )


def _names(pickled: bytes) -> Iterator[tuple[str, str]]:
    """Yield module and name of what a pickle refers to by name; executes nothing."""
    pushed: deque[str | None] = deque([None, None], maxlen=2)
    memo: list[str | None] = []
    for opcode, value, _ in islice(pickletools.genops(pickled), _MOST_OPCODES):
        if opcode.name == "STACK_GLOBAL":
            module, name = pushed
            if module is not None and name is not None:
                yield module, name
        if opcode.name == "MEMOIZE":
            memo.append(pushed[-1])
        elif opcode.name in ("BINGET", "LONG_BINGET"):
            assert isinstance(value, int)
            pushed.append(memo[value])
        elif opcode.name not in ("PROTO", "FRAME"):
            pushed.append(value if isinstance(value, str) else None)


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
        self.modules: set[str] = set()
        self._with_names = with_names
        self._of_main: dict[str, list[Any]] = {}
        """Classes and functions of ``__main__`` in this pickle, by name."""

    def meanings(self) -> dict[str, Any]:
        """Return what each name in ``__main__`` means, of what is in this pickle.

        A cell that was executed twice has made two classes of one name.
        """
        now = vars(sys.modules["__main__"])
        return {
            name: next((cls for cls in made if cls is now.get(name)), made[-1])
            for name, made in self._of_main.items()
        }

    def reducer_override(self, obj: Any) -> Any:
        """Return how an object is made again; for code, also how it gets its name."""
        if _is_storage(obj):
            return _reduce_storage(obj)
        if isinstance(obj, ModuleType):
            self.modules.add(obj.__name__)
        if issubclass(type(obj), type | FunctionType):
            return self._reduce_definition(obj)
        if _has_slots_of_main(type(obj)):
            # Where its class came from there are slots; here cloudpickle made a dict.
            made, args, state, *iterators = obj.__reduce_ex__(4)
            parts: Any = state if isinstance(state, tuple) else (state,)
            slots = {
                name: slot for part in parts if part for name, slot in part.items()
            }
            return made, args, (None, slots), *iterators
        if isinstance(obj, functools.cached_property):
            # Its lock is made anew.
            state = {name: part for name, part in vars(obj).items() if name != "lock"}
            return type(obj), (obj.func,), state
        if not isinstance(obj, CodeType):
            return super().reducer_override(obj)
        self.code_files.add(obj.co_filename)
        if not self._with_names:
            obj = obj.replace(co_filename="")
        reduced = super().reducer_override(obj)
        if reduced is NotImplemented:
            reduced = self.dispatch_table[CodeType](obj)
        rename = operator.methodcaller("replace", co_filename=obj.co_filename)
        return rename, (_Made(reduced),)

    def _reduce_definition(self, obj: Any) -> Any:
        if obj.__module__ in MAIN and obj.__qualname__.isidentifier():
            self._of_main.setdefault(obj.__qualname__, []).append(obj)
        reduced = super().reducer_override(obj)
        if reduced is NotImplemented and isinstance(obj.__module__, str):
            self.modules.add(obj.__module__)
        return reduced


def _is_storage(obj: Any) -> bool:
    """Return whether it is the memory of a tensor; imports no torch."""
    kinds = (
        getattr(sys.modules.get("torch"), name, None)
        for name in ("TypedStorage", "UntypedStorage")
    )
    return any(kind is not None and issubclass(type(obj), kind) for kind in kinds)


def _reduce_storage(storage: Any) -> Any:
    """Return how the memory of a tensor is read again: on the CPU, by public names.

    By itself it would go back to its device, which is another rank's where it is read,
    or is not there at all; and equal tensors would not be pickled alike.
    """
    torch = sys.modules["torch"]
    stored = io.BytesIO()
    torch.save(storage, stored)
    stored.seek(0)
    load = functools.partial(torch.load, map_location="cpu", weights_only=False)
    return load, (stored,)


class _Made:
    """Is pickled as what a reduced value makes."""

    def __init__(self, reduced: Any) -> None:
        self._reduced = reduced

    def __reduce__(self) -> Any:
        return self._reduced
