"""`script`, `module` and `function`: programs of the user, as arms of a study."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError
from nbkit.launch.code.entry import RunEntry
from nbkit.launch.code.variables import check_environment
from nbkit.launch.start import entry_of, fields_of_entry
from nbkit.launch.submit import current_folder
from nbkit.reading import can_enter, expanded


@dataclass(frozen=True)
class Program:
    """A script, module or function with its arguments, as returned by `script`."""

    config: ExperimentConfig
    entry: RunEntry
    cwd: Path
    """Working folder of its ranks."""


def script(
    path: str | os.PathLike[str],
    args: Sequence[Any] = (),
    *,
    environment: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    **fields: Any,
) -> Program:
    """Return a script with its arguments, as an arm of `nbkit.Study.create`.

    The script is read now, and every start runs this copy; modules that it imports are
    read at each start. ``{repeat}`` in arguments and the variable ``STUDY_REPEAT`` are
    the number of the repeat, for seeds: 0, 1, ...; of a control, from ``repeats`` on.

    Parameters
    ----------
    path
        Python script.
    args
        Its arguments, ``sys.argv[1:]``.
    environment
        Additional environment variables of its ranks; secrets are refused.
    cwd
        Working folder of its ranks; None uses that of this process.
    **fields
        Fields of `nbkit.ExperimentConfig`, such as ``gpus=2``.

    Raises
    ------
    ConfigError
        If ``path`` is not a Python script, or an argument or field is not valid.

    Examples
    --------
    >>> arms = {
    ...     "base": nbkit.script("train.py", ["--seed", "{repeat}"]),
    ...     "new": nbkit.script("train.py", ["--seed", "{repeat}", "--lr", "3e-4"]),
    ... }  # doctest: +SKIP
    """
    return _program(os.fspath(path), args, None, environment, cwd, fields)


def module(
    name: str,
    args: Sequence[Any] = (),
    *,
    environment: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    **fields: Any,
) -> Program:
    """Return a module that runs as with ``python -m``, as an arm of a study.

    Unlike a script, it is imported again at each start, with your latest edits.

    Parameters
    ----------
    name
        Name of the module, such as ``trl.scripts.sft``.
    args, environment, cwd, **fields
        As in `script`.

    Raises
    ------
    ConfigError
        If its package is not installed, or a field is not valid.
    """
    return _program(None, args, None, environment, cwd, fields, name)


def function(
    call: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    **fields: Any,
) -> Program:
    """Return a function with its arguments, as an arm of `nbkit.Study.create`.

    It is pickled now, as by `nbkit.launch`, and every rank calls it.

    Parameters
    ----------
    call
        The function; it may be defined in a cell.
    args, kwargs
        Its arguments.
    environment, **fields
        As in `script`.

    Raises
    ------
    ConfigError
        If the function cannot be sent to other processes, or a field is not valid.
    """
    return _program(call, args, kwargs, environment, None, fields)


def _program(
    what: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    environment: Mapping[str, str] | None,
    cwd: str | os.PathLike[str] | None,
    fields: Mapping[str, Any],
    module: str | None = None,
) -> Program:
    check_environment(environment or {})
    entry = entry_of(what, args, kwargs, environment, module=module)
    if entry is None:
        message = f"{what!r:.80} is not a function. Pass one, or nbkit.script(path)."
        raise ConfigError(message)
    folder = current_folder() if cwd is None else expanded(cwd, "cwd").resolve()
    if not can_enter(folder):
        message = (
            f"cwd={str(cwd)!r} does not exist or is not accessible. Pass a folder."
        )
        raise ConfigError(message)
    described = fields_of_entry(entry, dict(fields))
    # Else all starts of a study would have the name of the script.
    if "name" not in fields:
        del described["name"]
    return Program(ExperimentConfig(**described), entry, folder)
