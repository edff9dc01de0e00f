"""Writing pickles as cloudpickle does, with the file names of code.

A traceback of unpickled code shows its file and line, and `inspect.getsource` finds its
source. cloudpickle leaves file names out from 3.1.3 on.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import io
import operator
import pickletools
import sys
import typing
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MemberDescriptorType,
    ModuleType,
)
from typing import Any

import cloudpickle

MAIN = ("__main__", "__mp_main__")
"""The main module; in a child that multiprocessing has spawned, it has two names."""

_LruCache = type(functools.lru_cache(lambda: None))
_DISPATCH_CODE = operator.attrgetter("__code__")(functools.singledispatch(repr))
_AliasType = getattr(typing, "TypeAliasType", None)  # from Python 3.12 on
_NAMED_TYPES = (
    *(typing.NewType, typing.ParamSpec, typing.TypeVarTuple),
    *([] if _AliasType is None else [_AliasType]),
)
"""What pickles itself as a name."""
_IN_ANNOTATIONS = (
    type,
    ModuleType,
    BuiltinFunctionType,
    int,
    float,
    str,
    *_NAMED_TYPES,
)
"""Kinds of values that names in an annotation mean, beside those of `typing`."""
_PROTOCOL = 4
"""The first by which objects of all classes are reduced alike."""
_SMALL_BYTES = 1 << 20
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
        """Return names in ``__main__`` that stand for what should have been there.

        Where it is read, ``__main__`` is another module.
        """
        found = {name for module, name in _names(self.data) if module in MAIN}
        return sorted(found)


def dumps(value: Any) -> Pickle:
    """Return a value's pickle."""
    with io.BytesIO() as file, _both_mains_by_value():
        pickler = _CodePickler(file)
        pickler.dump(value)
        # It refers to what was pickled before.
        pickler.dump(pickler.meanings())
        return Pickle(file.getvalue(), pickler.code_files, pickler.modules)


def pickle_sha256(value: Any) -> str:
    """Return the hash of a value's pickle without file names.

    Those of cells differ from kernel to kernel.
    """
    digest = _Digest()
    with _both_mains_by_value():
        _CodePickler(digest, with_names=False).dump(value)
    return digest.sha256.hexdigest()


@contextmanager
def _both_mains_by_value() -> Iterator[None]:
    """Let cloudpickle treat ``__mp_main__`` as it treats ``__main__``."""
    main = sys.modules.get("__mp_main__")
    registered = cloudpickle.list_registry_pickle_by_value()
    if main is None or main.__name__ in registered:
        yield
        return
    cloudpickle.register_pickle_by_value(main)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(main)


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
        self._of_annotations: dict[str, Any] = {}
        """What its annotations refer to in ``__main__``."""

    def meanings(self) -> dict[str, Any]:
        """Return what each name in ``__main__`` means, of what is in this pickle.

        A cell that was executed twice has made two classes of one name.
        """
        now = vars(sys.modules["__main__"])
        return self._of_annotations | {
            name: next((one for one in found if one is now.get(name)), found[-1])
            for name, found in self._of_main.items()
        }

    def reducer_override(self, obj: Any) -> Any:
        """Return how an object is made again; for code, also how it gets its name."""
        if _is_storage(obj):
            return _reduce_storage(obj)
        if isinstance(obj, ModuleType):
            self.modules.add(obj.__name__)
        if _is_small_view(obj):
            # All of the memory would go along: 100 MB for three numbers of it.
            copy = obj.detach().clone().requires_grad_(obj.requires_grad)
            return copy.__reduce_ex__(_PROTOCOL)
        if issubclass(type(obj), type | FunctionType):
            return self._reduce_definition(obj)
        if (reduced := _reduce_decorated(obj) or _reduce_named_type(obj)) is not None:
            return reduced
        if _has_slots_of_main(type(obj)):
            # Where its class came from there are slots; here cloudpickle made a dict.
            made, args, state, *rest = obj.__reduce_ex__(_PROTOCOL)
            parts: Any = state if isinstance(state, tuple) else (state,)
            slots = {name: one for part in parts if part for name, one in part.items()}
            return made, args, (None, slots), *rest
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
        """Return how a class or function is made again, or by which name it is found.

        `typing.get_type_hints` looks up what annotations name in ``__main__``, and in
        the globals of a function; cloudpickle sends only what code names.
        """
        in_main = obj.__module__ in MAIN
        if in_main and obj.__qualname__.isidentifier():
            self._of_main.setdefault(obj.__qualname__, []).append(obj)
        reduced = super().reducer_override(obj)
        if reduced is NotImplemented and isinstance(obj.__module__, str):
            self.modules.add(obj.__module__)
        if not isinstance(reduced, tuple) or len(reduced) != 6:
            return reduced
        make, args, state, items, pairs, set_state = reduced
        if isinstance(obj, FunctionType) and obj.__code__ is _DISPATCH_CODE:
            registry = dict(typing.cast("Any", obj).registry)
            made = functools.singledispatch, (registry.pop(object),)
            return *made, registry, None, None, _register
        if isinstance(obj, type):
            # cloudpickle leaves out those of slots, but knows a private one by another
            # name.
            own = [name for name, one in state[0].items() if _is_member(one, obj)]
            for name in own:
                del state[0][name]
        names = _names_in_annotations(obj) if in_main else {}
        if names:
            self._of_annotations.update(names)
            state, set_state = (set_state, state, names), _set_state_and_names
        return make, args, state, items, pairs, set_state


def _register(dispatch: Any, registry: Mapping[type, Callable[..., Any]]) -> None:
    for kind, function in registry.items():
        dispatch.register(kind, function)


def _set_state_and_names(obj: Any, state: tuple[Any, Any, dict[str, Any]]) -> None:
    set_state, own, names = state
    set_state(obj, own)
    if isinstance(obj, FunctionType):
        for name, value in names.items():
            obj.__globals__.setdefault(name, value)


def _names_in_annotations(obj: Any) -> dict[str, Any]:
    """Return what names in ``__main__`` mean that are in annotations which are text."""
    hints = vars(obj).get("__annotations__", {})
    main, codes = vars(sys.modules["__main__"]), []
    if isinstance(obj, FunctionType):
        hints, main, codes = obj.__annotations__, obj.__globals__, [obj.__code__]
    texts = [text for text in hints.values() if isinstance(text, str)]
    while codes:
        code = codes.pop()
        codes += [one for one in code.co_consts if isinstance(one, CodeType)]
        if code.co_flags & annotations.compiler_flag:
            # Those of what a function defines are among its constants.
            for one in code.co_consts:
                parts = one if isinstance(one, tuple) else (one,)
                texts += [part for part in parts if isinstance(part, str)]
    return {
        name: main[name]
        for text in dict.fromkeys(texts)
        for name in _names_in_expression(text)
        if name in main and _may_annotate(main[name])
    }


def _names_in_expression(text: str) -> list[str]:
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []  # a sentence
    return [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]


def _may_annotate(value: Any) -> bool:
    """Return whether a value is one for annotations, and not data or the user's own."""
    if isinstance(value, FunctionType):
        return value.__module__ not in MAIN  # as pydantic's Field
    is_of_typing = type(value).__module__ in ("typing", "types", "typing_extensions")
    return isinstance(value, _IN_ANNOTATIONS) or is_of_typing


def _is_member(value: Any, kind: type) -> bool:
    return isinstance(value, MemberDescriptorType) and value.__objclass__ is kind


def _reduce_decorated(obj: Any) -> Any:
    """Return how what decorators make is made again by its function; None if not."""
    if isinstance(obj, _LruCache) and obj.__module__ in MAIN:
        # By itself it is pickled as a name.
        maxsize, typed = obj.cache_parameters().values()
        decorator = _Made((functools.lru_cache, (maxsize, typed)))
        return operator.call, (decorator, obj.__wrapped__)
    if isinstance(obj, functools.cached_property | functools.singledispatchmethod):
        state = dict(vars(obj))
        for name in ("lock", "_method_cache"):
            state.pop(name, None)  # made anew
        return type(obj), (obj.func,), state
    return None


def _reduce_named_type(obj: Any) -> Any:
    """Return how a `NewType`, a ``type X = ...`` or the like is made again."""
    if not isinstance(obj, _NAMED_TYPES):
        return None
    module = None if obj.__module__ in MAIN else sys.modules.get(obj.__module__)
    if getattr(module, obj.__name__, None) is obj:
        return None
    if isinstance(obj, typing.NewType):
        return typing.NewType, (obj.__name__, obj.__supertype__), dict(vars(obj))
    if isinstance(obj, typing.ParamSpec | typing.TypeVarTuple):
        return type(obj), (obj.__name__,)
    make = functools.partial(type(obj), type_params=obj.__type_params__)
    return make, (obj.__name__, obj.__value__)


def _is_storage(obj: Any) -> bool:
    """Return whether it is the memory of a tensor; imports no torch."""
    kinds = (
        getattr(sys.modules.get("torch"), name, None)
        for name in ("TypedStorage", "UntypedStorage")
    )
    return any(kind is not None and issubclass(type(obj), kind) for kind in kinds)


def _is_small_view(obj: Any) -> bool:
    """Return whether it is a tensor with less than half of the memory that it keeps."""
    tensor = getattr(sys.modules.get("torch"), "Tensor", None)
    if type(obj) is not tensor or obj.layout != sys.modules["torch"].strided:
        return False
    kept_bytes = obj.untyped_storage().nbytes()
    return kept_bytes > 2 * obj.nbytes + _SMALL_BYTES


def _reduce_storage(storage: Any) -> Any:
    """Return how the memory of a tensor is read again: on the CPU, by public names.

    By itself it would go back to its device, which is another rank's where it is read,
    or is not there at all.
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
