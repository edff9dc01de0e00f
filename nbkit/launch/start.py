"""`launch`: write the run's folder, start its supervisor, return at once."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from nbkit import registry
from nbkit.config import ExperimentConfig
from nbkit.datasets.cache import NAMED
from nbkit.errors import ConfigError, LaunchError, NbkitError
from nbkit.launch.engine import Engine
from nbkit.launch.entry import Entry, function_entry, script_entry
from nbkit.launch.run import Run
from nbkit.launch.variables import check_environment
from nbkit.store.metrics import store_error
from nbkit.store.paths import RunPaths
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import utc_now, write_json
from nbkit.store.runs import create_run_folder
from nbkit.telemetry.gpu_source import SOURCE_VARIABLE

__all__ = ["existing_data", "launch", "refusals", "submit"]

OwnerExit = Literal["keep", "stop"]
What = ExperimentConfig | Callable[..., Any] | str | os.PathLike[str]


def launch(
    what: What | None = None,
    *,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    on_owner_exit: OwnerExit = "keep",
    origins: dict[str, str] | None = None,
    tags: dict[str, str] | None = None,
    **fields: Any,
) -> Run:
    """Start a run and return its handle at once; the run outlives this process.

    Parameters
    ----------
    what
        A configuration; or a function, which every rank calls (one of a cell, too);
        or the path of a Python script. None takes the configuration's defaults.
    args, kwargs
        Arguments of the function; a script finds ``args`` as text in ``sys.argv[1:]``.
    environment
        Variables that the ranks of a function or script get besides this process's;
        they are kept in the run's folder, so that secrets are refused.
    on_owner_exit
        What happens when this process ends: ``keep`` lets the run go on, ``stop``
        stops it gracefully.
    origins
        Where parameters came from, for the record: ``{"gpus": "papermill"}``.
    tags
        Free labels for the record, such as the study's id.
    **fields
        Fields of `ExperimentConfig` that take the place of the configuration's;
        ``nbkit.ExperimentConfig?`` lists them with units and defaults.

    Returns
    -------
    Run
        Handle with ``wait() stop() state metrics() logs() summary returns``.

    Raises
    ------
    ConfigError
        If the configuration is not valid, or the function cannot be sent to other
        processes.
    LaunchError
        If this machine does not run Linux.
    DeviceError
        If it could never start on the devices of this machine. Where others hold
        them, the run waits for its turn: see ``state`` and ``record["queue"]``.
    StoreError
        If the store cannot be written.

    Examples
    --------
    >>> run = nbkit.launch(model="resnet18", gpus=2, steps=20)  # doctest: +SKIP
    >>> run.wait().summary.images_per_second  # doctest: +SKIP
    >>> nbkit.launch(train, args=(0.1,), gpus=4).wait().returns  # doctest: +SKIP
    """
    _check_owner_exit(on_owner_exit)
    _check_labels("tags", tags or {})
    _check_labels("origins", origins or {})
    check_environment(environment or {})
    entry = _entry(what, args, kwargs, environment)
    if entry is not None:
        fields = _fields_of_entry(entry, fields)
    config = what if isinstance(what, ExperimentConfig) else None
    given = set(fields) | (config.model_fields_set if config else set())
    config = (config or ExperimentConfig()).replace(**fields)
    if entry is None:
        _refuse_without_entry(config)
    config = config.replace(data=existing_data(config.data))
    known = dict.fromkeys(given, "given") | (origins or {})
    paths = create_run_folder(config)
    try:
        if entry is not None:
            entry.write(paths)
        submit(
            config,
            paths,
            attempt=0,
            on_owner_exit=on_owner_exit,
            origins=known,
            tags=tags or {},
        )
    except BaseException:
        # A supervisor that finds its folder gone ends by itself.
        shutil.rmtree(paths.root, ignore_errors=True)
        raise
    return Run(paths.root)


def refusals(config: ExperimentConfig) -> list[NbkitError]:
    """Return why `launch` would refuse a configuration here and now; empty if not.

    Parameters
    ----------
    config
        A configuration, which is valid by itself.

    Returns
    -------
    list
        What its checks raise, each beginning with the field, as in ``nnodes=2: ...``.
        Asking takes up to a second, and may hang with the driver or a file server.
    """
    checks: list[Callable[[], object]] = [
        lambda: _refuse_without_entry(config),
        lambda: existing_data(config.data),
        lambda: _engine(config).check(config),
    ]
    found: list[NbkitError] = []
    for check in checks:
        try:
            check()
        except NbkitError as error:
            found.append(error)
    return found


def existing_data(data: str) -> str:
    """Return a configuration's ``data`` so that it means the same in any folder.

    Parameters
    ----------
    data
        A name, or the path of a folder or of a multi-label set's CSV file.

    Raises
    ------
    ConfigError
        If it is a path that leads nowhere.
    """
    named = ("synthetic", *NAMED)
    if data in named:
        return data
    path = Path(data).expanduser().resolve()
    if not path.is_dir() and not (path.is_file() and path.suffix.lower() == ".csv"):
        message = (
            f"data={data!r} is not a folder or CSV file ({path}); name a folder of "
            f"images, the CSV file of a multi-label set, or one of {', '.join(named)}."
        )
        raise ConfigError(message)
    return str(path)


def submit(
    config: ExperimentConfig,
    paths: RunPaths,
    *,
    attempt: int,
    on_owner_exit: str,
    origins: dict[str, str],
    tags: dict[str, str],
    cwd: Path | None = None,
) -> None:
    """Start the supervisor of one attempt and write who asked for it.

    Parameters
    ----------
    cwd
        Where the ranks run; None is this process's folder.
    """
    _check_owner_exit(on_owner_exit)
    cwd = _current_folder() if cwd is None else cwd
    engine = _engine(config)
    wanted = engine.check(config)
    try:
        started = engine.submit(paths, attempt, wanted)
    except OSError as error:
        raise store_error(paths.root, error) from error
    write_json(
        paths.submission,
        {
            "attempt": attempt,
            "time": utc_now(),
            "name": config.title,
            "engine": config.engine,
            **started,
            "owner": ProcessIdentity.of().to_dict(),
            "on_owner_exit": on_owner_exit,
            "stop_grace_seconds": config.stop_grace_seconds,
            "origins": origins,
            "tags": tags,
            "argv": sys.argv,
            "cwd": str(cwd),
            # Of a replay; the supervisor's own environment has none of it.
            "gpu_source": os.environ.get(SOURCE_VARIABLE),
            # Jupyter tells a kernel whose it is.
            "notebook": os.environ.get("JPY_SESSION_NAME"),
            **wanted,
        },
    )


def _entry(
    what: What | None,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    environment: Mapping[str, str] | None,
) -> Entry | None:
    if isinstance(what, str | os.PathLike):
        if kwargs:
            message = f"kwargs={dict(kwargs)!r}: a script takes args only."
            raise ConfigError(message)
        return script_entry(what, args, environment)
    if callable(what):
        return function_entry(what, args, kwargs, environment)
    if what is not None and not isinstance(what, ExperimentConfig):
        message = (
            f"{what!r} is a {type(what).__name__}; pass an ExperimentConfig, a "
            "function, the path of a script, or fields by name: "
            "nbkit.launch(model='resnet50')."
        )
        raise ConfigError(message)
    if args or kwargs or environment:
        message = (
            "args, kwargs and environment belong to a function or a script; pass it "
            "first: nbkit.launch(train, args=(0.1,), gpus=2)."
        )
        raise ConfigError(message)
    return None


def _fields_of_entry(entry: Entry, fields: dict[str, Any]) -> dict[str, Any]:
    if fields.get("task", entry.task) != entry.task:
        message = f"task={fields['task']!r}: this is a {entry.task}; leave task out."
        raise ConfigError(message)
    # How far apart two steps are only its author knows.
    usual = {"name": entry.name, "hang_timeout_seconds": None}
    return {**usual, **fields, "task": entry.task}


def _refuse_without_entry(config: ExperimentConfig) -> None:
    """Raise if a configuration needs a function or script, which it cannot hold."""
    if config.has_entry:
        message = (
            f"task={config.task!r}: pass the {config.task} itself, as in "
            "nbkit.launch(train, gpus=2)."
        )
        raise ConfigError(message)


def _check_owner_exit(on_owner_exit: str) -> None:
    if on_owner_exit not in ("keep", "stop"):
        message = f"on_owner_exit={on_owner_exit!r} is neither 'keep' nor 'stop'."
        raise ConfigError(message)


def _engine(config: ExperimentConfig) -> Engine:
    if platform.system() != "Linux":
        message = (
            f"this machine runs {platform.system() or 'an unknown system'}; nbkit "
            "launches on Linux, by whose /proc and pidfds it supervises a run. Use a "
            "Linux machine, or WSL 2 on Windows."
        )
        raise LaunchError(message)
    return registry.resolve("engines", config.engine)()


def _check_labels(name: str, labels: Mapping[str, str]) -> None:
    for key, value in labels.items():
        if not isinstance(key, str) or not isinstance(value, str):
            message = f"{name}[{key!r}]={value!r} is not text; use str() of it."
            raise ConfigError(message)


def _current_folder() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        message = "the current folder was removed; os.chdir() to one that exists."
        raise LaunchError(message) from None
