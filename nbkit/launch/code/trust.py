"""Trust: code from others is executed only if the user permits it.

A run or study can execute code without a word of Python by its user: a pickle, a
script, shell lines, variables, arguments of other programs, names of plug-ins. To
submit a run, or to load a pickle, needs a `Permit` for the folder that all this comes
from. Reading such a folder (compare, report, audit, export) needs none.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbkit.errors import RunError, StoreError
from nbkit.reading import read_file
from nbkit.store.ownership import imported_from, what_others_own
from nbkit.store.paths import RunPaths, StudyPaths
from nbkit.store.private import read_entry
from nbkit.store.record import read_json
from nbkit.store.stored_runs import StoredRun

if TYPE_CHECKING:
    from nbkit.config import ExperimentConfig


Lines = Iterator[tuple[str, Any]]

_NAMED = ("task", "model", "loader", "engine")
"""Fields that name an installed package's part."""


@dataclass(frozen=True)
class Permit:
    """Leave to execute what comes from a folder; only this module makes one."""

    folder: Path
    """Of the run or study that was judged."""

    def load(self, file: Path) -> Any:
        """Return what is pickled in a file of the folder."""
        # Few who launch load anything, and cloudpickle takes a while to import.
        from nbkit.store.pickles import load

        if not file.is_relative_to(self.folder):
            message = f"The trust check of {self.folder} does not cover {file}."
            raise RunError(message)
        return load(read_file(file, None))


def permit_new(paths: RunPaths) -> Permit:
    """Return the permit of a run whose folder this process has just made."""
    return Permit(paths.root)


def permit_run(paths: RunPaths, *, trust: bool, loads: Sequence[Path] = ()) -> Permit:
    """Return the permit to execute what a run's folder holds."""
    folders = {folder for file in loads for folder in file.parents}
    files = [paths.config, paths.submission, paths.record, *loads]
    files += sorted(folder for folder in folders if paths.root in folder.parents)
    files += [paths.code, paths.source, paths.entry, paths.private]
    files += [paths.entry_pickle, paths.checkpoints]
    list_code = (lambda: _files(loads)) if loads else (lambda: _run(paths))
    means = "load_returns(trust=True)" if loads else "trust=True"
    return _permit(f"run {paths.run_id}", paths, files, trust, list_code, means)


def permit_configurations(configs: Iterable[ExperimentConfig], *, trust: bool) -> None:
    """Refuse what others have written for a configuration to ask of Slurm."""
    for config in configs:
        folder, asked = config.slurm.came_from, _slurm_options(config)
        if config.engine != "slurm" or not asked or folder is None:
            continue
        paths = RunPaths(folder)
        files = [paths.config, StudyPaths(folder).study]
        list_code = functools.partial(_configuration, config)
        what = f"a configuration of {paths.root.name}"
        if any(map(os.path.exists, files)):
            _permit(what, paths, files, trust, list_code)
            continue
        # Others made or could write it when it was read: what says so is gone as well.
        why = (
            "it was imported or is writable by another user, and its file in "
            f"{folder} was removed"
        )
        if not trust:
            raise RunError(_refusal(what, why))
        _print(f"{what}: {why}. trust=True", list_code())


def permit_study(
    paths: StudyPaths,
    arms: Mapping[str, ExperimentConfig],
    environment: Mapping[str, str],
    programs: Sequence[RunPaths],
    *,
    trust: bool,
) -> Permit:
    """Return the permit to execute a study, with the programs of its folder."""

    def list_code() -> Lines:
        yield from _variables(environment)
        for program in programs:
            yield from _entry(program)
        for program in ((read_json(paths.study) or {}).get("programs") or {}).values():
            yield "working folder", program.get("cwd")
        for config in arms.values():
            yield from _configuration(config)

    files = [paths.study]
    for program in programs:
        files += [program.root.parent, program.root, program.code, program.source]
        files += [program.entry, program.private, program.entry_pickle]
    return _permit(f"study {paths.root.name}", paths, files, trust, list_code)


def _permit(
    what: str,
    paths: RunPaths | StudyPaths,
    files: Sequence[Path],
    trust: bool,
    list_code: Callable[[], Lines],
    means: str = "trust=True",
) -> Permit:
    try:
        foreign_file = what_others_own([paths.root, *files])
        host = imported_from(paths.imported, thorough=True)
        why = foreign_file if host is None else f"imported from host {host}"
        if trust:
            _print(f"{what}: {why or 'created here'}. {means}", list_code())
    except StoreError:
        raise
    except OSError as error:
        message = (
            f"{error.filename or paths.root} cannot be read ({error.strerror}), so "
            f"{what} is not executed. Ask the file's owner for permission."
        )
        raise StoreError(message) from error
    if why is not None and not trust:
        message = _refusal(what, why, means)
        if host is None:
            message += (
                " If you own all its files and no other user changed them, run `chmod "
                f"-R go-w {paths.root}`. Otherwise, ask the owner to execute it."
            )
        raise RunError(message)
    return Permit(paths.root)


def _refusal(what: str, why: str, means: str = "trust=True") -> str:
    return (
        f"Refusing to run untrusted code: {what}: {why}. {means} prints its code and "
        "runs it with your permissions."
    )


# What is executed


def _print(who: str, entries: Lines) -> None:
    """Print what is executed as Python spells it; of arms that are alike, once."""
    lines = dict.fromkeys(f"  {name}: {value!r}" for name, value in entries)
    sys.stdout.write("\n".join([f"{who} executes:", *lines]) + "\n")
    sys.stdout.flush()


def _run(paths: RunPaths) -> Lines:
    config = StoredRun(paths.root).config
    if config.has_entry:
        yield from _entry(paths)
    submission = read_json(paths.submission) or {}
    yield "working folder", submission.get("cwd")
    yield from _variables(submission.get("environment") or {})
    yield from _configuration(config)


def _entry(paths: RunPaths) -> Lines:
    """Yield the function or script of a run, or of a study's arm."""
    entry = read_entry(paths) or {}
    for name in ("kind", "name", "module", "path", "argv", "import_path"):
        if entry.get(name) is not None:
            yield name.replace("_", " "), entry[name]
    # A rank executes this one; the other sources are for its tracebacks.
    script = (entry.get("sources") or {}).get(entry.get("path"))
    kept = [] if script is None else [paths.source / script["file"]]
    yield from _files([paths.entry_pickle, *kept])
    yield from _variables(entry.get("environment") or {})


def _configuration(config: ExperimentConfig) -> Lines:
    """Yield what a configuration makes others execute."""
    names = ("task", "engine") if config.has_entry else _NAMED
    for name in names:
        yield name, getattr(config, name)
    for name, value in _slurm_options(config).items():
        yield f"slurm.{name}", value


def _slurm_options(config: ExperimentConfig) -> dict[str, Any]:
    return config.slurm.model_dump(mode="json", exclude_defaults=True)


def _variables(environment: Mapping[str, str]) -> Lines:
    for name, value in environment.items():
        yield f"environment {name!r}", value


def _files(files: Sequence[Path]) -> Lines:
    yield from (("file", str(file)) for file in files if file.exists())
