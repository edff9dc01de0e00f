"""What a run executes when it is no built-in task: a function or a script, kept.

::

    code/entry.json      what it is, where its parts came from
    code/entry.pkl       the function with its arguments, by value
    code/source/...      cells and local modules as they were, or the script

A function takes along what it refers to: closures, globals, classes, and functions of
local modules. Installed packages are imported by the ranks.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import linecache
import os
import re
import site
import sys
import sysconfig
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from nbkit.errors import ConfigError
from nbkit.store.metrics import store_error
from nbkit.store.paths import RunPaths
from nbkit.store.record import write_json

__all__ = ["Entry", "function_entry", "script_entry"]

LARGE_BYTES = 50_000_000
"""A function that carries more is launched, with a warning."""


@dataclass(frozen=True)
class Entry:
    """What every rank executes, ready to be written into a run's folder."""

    task: str
    """``function`` or ``script``: the configuration's task."""
    name: str
    description: dict[str, Any]
    """JSON values of ``entry.json``."""
    pickled: bytes | None
    sources: Mapping[str, str]
    """Text by its name below ``code/source``."""

    def write(self, paths: RunPaths) -> None:
        """Write the files.

        Raises
        ------
        StoreError
            If the store cannot be written.
        """
        try:
            paths.code.mkdir(exist_ok=True)
            if self.pickled is not None:
                paths.entry_pickle.write_bytes(self.pickled)
            for name, text in self.sources.items():
                file = paths.source / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8", errors="surrogateescape")
        except OSError as error:
            raise store_error(paths.code, error) from error
        write_json(paths.entry, self.description)


def script_entry(
    script: str | os.PathLike[str],
    args: Sequence[Any],
    environment: Mapping[str, str] | None = None,
) -> Entry:
    """Return the entry of a Python script.

    Parameters
    ----------
    script
        Path of a file; the ranks run this file, the record keeps a copy.
    args
        What the script finds in ``sys.argv[1:]``; each becomes text.
    environment
        Variables that every rank gets.

    Raises
    ------
    ConfigError
        If there is no such file.
    """
    path = Path(script).expanduser().absolute()
    try:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        message = (
            f"script={str(script)!r} cannot be read ({error.strerror}): pass the path "
            "of a Python file, a function, or fields by name: "
            "nbkit.launch(model='resnet50')."
        )
        raise ConfigError(message) from None
    description = {
        "kind": "script",
        "name": path.name,
        "path": str(path),
        "argv": [str(arg) for arg in args],
        "sys_path": _import_path(),
        "environment": dict(environment or {}),
        "sources": {str(path): {"shown_as": str(path), "file": path.name}},
    }
    return Entry("script", path.stem, description, None, {path.name: text})


def function_entry(
    function: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Entry:
    """Return the entry of a function with its arguments, pickled by value.

    Raises
    ------
    ConfigError
        If it, or something it refers to, cannot be sent to another process.

    Warns
    -----
    UserWarning
        If it carries more than 50 MB; the text names the largest part.
    """
    import cloudpickle

    name = getattr(function, "__name__", type(function).__name__)
    call = (function, tuple(args), dict(kwargs or {}))
    modules = _local_modules()
    with _by_value(modules):
        try:
            pickled = cloudpickle.dumps(call)
        except Exception as error:
            raise ConfigError(_why_not(name, call, error)) from error
        if len(pickled) > LARGE_BYTES:
            warnings.warn(_what_is_large(name, call, len(pickled)), stacklevel=4)
    sources, texts = _sources(pickled, modules)
    description = {
        "kind": "function",
        "name": name,
        "qualified_name": getattr(function, "__qualname__", name),
        "module": getattr(function, "__module__", None),
        "pickle_bytes": len(pickled),
        "pickle_sha256": hashlib.sha256(pickled).hexdigest(),
        "python": sys.version.split()[0],
        "cloudpickle": cloudpickle.__version__,
        "sys_path": _import_path(),
        "environment": dict(environment or {}),
        "sources": sources,
    }
    return Entry("function", name, description, pickled, texts)


def _import_path() -> list[str]:
    """Return where this process imports from, as it means anywhere."""
    return [str(Path(entry or ".").absolute()) for entry in sys.path]


def _local_modules() -> list[ModuleType]:
    """Return loaded modules that no package manager has installed."""
    installed = [sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib")]
    installed += [*site.getsitepackages(), site.getusersitepackages()]
    folders = tuple(str(Path(folder).resolve()) + os.sep for folder in installed)
    here = str(Path(__file__).resolve().parents[1]) + os.sep
    found = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not file.endswith(".py") or name == "__main__":
            continue
        path = str(Path(file).resolve())
        if not path.startswith((*folders, here)):
            found.append((name, module))
    if not found:
        return []
    # An editable installation lies elsewhere, and is installed all the same.
    known = _installed_packages()
    return [module for name, module in found if name.partition(".")[0] not in known]


@functools.cache
def _installed_packages() -> frozenset[str]:
    """Return top-level names; looking takes a quarter of a second."""
    return frozenset(metadata.packages_distributions())


@contextmanager
def _by_value(modules: Sequence[ModuleType]) -> Iterator[None]:
    """Let cloudpickle take functions and classes of modules along."""
    import cloudpickle

    already = cloudpickle.list_registry_pickle_by_value()
    added = [
        module
        for module in modules
        if module.__name__ not in already and sys.modules.get(module.__name__) is module
    ]
    for module in added:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in added:
            cloudpickle.unregister_pickle_by_value(module)


def _parts(call: tuple[Any, tuple[Any, ...], dict[str, Any]]) -> Iterator[tuple]:
    """Yield name and value of everything that a call carries."""
    function, args, kwargs = call
    inner = inspect.unwrap(getattr(function, "func", function))
    if inspect.isfunction(inner):
        carried = inspect.getclosurevars(inner)
        yield from carried.nonlocals.items()
        yield from carried.globals.items()
    for place, value in enumerate(args):
        yield f"args[{place}]", value
    for name, value in kwargs.items():
        yield f"kwargs[{name!r}]", value


def _why_not(name: str, call: Any, error: Exception) -> str:
    import cloudpickle

    for part, value in _parts(call):
        try:
            cloudpickle.dumps(value)
        except Exception as of_part:  # noqa: BLE001 - whatever it is, it is the culprit
            return (
                f"{name}() carries {part} (a {type(value).__name__}), which cannot be "
                f"sent to other processes ({of_part}); make it inside the function."
            )
    return f"{name}() cannot be sent to other processes: {error}"


def _what_is_large(name: str, call: Any, size: int) -> str:
    import cloudpickle

    sizes = {part: len(cloudpickle.dumps(value)) for part, value in _parts(call)}
    largest = max(sizes, key=lambda part: sizes[part], default=None)
    text = f"{name}() carries {size / 1e6:.0f} MB (limit without a warning 50 MB)"
    if largest is not None:
        text += f", of which {largest} has {sizes[largest] / 1e6:.0f} MB"
    return f"{text}; load it inside the function, from a file."


def _sources(
    pickled: bytes, modules: Sequence[ModuleType]
) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """Return the files whose code is in a pickle, and their text by a new name.

    A code object holds the name of the file that it was compiled from: a cell has one
    too, though there is no such file.
    """
    described: dict[str, dict[str, str]] = {}
    texts: dict[str, str] = {}
    cells = _cells()
    with_code = [*modules, sys.modules.get("__main__")]
    files = [getattr(module, "__file__", None) for module in with_code]
    for number, file in enumerate(filter(None, [*cells, *files])):
        if file.encode(errors="surrogateescape") not in pickled:
            continue
        text = "".join(linecache.getlines(file))
        shown = cells.get(file, file)
        kept = re.sub(r"\W+", "_", shown) + ".py" if file in cells else Path(file).name
        if kept in texts:
            kept = f"{number}_{kept}"
        described[file] = {"shown_as": shown, "file": kept}
        texts[kept] = text
    return described, texts


def _cells() -> dict[str, str]:
    """Return what IPython calls each cell, by the file name of its code."""
    try:
        shell = sys.modules["IPython"].get_ipython()
    except (KeyError, AttributeError):
        return {}
    if shell is None:
        return {}
    # IPython's tracebacks take the numbers from there; it has no public name.
    numbers = getattr(shell.compile, "_filename_map", {})
    return {
        file: f"Cell In[{numbers[file]}]" if file in numbers else "a cell"
        for file in linecache.cache
        if "ipykernel_" in file or file.startswith("<ipython-input")
    }
