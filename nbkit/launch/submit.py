"""Checks before an attempt, and the start of its supervisor."""

from __future__ import annotations

import os
import platform
import stat
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from nbkit import registry
from nbkit.config import ExperimentConfig
from nbkit.datasets.cache import NAMED
from nbkit.datasets.label_weighting import refuse_one_class_by_name
from nbkit.errors import ConfigError, LaunchError, NbkitError, RunError
from nbkit.launch.code.trust import Permit
from nbkit.launch.engine import Engine
from nbkit.launch.local import detach
from nbkit.reading import expanded
from nbkit.store.metrics import store_error
from nbkit.store.paths import RunPaths, is_id
from nbkit.store.private import read_entry
from nbkit.store.processes import (
    ProcessIdentity,
    kill,
    pidfd_problem,
    start_problem,
)
from nbkit.store.record import utc_now, write_json
from nbkit.store.redaction import redacted, redacted_argv

_VARIABLES_LOCK = threading.RLock()


def refusals(
    config: ExperimentConfig, *, has_program: bool = False
) -> list[NbkitError]:
    """Return why `launch` would refuse a configuration here and now; empty if not."""
    checks: list[Callable[[], object]] = [
        # One that was read from a store was not checked.
        lambda: config.replace(),
        lambda: has_program or refuse_without_entry(config),
        lambda: refuse_one_class_by_name(config),
        lambda: existing_data(config.data),
        lambda: _engine(config).check(config),
    ]
    errors: list[NbkitError] = []
    for check in checks:
        try:
            check()
        except NbkitError as error:
            errors.append(error)
    return errors


def absolute_data(data: str, named: Collection[str] = ("synthetic", *NAMED)) -> str:
    """Return a configuration's ``data`` so that it means the same in any folder."""
    # A path made of an address would hide the password in it.
    if data in named or "://" in data:
        return data
    path = expanded(data, "data")
    real = path.resolve()
    # A hub's CSV file is a link to a blob, whose name is a hash.
    is_blob = path.suffix.lower() == ".csv" and real.suffix.lower() != ".csv"
    return str(path.parent.resolve() / path.name if is_blob else real)


def absolute_weights(weights: str) -> str:
    """Return a configuration's ``weights`` so that they mean the same in any folder."""
    is_named = weights in ("random", "pretrained") or is_id(weights)
    is_path = not is_named and "://" not in weights
    return str(expanded(weights, "weights")) if is_path else weights


def existing_data(data: str, named: Collection[str] = ("synthetic", *NAMED)) -> str:
    """Return `absolute_data` of data that are there and can be read."""
    if data in named:
        return data
    path = Path(absolute_data(data, named))
    mode, what = 0, "is not a folder or CSV file"
    try:
        mode = path.stat().st_mode
    except OSError as error:
        if isinstance(error, PermissionError):
            what = "cannot be read: a parent folder is not accessible"
    is_folder = stat.S_ISDIR(mode)
    is_data = is_folder or (stat.S_ISREG(mode) and path.suffix.lower() == ".csv")
    use = os.R_OK | (os.X_OK if is_folder else 0)
    if is_data and not os.access(path, use, effective_ids=True):
        is_data, what = False, "cannot be read: no permission"
    if not is_data:
        shown = redacted(data)
        where = f" ({path})" if shown == data != str(path) else ""
        message = (
            f"data={shown!r} {what}{where}. Use a folder of images or packed files, "
            f"the CSV file of a multi-label set, or one of {', '.join(named)}."
        )
        raise ConfigError(message)
    return str(path)


def submit(
    config: ExperimentConfig,
    paths: RunPaths,
    permit: Permit,
    *,
    attempt: int,
    on_owner_exit: str,
    parameter_sources: dict[str, str],
    tags: dict[str, str],
    environment: Mapping[str, str],
    cwd: Path | None = None,
    notebook: str | None = None,
) -> None:
    """Start the supervisor of one attempt and write who asked for it."""
    # A new run may come from anywhere; a resumed one comes from its own folder.
    if attempt and permit.folder != paths.root:
        message = f"The trust check of {permit.folder} does not cover {paths.root}."
        raise RunError(message)
    cwd = current_folder() if cwd is None else cwd
    engine = _engine(config)
    # Its ranks alone get the variables of a program; the queue counts their threads.
    own = (read_entry(paths) or {}).get("environment", {})
    threads = {name: own[name] for name in ("OMP_NUM_THREADS",) if name in own}
    with variables_set({**environment, **threads}):
        requirements = engine.check(config)
    with variables_set(environment):
        try:
            started = engine.submit(paths, attempt, requirements)
        except OSError as error:
            if why := start_problem(error):
                raise LaunchError(why) from error
            raise store_error(paths.root, error) from error
    is_named = False
    try:
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
                "parameter_sources": redacted(parameter_sources),
                "tags": redacted(tags),
                "environment": dict(environment),
                "argv": redacted_argv(sys.argv),
                "executable": sys.executable,
                "cwd": str(cwd),
                # Jupyter tells a kernel whose it is; a server or a terminal has none.
                "notebook": os.environ.get("JPY_SESSION_NAME") or notebook,
                **requirements,
            },
        )
        is_named = True
        if on_owner_exit == "stop" and started.get("job"):
            _watch_owner(paths)
    except BaseException as error:
        # It would wait for this submission, and others in the queue for it.
        if started.get("supervisor"):
            kill(ProcessIdentity.from_dict(started["supervisor"]))
        if started.get("job"):
            from nbkit.launch.slurm.engine import end_job

            why = end_job(paths, started["job"])
            # One that no submission names, or that has no folder, ends by itself.
            if why and is_named and attempt:
                error.add_note(
                    f"{why} Until the job ends, nothing supervises run "
                    f"{paths.run_id}. Call its stop()."
                )
        raise


@contextmanager
def variables_set(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables of this process for a moment; children inherit."""
    # Else another thread's would be inherited too, or be kept as those of before.
    with _VARIABLES_LOCK:
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def _watch_owner(paths: RunPaths) -> None:
    """Stop a job when this process ends, which its supervisor elsewhere cannot see."""
    argv = [sys.executable, "-P", "-m", "nbkit.launch.owner", str(paths.root)]
    try:
        detach(argv, paths, Path(os.devnull))
    except (OSError, LaunchError) as error:
        message = (
            "on_owner_exit='stop' requires a process that stops the job when this "
            f"Python process exits, but it could not be started ({error}). Use "
            "on_owner_exit='keep'."
        )
        raise LaunchError(message) from error


def refuse_without_entry(config: ExperimentConfig) -> None:
    """Raise if a configuration needs a function or script, which it cannot hold."""
    if config.has_entry:
        example = "'train.py'" if config.task == "script" else "train"
        message = (
            f"task={config.task!r} requires a {config.task}. Pass it as the first "
            f"argument: nbkit.launch({example}, gpus=2)."
        )
        raise ConfigError(message)


def chosen_owner_exit(on_owner_exit: str | None) -> str:
    """Return ``keep`` or ``stop``; None stops where no person sees the notebook."""
    if on_owner_exit is None:
        return "stop" if _is_executed_by_a_program() else "keep"
    if on_owner_exit not in ("keep", "stop"):
        message = f"on_owner_exit={on_owner_exit!r} is unknown. Use 'keep' or 'stop'."
        raise ConfigError(message)
    return on_owner_exit


def _is_executed_by_a_program() -> bool:
    """Return whether papermill, nbclient or nbconvert executes this cell: no stdin."""
    module = sys.modules.get("IPython.core.getipython")
    shell = module.get_ipython() if module else None
    request = getattr(shell, "get_parent", dict)() or {}
    return (request.get("content") or {}).get("allow_stdin") is False


def _engine(config: ExperimentConfig) -> Engine:
    if platform.system() != "Linux":
        message = (
            "nbkit launches runs on Linux only (it requires /proc and pidfds), not on "
            f"{platform.system() or 'an unknown system'}. Use a Linux machine, or WSL "
            "2 on Windows."
        )
        raise LaunchError(message)
    if why := pidfd_problem():
        raise LaunchError(why)
    return registry.resolve("engines", config.engine)()


def current_folder() -> Path:
    """Return this process's working folder."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        message = "The current folder was removed. Change to an existing folder."
        raise LaunchError(message) from None
