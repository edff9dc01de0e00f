"""`try_`: comparison of a script with an earlier commit."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from nbkit.errors import ConfigError, NbkitError, RunError
from nbkit.launch.code.variables import is_recorded
from nbkit.launch.code.worktrees import ScriptChange, find_change
from nbkit.launch.program import Program
from nbkit.launch.program import script as program
from nbkit.launch.start import check_arguments
from nbkit.questions.study_report import make
from nbkit.reports.renderer import Report
from nbkit.statistics import MINIMUM_RUNS
from nbkit.store.locks import locked
from nbkit.store.metrics import store_error
from nbkit.store.ownership import is_of_others, make_folder, write_file
from nbkit.store.paths import StudyPaths, store_folder, study_folders, trial_lock
from nbkit.store.private import make_store
from nbkit.store.processes import hostname
from nbkit.store.record import DAMAGE_ERRORS, read_json
from nbkit.studies.stored_study import resume_hint
from nbkit.studies.study import Study

DISCARD_FLOORS = 5.0
"""A change that is worse by more noise floors than this is not started again. Savings
and costs of this rule: tests/soak/test_try_rule.py."""

_PATH = "import_path"
_SET_BY_IMPORTS = (
    "CUDA_MODULE_LOADING",
    "KMP_DUPLICATE_LIB_OK",
    "KMP_INIT_AT_FORK",
    "TORCHINDUCTOR_CACHE_DIR",
)
"""Variables that libraries set in the process that imports or uses them."""


@dataclass(frozen=True)
class Trial:
    """Effect of a script's change on a metric."""

    study: Study
    report: Report
    verdict: str
    """``better``, ``worse`` or ``no difference shown``; without a verdict, ``not enough
    runs``, ``withheld`` or ``not measured``."""
    is_stored: bool = False
    """Whether the result is from an earlier call."""

    @classmethod
    def of(cls, study: Study) -> Trial:
        """Return the effect that a study shows; no verdict that its report doubts."""
        report = make(study)
        verdicts = {row["arm"]: row["verdict"] for row in report.result["rows"]}
        verdict = verdicts.get("new", "not measured")
        is_withheld = verdict in ("better", "worse") and report.result.get("caveats")
        return cls(study, report, "withheld" if is_withheld else verdict)

    def __str__(self) -> str:
        return "\n".join([self.report.answer, *self.report.tables[0].notes])

    __repr__ = __str__


def try_(
    script: str | os.PathLike[str],
    args: Sequence[object] = (),
    *,
    metric: str,
    better: str,
    against: str = "HEAD",
    margin: float = 0.0,
    repeats: int = 5,
    control: bool = False,
    parallel: int | None = None,
    minutes: float | None = None,
    gpus: int = 1,
    device: str = "auto",
    progress: bool = True,
) -> Trial:
    """Run a script and its version at a commit alternately, and compare a metric.

    Same as ``nbkit try``. Each version runs in a copy of the repository, with links to
    untracked files. A change is measured only once: repeat the call to continue after
    an interruption, or to get the stored result.

    Parameters
    ----------
    script
        A Python script in a git repository.
    args
        Arguments for both versions. ``{repeat}`` is replaced by the number of the
        repeat, such as for a seed.
    metric, better, margin, parallel
        See `nbkit.Study.create`.
    against
        Commit to compare with.
    repeats
        Runs per version; a verdict needs five, unless the change is much worse.
    control
        Also run a second copy of the commit, to measure the noise floor.
    minutes
        Time limit; runs that would exceed it are not started. None and 0 set no limit.
    gpus, device
        Fields of `nbkit.ExperimentConfig`.
    progress
        Show the progress.

    Raises
    ------
    ConfigError
        If the versions cannot be compared, a value is invalid, or the study of this
        change was interrupted with another value of ``repeats`` or ``parallel``.
    RunError
        If another process is measuring this change.
    RunFailedError, NotEnoughDataError
        If no run of a version finishes or has the metric.

    Examples
    --------
    >>> nbkit.try_("train.py", metric="val_loss", better="lower")  # doctest: +SKIP
    """
    settings = {
        "against": against,
        "metric": metric,
        "better": better,
        "margin": margin,
        "repeats": repeats,
        "control": control,
        "parallel": parallel,
        "minutes": minutes,
        "gpus": gpus,
        "device": device,
    }
    check_arguments(args)
    path, words = Path(script).expanduser().resolve(), [str(arg) for arg in args]
    change = find_change(path, against)
    base, new = change.trees
    if base == new:
        message = (
            f"{path.name} and its repository are unchanged since {against}. Change a "
            "file that git tracks, or compare with an earlier commit, such as "
            "against='HEAD~1' (nbkit try: --against HEAD~1)."
        )
        raise ConfigError(message)
    measured = [base, new, str(change.script), words, metric, better, float(margin)]
    identity = _identity([str(change.top), *measured, gpus, device, control])
    key = identity[:12]
    lock = trial_lock(hostname(), key)
    try:
        make_store()
        make_folder(lock.parent)
    except OSError as error:
        raise store_error(lock, error) from error
    with locked(lock) as is_locked:
        if is_locked is False:
            what = f"{path.name} against {against} is being measured by another process"
            message = f"{what}. Repeat the call when that process has ended."
            raise RunError(message)
        study = _stored(identity, repeats)
        if study is not None and not study.missing:
            _say(
                f"study {study.study_id} has measured this change (repeats="
                f"{study.repeats}). Its stored result is used; to measure again, "
                "remove the study's folder."
            )
            return replace(Trial.of(study), is_stored=True)
        if study is not None:
            _refuse_other_limits(study, repeats, parallel)
        # The same folders where the study continues.
        with change.worktrees(key, is_locked=bool(is_locked)) as folders:
            if study is None:
                command = _command(script, bool(words), settings)
                arms = {
                    name: _arm(change, folder, words, command, gpus, device)
                    for name, folder in folders.items()
                }
                study = Study.create(
                    f"try {path.stem}",
                    arms,
                    metric=metric,
                    better=better,
                    margin=margin,
                    repeats=repeats,
                    control="base" if control else None,
                    parallel=parallel,
                    minutes=minutes,
                    discard_floors=DISCARD_FLOORS,
                    plan={
                        "against": against,
                        "versions": change.to_dict(),
                        "change": identity,
                        "parallel": parallel,
                        "command": command,
                    },
                )
                write_file(study.paths.change, change.patch())
                _say(f"study {study.study_id}")
            else:
                _say(f"study {study.study_id} continues")
            _run(study, minutes, progress=progress)
    return Trial.of(study)


def _run(study: Study, minutes: float | None, *, progress: bool) -> None:
    try:
        study.run(progress=progress, minutes=minutes or 0)
    except NbkitError as error:
        if not hasattr(error, "__notes__"):
            error.add_note(resume_hint(study))
        raise
    except KeyboardInterrupt:
        if not progress:  # else it is below the headline
            _say(resume_hint(study))
        raise


def describe(plan: Mapping[str, Any]) -> list[str]:
    """Return the two versions of a trial's script; empty for other studies."""
    versions = plan.get("versions")
    if versions is None:
        return []
    new = f"HEAD ({versions['head_commit']})"
    if versions["uncommitted"]:
        new += f" with uncommitted changes ({versions['uncommitted']})"
    base = f"{plan['against']} ({versions['base_commit']})"
    return [f"base: {base}; new: {new}; patch: change.patch."]


def _identity(measured: Sequence[object]) -> str:
    """Return a hash of what is measured, and where: arguments may be private."""
    here = {
        "host": hostname(),
        "folder": str(Path.cwd()),
        "store": str(store_folder().resolve()),
        "python": sys.version,
        "packages": sorted(
            {
                f"{package.name}=={package.version}"
                for package in metadata.distributions()
            }
        ),
        "variables": {
            name: value
            for name, value in sorted(os.environ.items())
            if name == "PYTHONPATH"
            or (
                is_recorded(name)
                and name not in _SET_BY_IMPORTS
                and not name.startswith(("NBKIT", "SLURM"))
            )
        },
    }
    return hashlib.sha256(json.dumps([measured, here]).encode()).hexdigest()


def _stored(identity: str, repeats: int) -> Study | None:
    """Return the study of a change; a second one would only try again for luck.

    One of too few runs for a verdict does not count for more.
    """
    for folder in reversed(study_folders()):
        paths = StudyPaths(folder)
        try:
            content = read_json(paths.study) or {}
            if (
                (content.get("plan") or {}).get("change") == identity
                and content["repeats"] >= min(repeats, MINIMUM_RUNS)
                and not is_of_others(paths.imported, [folder, paths.study])
            ):
                return Study(folder)
        except DAMAGE_ERRORS:
            continue  # it cannot be reported either
    return None


def _refuse_other_limits(study: Study, repeats: int, parallel: int | None) -> None:
    """Refuse to continue a study with other limits than it has.

    A new study is no way out: who has seen the results so far would choose between two.
    """
    stored = (study.repeats, study.plan.get("parallel"))
    if (repeats, parallel) != stored:
        message = (
            f"repeats={repeats}, parallel={parallel}: study {study.study_id} of this "
            f"change was interrupted with repeats={stored[0]}, parallel={stored[1]}. "
            "Use these values, or remove the study's folder."
        )
        raise ConfigError(message)


def _command(
    script: object, has_arguments: bool, settings: Mapping[str, object]
) -> str:
    """Return the command that continues the study; arguments may be private."""
    words = ["nbkit", "try", str(script)]
    parameters = inspect.signature(try_).parameters
    for name, value in settings.items():
        if value != parameters[name].default:
            words += [f"--{name}", *([] if value is True else [str(value)])]
    return shlex.join(words) + " -- ..." * has_arguments


def _arm(
    change: ScriptChange,
    folder: Path,
    words: Sequence[str],
    command: str,
    gpus: int,
    device: str,
) -> Program:
    given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    path = [str(folder), str(folder / "src")]
    path += [_moved(entry, change.top, folder) for entry in given]
    arm = program(
        folder / change.script,
        words,
        environment={"PYTHONPATH": os.pathsep.join(path)},
        cwd=_moved(str(Path.cwd()), change.top, folder),
        gpus=gpus,
        device=device,
    )
    entry = arm.entry
    # An editable installation is the same for both: its folder is moved, also where
    # setuptools' finder, which comes after the path, knows a package by its folder.
    imports = [_moved(path, change.top, folder) for path in entry.description[_PATH]]
    parents = [
        str(Path(package).parent)
        for name, finder in sys.modules.items()
        if name.startswith("__editable__")
        for package in getattr(finder, "MAPPING", {}).values()
    ]
    moved = dict.fromkeys(_moved(path, change.top, folder) for path in parents)
    imports += [path for path in moved if path not in parents]
    description = {
        **entry.description,
        _PATH: [*path[:2], *imports],
        "copy": {"folder": str(folder), "command": command},
    }
    return replace(arm, entry=replace(entry, description=description))


def _moved(path: str, top: Path, folder: Path) -> str:
    """Return where a folder of the repository is in a copy of it."""
    original, top = Path(path).resolve(), top.resolve()
    if not original.is_relative_to(top):
        return path
    copy = folder / original.relative_to(top)
    # What git does not track, such as an environment, is no copy.
    is_copy = copy.is_dir() and copy.resolve().is_relative_to(folder.resolve())
    return str(copy) if is_copy else path


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
