"""`launch`: creation of a run's folder, and start of its supervisor."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from nbkit.config import ExperimentConfig
from nbkit.datasets.label_weighting import refuse_one_class_by_name
from nbkit.errors import ConfigError
from nbkit.launch.code.entry import (
    RunEntry,
    function_entry,
    module_entry,
    script_entry,
)
from nbkit.launch.code.trust import Permit, permit_configurations, permit_new
from nbkit.launch.code.variables import check_environment, check_texts
from nbkit.launch.run import Run
from nbkit.launch.submit import (
    absolute_weights,
    chosen_owner_exit,
    existing_data,
    refuse_without_entry,
    submit,
)
from nbkit.store.stored_runs import create_run_folder

OwnerExit = Literal["keep", "stop"]
What = ExperimentConfig | Callable[..., Any] | str | os.PathLike[str]


def launch(
    what: What | None = None,
    *,
    module: str | None = None,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    on_owner_exit: OwnerExit | None = None,
    parameter_sources: dict[str, str] | None = None,
    tags: dict[str, str] | None = None,
    trust: bool = False,
    **fields: Any,
) -> Run:
    """Start a run and return its handle immediately; the run outlives this process.

    Parameters
    ----------
    what
        A configuration; or a function, which every rank calls (it may be defined in a
        cell); or the path of a Python script. None uses the default configuration.
    module
        Instead of ``what``: name of a module that runs as with ``python -m``, such as
        ``trl.scripts.sft``.
    args, kwargs
        Arguments of the function; a script or module receives ``args`` as strings in
        ``sys.argv[1:]``.
    environment
        Additional environment variables of the ranks of a function, script or module;
        they are stored in the run's folder, so secrets are refused.
    on_owner_exit
        What happens when this process ends: ``keep`` lets the run continue, ``stop``
        stops it gracefully. None uses ``stop`` in a notebook that papermill, nbclient
        or nbconvert executes, and ``keep`` otherwise.
    parameter_sources
        Sources of parameters, for the record: ``{"gpus": "papermill"}``.
    tags
        Labels for the record, such as the study's id.
    trust
        Also execute the Slurm settings (shell lines, container, arguments) of a
        configuration whose run was imported, or that other users own or can write.
    **fields
        Fields of `ExperimentConfig` that replace the configuration's;
        ``nbkit.ExperimentConfig?`` lists them with units and defaults.

    Returns
    -------
    Run
        Handle with `wait`, `stop`, `state`, `metrics`, `logs`, `summary` and `returns`.

    Raises
    ------
    ConfigError
        If the configuration is not valid, or the function cannot be sent to other
        processes.
    LaunchError
        If this machine does not run Linux, has no torch, or cannot start a process.
    RunError
        If the configuration needs ``trust=True``.
    DeviceError
        If this machine's devices cannot run it. If they are in use, the run is queued:
        see ``state`` and ``queue``.
    StoreError
        If the store cannot be written.

    Examples
    --------
    >>> run = nbkit.launch(model="resnet18", gpus=2, steps=20)  # doctest: +SKIP
    >>> run.wait().summary.images_per_second  # doctest: +SKIP
    >>> nbkit.launch(train, args=(0.1,), gpus=4).wait().returns  # doctest: +SKIP
    """
    owner_exit = chosen_owner_exit(on_owner_exit)
    check_texts("tags", tags or {})
    check_texts("parameter_sources", parameter_sources or {})
    check_environment(environment or {})
    entry = entry_of(what, args, kwargs, environment, module=module)
    if entry is not None:
        fields = fields_of_entry(entry, fields)
    config = what if isinstance(what, ExperimentConfig) else None
    given = set(fields) | (config.model_fields_set if config else set())
    config = (config or ExperimentConfig()).replace(**fields)
    sources = dict.fromkeys(given, "given") | (parameter_sources or {})
    permit_configurations([config], trust=trust)
    return start_run(
        config,
        entry,
        permit=None,
        on_owner_exit=owner_exit,
        parameter_sources=sources,
        tags=tags or {},
    )


def start_run(
    config: ExperimentConfig,
    entry: RunEntry | None = None,
    *,
    permit: Permit | None,
    on_owner_exit: str,
    parameter_sources: dict[str, str],
    tags: dict[str, str],
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Run:
    """Start a run, as `launch` does once it knows what."""
    if entry is None:
        refuse_without_entry(config)
    refuse_one_class_by_name(config)
    config = config.replace(
        data=existing_data(config.data), weights=absolute_weights(config.weights)
    )
    paths = create_run_folder(config)
    try:
        if entry is not None:
            entry.write(paths)
        submit(
            config,
            paths,
            permit or permit_new(paths),
            attempt=0,
            on_owner_exit=on_owner_exit,
            parameter_sources=parameter_sources,
            tags=tags,
            environment=environment or {},
            cwd=cwd,
        )
    except BaseException:
        # A supervisor that finds its folder gone ends by itself.
        shutil.rmtree(paths.root, ignore_errors=True)
        raise
    return Run(paths.root)


def entry_of(
    what: What | None,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    environment: Mapping[str, str] | None,
    *,
    module: str | None = None,
) -> RunEntry | None:
    """Return what every rank executes; None of a configuration."""
    check_arguments(args, kwargs)
    if what is not None and module is not None:
        message = f"module={module!r} and {what!r:.80} cannot be combined. Pass one."
        raise ConfigError(message)
    if kwargs and (module is not None or isinstance(what, str | os.PathLike)):
        message = f"kwargs={dict(kwargs)!r:.80} require a function. Use args instead."
        raise ConfigError(message)
    if module is not None:
        return module_entry(module, args, environment)
    if isinstance(what, str | os.PathLike):
        return script_entry(what, args, environment)
    if callable(what):
        return function_entry(what, args, kwargs, environment)
    if what is not None and not isinstance(what, ExperimentConfig):
        message = (
            f"{what!r:.80} is of type {type(what).__name__}. Pass an ExperimentConfig, "
            "a function, the path of a script, or keyword arguments: "
            "nbkit.launch(model='resnet50')."
        )
        raise ConfigError(message)
    if args or kwargs or environment:
        message = (
            "args, kwargs and environment require a function, script or module. Pass "
            "one, for example: nbkit.launch(train, args=(0.1,), gpus=2)."
        )
        raise ConfigError(message)
    return None


def check_arguments(
    args: Sequence[Any], kwargs: Mapping[str, Any] | None = None
) -> None:
    """Raise unless arguments are a sequence, and keyword arguments a dict."""
    if isinstance(args, str | bytes) or not isinstance(args, Sequence):
        kind = type(args).__name__
        message = (
            f"args={args!r:.80} is of type {kind}. Pass a tuple or list, and keyword "
            "arguments as kwargs."
        )
        raise ConfigError(message)
    if not isinstance(kwargs, Mapping | None):
        kind = type(kwargs).__name__
        message = f"kwargs={kwargs!r:.80} is of type {kind}. Pass a dict."
        raise ConfigError(message)


def fields_of_entry(entry: RunEntry, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a run of a function or script."""
    if fields.get("task", entry.task) != entry.task:
        task = fields["task"]
        message = f"task={task!r} conflicts with a {entry.task}. Remove task."
        raise ConfigError(message)
    # How far apart two steps are only its author knows.
    usual = {"name": entry.name, "hang_timeout_seconds": None}
    return {**usual, **fields, "task": entry.task}
