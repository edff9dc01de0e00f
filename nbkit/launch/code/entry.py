"""Entry point of a run of a function or script, with its source code.

::

    code/entry.json      what it is, and where its parts came from
    code/private.json    ``sys.argv`` and the environment: for its owner alone
    code/entry.pkl       the function with its arguments: for its owner alone
    code/source/...      cells, loaded local modules, or the script, as they were

A notebook function is pickled with the globals, closures and classes it uses. Modules
are imported by the ranks, in the order of this process's import path: copies of a
module's functions would have a copy of its state.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import inspect
import linecache
import os
import re
import reprlib
import shlex
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from nbkit.errors import ConfigError, RunError, StoreError
from nbkit.local_modules import is_local
from nbkit.reading import expanded, read_file
from nbkit.store.metrics import store_error
from nbkit.store.ownership import make_folder, write_file
from nbkit.store.paths import RunPaths
from nbkit.store.private import private_part
from nbkit.store.record import read_json, write_json
from nbkit.store.redaction import is_secret_name, redacted

LARGE_BYTES = 50_000_000
"""A function that carries more is launched, with a warning."""

_MOST_SOURCES = 2_000
_LARGEST_SOURCE_BYTES = 1_000_000


_BRIEF = reprlib.Repr()
_BRIEF.maxstring = _BRIEF.maxother = 100


@dataclass(frozen=True)
class RunEntry:
    """What every rank executes, ready to be written into a run's folder."""

    task: str
    """``function`` or ``script``: the configuration's task."""
    name: str
    description: dict[str, Any]
    """JSON values of ``entry.json``."""
    private: dict[str, Any]
    """JSON values of ``private.json``: what only the run's owner may read."""
    pickled: bytes | None
    sources: dict[str, bytes]
    """Content by its path below ``code/source``."""

    def write(self, paths: RunPaths) -> None:
        """Write the files; only the owner can read arguments."""
        try:
            make_folder(paths.code)
            if self.pickled is not None:
                paths.entry_pickle.touch(mode=0o600)
                paths.entry_pickle.write_bytes(self.pickled)
            for name, content in self.sources.items():
                file = paths.source / name
                make_folder(file.parent)
                write_file(file, content)
        except OSError as error:
            raise store_error(paths.code, error) from error
        write_json(paths.private, self.private, 0o600)
        write_json(paths.entry, self.description)


def stored_entry(paths: RunPaths) -> RunEntry:
    """Return the function or script whose files a folder keeps."""
    description = read_json(paths.entry)
    if description is None:
        message = f"{paths.entry} is missing. Restore it, or launch the program again."
        raise RunError(message)
    refuse_without_copy(description)
    private = private_part(paths, description)
    pickled = None
    try:
        if description["kind"] == "function":
            pickled = read_file(paths.entry_pickle, None)
        files = [source["file"] for source in description["sources"].values()]
        sources = {file: read_file(paths.source / file) for file in files}
    except OSError as error:
        if isinstance(error, StoreError):
            raise
        message = f"the program cannot be read: {error}. Restore it or launch it again."
        raise RunError(message) from error
    pickled_by, here = str(description.get("python") or ""), sys.version.split()[0]
    if pickled is not None and pickled_by.split(".")[:2] != here.split(".")[:2]:
        message = (
            f"The function of run {paths.run_id} was pickled by Python {pickled_by}, "
            f"but this is {here}. Use the same minor version."
        )
        raise RunError(message)
    name = str(description["name"])
    return RunEntry(description["kind"], name, description, private, pickled, sources)


def refuse_without_copy(description: Mapping[str, Any]) -> None:
    """Raise if code was to be imported from a copy that ``nbkit try`` has removed."""
    # Without it, the modules of another version might be imported.
    copy = description.get("copy")
    if copy and not Path(copy["folder"]).is_dir():
        message = (
            f"{copy['folder']}, a copy of the repository, was removed. "
            f"`{copy['command']}` recreates it and continues the study."
        )
        raise RunError(message)


def script_entry(
    script: str | os.PathLike[str],
    args: Sequence[Any],
    environment: Mapping[str, str] | None = None,
) -> RunEntry:
    """Return the entry of a Python script."""
    path = expanded(script, "script")
    suffix = path.suffix.lower()
    if suffix == ".ipynb":
        message = (
            f"script={str(script)!r} is a notebook. Run it with `papermill "
            f"{shlex.quote(str(path))} out.ipynb`, or launch a function defined in a "
            "cell: nbkit.launch(train)."
        )
        raise ConfigError(message)
    if suffix not in ("", ".py", ".pyw") and path.is_file():
        message = (
            f"script={str(script)!r} is not a Python script. Pass a Python script and "
            "its arguments: nbkit.launch('train.py', args=[...])."
        )
        raise ConfigError(message)
    try:
        content = path.read_bytes()
        compile(content, str(path), "exec", dont_inherit=True)
    except OSError as error:
        message = (
            f"script={str(script)!r} cannot be read ({error.strerror}). Pass the path "
            "of a readable Python file, a function, or keyword arguments: "
            "nbkit.launch(model='resnet50')."
        )
        raise ConfigError(message) from None
    except (SyntaxError, ValueError) as error:
        message = f"script={str(script)!r} is not valid Python ({error}). Correct it."
        raise ConfigError(message) from None
    what = {
        "name": path.name,
        "path": str(path),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    entry = _script_entry(path.stem, what, args, environment)
    kept = f"script/{path.name}"
    entry.description["sources"][str(path)] = {"shown_as": str(path), "file": kept}
    entry.sources[kept] = content
    return entry


def module_entry(
    module: str, args: Sequence[Any], environment: Mapping[str, str] | None = None
) -> RunEntry:
    """Return the entry of a module that ranks run as ``python -m`` does.

    Only the package around it is looked for: to find the module would import it.
    """
    parts = str(module).split(".")
    is_name = isinstance(module, str) and all(part.isidentifier() for part in parts)
    if not is_name or parts[-1] == "py":
        message = (
            f"module={str(module)!r} is not a module name. Pass a name such as "
            "'trl.scripts.sft', or the path of a script: nbkit.launch('train.py')."
        )
        raise ConfigError(message)
    try:
        spec = importlib.util.find_spec(parts[0])
    except ValueError:  # its __spec__ is None
        spec = None
    if spec is None:
        message = (
            f"module={module!r}: {sys.executable} has no package {parts[0]!r}. Install "
            "it, or add the folder that contains it to sys.path."
        )
        raise ConfigError(message)
    what = {"name": module, "module": module}
    return _script_entry(module, what, args, environment)


def _script_entry(
    name: str,
    what: dict[str, Any],
    args: Sequence[Any],
    environment: Mapping[str, str] | None,
) -> RunEntry:
    described, sources = _sources()
    description = {
        "kind": "script",
        **what,
        "import_path": _import_path(),
        "python_options": _python_options(),
        "sources": described,
    }
    private = {
        "argv": [str(arg) for arg in args],
        "environment": dict(environment or {}),
    }
    return RunEntry("script", name, description, private, None, sources)


def function_entry(
    function: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> RunEntry:
    """Return the entry of a function with its arguments."""
    import cloudpickle

    from nbkit.store.pickling import dumps, pickle_sha256

    name = _name(function)
    _check_call(function, name, args, kwargs or {})
    call = (function, tuple(args), dict(kwargs or {}))
    try:
        pickle = dumps(call)
    except Exception as error:
        raise ConfigError(_pickling_problem(name, call, error)) from error
    if names := pickle.names_in_main():
        message = (
            f"{name}() references {', '.join(names)} from `__main__`, which the ranks "
            "cannot import. Move the definition to a module, or into the function."
        )
        raise ConfigError(message)
    for module in _local_modules():
        if module.__name__ in pickle.modules and not _is_importable(module):
            message = (
                f"{name}() uses module {module.__name__} ({module.__file__}), which "
                "the ranks cannot import. Add its folder (for a package, the parent "
                "folder) to sys.path, and import it under its file name."
            )
            raise ConfigError(message)
    size = len(pickle.data)
    if size > LARGE_BYTES:
        warnings.warn(_size_warning(name, call, size), stacklevel=4)
    if changed := _changed_variables():
        more = f"; {len(changed) - 2} more" if len(changed) > 2 else ""
        message = (
            f"{'; '.join(changed[:2])}{more}. The ranks of {name}() import the "
            "unchanged module. Pass the value as an argument, or set it inside the "
            "function."
        )
        warnings.warn(message, stacklevel=4)
    described, sources = _sources(pickle.code_files)
    description = {
        "kind": "function",
        "name": name,
        "qualified_name": getattr(function, "__qualname__", name),
        "module": getattr(function, "__module__", None),
        "pickle_bytes": size,
        "pickle_sha256": pickle_sha256(call),
        "python": sys.version.split()[0],
        "cloudpickle": cloudpickle.__version__,
        "import_path": _import_path(),
        "python_options": _python_options(),
        "sources": described,
    }
    private = {
        "argv": _argv(),
        "arguments": _format_arguments(args, kwargs or {}),
        "environment": dict(environment or {}),
    }
    return RunEntry("function", name, description, private, pickle.data, sources)


def _is_importable(module: ModuleType) -> bool:
    """Return whether another process finds a module, or the package that it is in."""
    if module.__name__ in ("__main__", "__mp_main__"):
        return True
    top = module.__name__.partition(".")[0]
    finders = (getattr(finder, "find_spec", None) for finder in sys.meta_path)
    return any(find is not None and find(top, None) is not None for find in finders)


def _name(function: Callable[..., Any]) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__name__", type(function).__name__)


def _format_arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return arguments as a call has them, long ones cut."""
    named = redacted({str(name): value for name, value in kwargs.items()})
    words = [f"{name}={_BRIEF.repr(value)}" for name, value in named.items()]
    return ", ".join([*map(_BRIEF.repr, args), *words])


def _argv() -> list[str]:
    """Return this process's ``sys.argv``; of a kernel's own start, the first word."""
    argv = [str(word) for word in getattr(sys, "argv", [""])]
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    is_kernels = (
        hasattr(shell, "kernel") and argv[1:] == sys.orig_argv[-len(argv) + 1 :]
    )
    return argv[:1] if is_kernels else argv


def _check_call(
    function: Callable[..., Any],
    name: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> None:
    """Raise if the ranks could only fail to call a function."""
    kinds = (
        inspect.iscoroutinefunction,
        inspect.isgeneratorfunction,
        inspect.isasyncgenfunction,
    )
    if any(is_kind(function) for is_kind in kinds):
        message = (
            f"{name}() is asynchronous or a generator, so a call does not execute its "
            "body. Launch a function that runs it to completion."
        )
        raise ConfigError(message)
    try:
        # A decorator may give the function its own arguments.
        signature = inspect.signature(function, follow_wrapped=False)
    except Exception:  # noqa: BLE001 - unknown, as of a builtin
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        message = f"{name}{signature} cannot be called with args={args!r:.80} and "
        message += f"kwargs={dict(kwargs)!r:.80} ({error}). Pass matching arguments."
        raise ConfigError(message) from None


def _import_path() -> list[str]:
    """Return where this process imports from, as it means anywhere."""
    return [str(Path(entry or ".").absolute()) for entry in sys.path]


def _python_options() -> list[str]:
    """Return this interpreter's options, but those that hide a run's variables."""
    options = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return [option for option in options if option not in ("-E", "-I", "-S")]


# What a call carries


def _call_parts(call: tuple[Any, tuple[Any, ...], dict[str, Any]]) -> Iterator[tuple]:
    """Yield name and value of everything that a call carries."""
    function, args, kwargs = call
    for place, value in enumerate(args):
        yield f"args[{place}]", value
    for name, value in kwargs.items():
        yield f"kwargs[{name!r}]", value
    waiting: list[Any] = [getattr(function, "func", function)]
    seen: set[int] = set()
    while waiting:
        callee = waiting.pop()
        if not isinstance(callee, FunctionType) or id(callee) in seen:
            continue
        seen.add(id(callee))
        for name, value in _referenced_values(callee):
            waiting.append(value)
            yield name, value


def _referenced_values(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield what a function refers to, and takes along unless a module has it."""
    cells = function.__closure__ or ()
    for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:
            continue  # not assigned yet
    if function.__module__ in ("__main__", "__mp_main__"):
        codes = [function.__code__]
        while codes:
            code = codes.pop()
            codes += [
                value for value in code.co_consts if isinstance(value, type(code))
            ]
            for name in code.co_names:
                if name in function.__globals__:
                    yield name, function.__globals__[name]


def _pickling_problem(name: str, call: Any, error: Exception) -> str:
    for part, value in _call_parts(call):
        problem = _size_or_problem(value)
        if isinstance(value, FunctionType) or isinstance(problem, int):
            continue  # of a function, the part that it carries is named
        return (
            f"{name}() uses {part} (type {type(value).__name__}), which cannot be "
            f"pickled ({problem}). Create it inside the function."
        )
    return f"{name}() cannot be pickled ({error}). Define it in a module."


def _size_warning(name: str, call: Any, size: int) -> str:
    sizes = {part: _size_or_problem(value) for part, value in _call_parts(call)}
    byte_sizes = {part: size for part, size in sizes.items() if isinstance(size, int)}
    text = f"the pickle of {name}() is {size / 1e6:.0f} MB (warning above 50 MB)"
    if byte_sizes:
        largest = max(byte_sizes, key=lambda part: byte_sizes[part])
        text += f", of which {largest} is {byte_sizes[largest] / 1e6:.0f} MB"
    return f"{text}. Load the data from a file inside the function."


def _size_or_problem(value: Any) -> int | Exception:
    from nbkit.store.pickling import dumps

    try:
        return len(dumps(value).data)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
        return error


def _changed_variables() -> list[str]:
    """Return what was set in local modules whose files give it one constant."""
    changed = []
    for module in _local_modules()[-_MOST_PARSED:]:
        if module.__name__ in ("__main__", "__mp_main__"):
            continue
        try:
            tree = ast.parse(Path(str(module.__file__)).read_bytes())
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        for name, constant in _constants(tree):
            value = vars(module).get(name, constant)
            is_other = False
            if type(value) in _SIMPLE:
                with suppress(Exception):  # arrays in a tuple do not compare
                    is_other = bool(value != constant)
            if is_other and not is_secret_name(name) and _is_assigned_once(name, tree):
                text = f"{module.__name__}.{name} is {value!r:.40} here, but "
                changed.append(f"{text}{constant!r:.40} in {module.__file__}")
    return changed


_SIMPLE = (bool, int, float, str, tuple)
_MOST_PARSED = 20
"""Modules, the newest; each takes about 3 ms of a launch."""


def _constants(tree: ast.Module) -> Iterator[tuple[str, Any]]:
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name[0] != "_":
                with suppress(ValueError, TypeError, RecursionError, MemoryError):
                    constant = ast.literal_eval(value)
                    if type(constant) in _SIMPLE:
                        yield name, constant


def _is_assigned_once(name: str, tree: ast.Module) -> bool:
    times = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.Global) and name in node.names:
            return False
        if isinstance(node, ast.Name) and node.id == name:
            times += not isinstance(node.ctx, ast.Load)
    return times == 1


# What is kept of the code


def _sources(
    code_files: Iterable[str] = (),
) -> tuple[dict[str, dict[str, str]], dict[str, bytes]]:
    """Return the files that code came from, and their content by a new name."""
    described: dict[str, dict[str, str]] = {}
    contents: dict[str, bytes] = {}
    for file, shown in sorted(_cells(code_files).items()):
        name = re.sub(r"\W+", "_", shown).strip("_")
        kept = f"cells/{name}.py"
        if kept in contents:
            kept = f"cells/{name}_{len(contents)}.py"
        described[file] = {"shown_as": shown, "file": kept}
        text = "".join(linecache.getlines(file))
        contents[kept] = text.encode(errors="surrogateescape")
    for module in _local_modules()[:_MOST_SOURCES]:
        file = str(module.__file__)
        kept = "modules/" + _place(module)
        try:
            content = Path(file).read_bytes()
        except OSError:
            continue  # it was removed since; what runs is in memory
        if len(content) <= _LARGEST_SOURCE_BYTES:
            described[file] = {"shown_as": file, "file": kept}
            contents[kept] = content
    return described, contents


def _place(module: ModuleType) -> str:
    file = Path(str(module.__file__))
    if module.__name__ in ("__main__", "__mp_main__"):
        return file.name
    parts = module.__name__.split(".")
    if file.name == "__init__.py":
        parts.append("__init__")
    return "/".join(parts) + ".py"


def _local_modules() -> list[ModuleType]:
    """Return loaded modules that no package manager has put into its folders."""
    return [module for module in list(sys.modules.values()) if is_local(module)]


def _cells(code_files: Iterable[str]) -> dict[str, str]:
    """Return what IPython calls each cell, by the file name of its code."""
    label = _label_of_code()
    labels = {}
    for file in code_files:
        shown = label(file)
        if shown or (file in linecache.cache and not Path(file).exists()):
            labels[file] = " ".join(shown) if shown else "a cell"
    return labels


def _label_of_code() -> Callable[[str], tuple[str, str] | None]:
    """Return what IPython labels code by: ("Cell", "In[3]") by its file name."""
    try:
        shell = sys.modules["IPython"].get_ipython()
        return shell.compile.format_code_name
    except (KeyError, AttributeError):
        return lambda _: None
