"""`nbkit try`: whether a script is better than at an earlier commit."""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbkit.cli.command import Commands, add_command
from nbkit.cli.text import say, write_json, write_lines
from nbkit.errors import ConfigError

if TYPE_CHECKING:
    from nbkit.studies.study import Study


DISCARD_FLOORS = 5.0
"""A change that is worse by more than so many noise floors is not started any more. See
tests/soak/test_try_rule.py for what this saves and costs."""


_PATH = "import_path"


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "try",
        _try,
        summary="compare a script with an earlier commit of its repository",
        description="Run a script and its version at a commit alternately, several "
        "times each, and report whether the metric improved. Each version runs in a "
        "copy of the repository, with links to untracked files, such as data. "
        "Arguments after -- are passed to both; {repeat} in them is the number of the "
        "start (0, 1, ...), for a seed. A change that was already measured is not run "
        "again; its stored result is printed. Exit code: 0 better, 1 not shown to be "
        "better, 2 error.",
        example="nbkit try train.py --against HEAD~1 --metric val_loss --better lower "
        "-- --seed {repeat}",
    )
    parser.add_argument("script", metavar="SCRIPT", help="a Python script")
    parser.add_argument(
        "--against", default="HEAD", metavar="COMMIT", help="default: HEAD"
    )
    parser.add_argument(
        "--metric",
        required=True,
        help="metric that the script passes to nbkit.log, writes to TensorBoard or "
        "prints as 'step 10: name value' or, in its last 50 lines, 'name: value'; or "
        "seconds, its duration",
    )
    parser.add_argument(
        "--better",
        choices=("lower", "higher"),
        required=True,
        help="whether lower or higher values are better",
    )
    parser.add_argument(
        "--margin",
        type=float,
        default=0.0,
        metavar="PART",
        help="smallest relevant difference, such as 0.01 (default: 0)",
    )
    parser.add_argument(
        "--repeats",
        type=int,
        default=5,
        metavar="N",
        help="runs per version; a verdict needs 5 (default: 5)",
    )
    parser.add_argument(
        "--control",
        action="store_true",
        help="also run a second copy of the commit, to measure the noise floor",
    )
    parser.add_argument(
        "--parallel",
        type=int,
        metavar="N",
        help="maximum number of concurrent runs (default: one per free GPU; 1 if the "
        "metric is a time or rate)",
    )
    parser.add_argument(
        "--minutes",
        type=float,
        help="begin no start that would end later (default: no limit)",
    )
    parser.add_argument("--gpus", type=int, default=1, metavar="N", help="default: 1")
    parser.add_argument(
        "--device",
        choices=("auto", "cuda", "cpu"),
        default="auto",
        help="default: GPUs if available, else CPUs",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _try(arguments: argparse.Namespace) -> int:
    from nbkit.errors import NbkitError
    from nbkit.questions.study_report import make

    change = _change(Path(arguments.script).resolve(), arguments.against)
    measured = {
        "base": _git(change.top, "rev-parse", f"{change.base}^{{tree}}"),
        "new": _git(change.top, "rev-parse", f"{change.new}^{{tree}}"),
        "script": str(change.script),
        "arguments": arguments.script_arguments,
        "metric": [arguments.metric, arguments.better, arguments.margin],
        "gpus": arguments.gpus,
    }
    if measured["base"] == measured["new"]:
        message = (
            f"{change.script.name} and its repository are unchanged since "
            f"{arguments.against}. Change a file that git tracks, or compare with an "
            "earlier commit: --against HEAD~1."
        )
        raise ConfigError(message)
    study = _measured_before(measured, arguments.repeats)
    if study is not None:
        say(f"study {study.study_id} measured this change; delete it to measure again")
    else:
        with _worktrees(
            change.top, {"base": change.base, "new": change.new}
        ) as folders:
            study = _study(arguments, change, folders, measured)
            say(f"study {study.study_id}")
            try:
                study.run(progress=not arguments.json)
            except NbkitError as error:
                error.add_note(
                    f"nbkit report {study.study_id} reports the runs so far."
                )
                raise
    report = make(study)
    verdicts = {row["arm"]: row["verdict"] for row in report.result["rows"]}
    verdict = verdicts.get("new", "not measured")
    if arguments.json:
        write_json({"study": study.study_id, "verdict": verdict, **report.result})
    else:
        write_lines([report.answer, *report.tables[0].notes])
    return 0 if verdict == "better" else 1


@dataclass(frozen=True)
class _Change:
    """A script at an earlier commit, and as it is now."""

    top: Path
    """Folder of the repository."""
    script: Path
    """Below it."""
    base: str
    new: str
    """Commits; the new one has the files as they are, and is of no branch."""
    uncommitted: str
    """How many files and lines differ from HEAD, in git's words; empty for none."""

    def notes(self, against: str) -> list[str]:
        """Return what the report says of the two versions."""
        new = f"HEAD ({_git(self.top, 'rev-parse', '--short', 'HEAD')})"
        if self.uncommitted:
            new += f" with uncommitted changes ({self.uncommitted})"
        return [f"base: {against} ({self.base[:7]}); new: {new}; patch: change.patch."]

    def patch(self) -> bytes:
        """Return what leads from the base to the new version."""
        arguments = ("diff", "--binary", "--no-color", "--no-ext-diff")
        return _git_output(self.top, *arguments, self.base, self.new)


def _change(script: Path, against: str) -> _Change:
    if not script.is_file():
        message = f"{script} does not exist. Pass a Python script in a git repository."
        raise ConfigError(message)
    try:
        top = Path(_git(script.parent, "rev-parse", "--show-toplevel"))
    except _GitError as error:
        message = (
            f"{script} is not in a git repository ({error.said}). Run git init and "
            "commit the script, or compare two scripts with nbkit.Study.create."
        )
        raise ConfigError(message) from None
    try:
        base = _git(top, "rev-parse", "--verify", f"{against}^{{commit}}")
    except _GitError:
        message = (
            f"--against {against} is not a commit of {top}. Use a commit listed by git "
            "log --oneline"
        )
        raise ConfigError(message) from None
    new, path = _commit_of_now(top), script.relative_to(top)
    remedies = {
        base: f"does not exist at {against}. Use a later commit.",
        new: "is ignored by git. Add it with git add --force.",
    }
    for commit, remedy in remedies.items():
        try:
            _git(top, "cat-file", "-e", f"{commit}:{path}")
        except _GitError:
            message = f"{path} {remedy}"
            raise ConfigError(message) from None
    uncommitted = _git(top, "diff", "--shortstat", "HEAD", new)
    return _Change(top, path, base, new, uncommitted)


def _measured_before(measured: Mapping[str, Any], repeats: int) -> Study | None:
    """Return a complete study of the same change: a second one would only try again."""
    from nbkit.store.paths import StudyPaths, study_folders
    from nbkit.store.record import read_json
    from nbkit.studies.study import Study

    for folder in reversed(study_folders()):
        content = read_json(StudyPaths(folder).study) or {}
        if (content.get("plan") or {}).get("change") == measured:
            study = Study(folder)
            if not study.missing and study.repeats >= repeats:
                return study
    return None


def _study(
    arguments: argparse.Namespace,
    change: _Change,
    folders: Mapping[str, Path],
    measured: Mapping[str, Any],
) -> Study:
    from nbkit.launch.program import script as program
    from nbkit.store.ownership import write_file
    from nbkit.studies.study import Study

    arms = {}
    here = Path.cwd().resolve()
    for name, folder in folders.items():
        cwd = _moved(str(here), change.top, folder)
        path = [str(folder), str(folder / "src"), os.environ.get("PYTHONPATH")]
        arm = program(
            folder / change.script,
            arguments.script_arguments,
            environment={"PYTHONPATH": os.pathsep.join(filter(None, path))},
            cwd=cwd,
            gpus=arguments.gpus,
            device=arguments.device,
        )
        # An editable installation is the same for both: its folder is moved.
        entry = arm.entry
        imports = [_moved(it, change.top, folder) for it in entry.description[_PATH]]
        description = {**entry.description, _PATH: [*path[:2], *imports]}
        arms[name] = replace(arm, entry=replace(entry, description=description))
    study = Study.create(
        f"try {change.script.stem}",
        arms,
        metric=arguments.metric,
        better=arguments.better,
        margin=arguments.margin,
        repeats=arguments.repeats,
        control="base" if arguments.control else None,
        parallel=arguments.parallel,
        minutes=arguments.minutes,
        discard_floors=DISCARD_FLOORS,
        plan={"notes": change.notes(arguments.against), "change": measured},
    )
    write_file(study.paths.change, change.patch())
    return study


def _moved(path: str, top: Path, folder: Path) -> str:
    """Return where a folder of the repository is in a copy of it."""
    original, top = Path(path).resolve(), top.resolve()
    if not original.is_relative_to(top):
        return path
    copy = folder / original.relative_to(top)
    # What git does not track, such as an environment, is no copy.
    is_copy = copy.is_dir() and copy.resolve().is_relative_to(folder.resolve())
    return str(copy) if is_copy else path


@contextmanager
def _worktrees(top: Path, commits: Mapping[str, str]) -> Iterator[dict[str, Path]]:
    """Check out each commit in a folder of its own, and remove it at the end.

    Scripts run in it: files that git tracks, such as configurations, are then those of
    their commit. Others are links.
    """
    listed = _git_output(top, "ls-files", "--others", "--directory", "-z")
    untracked = os.fsdecode(listed).split("\0")[:-1]
    # Beside the repository, for paths such as ../data.
    place = top.parent if os.access(top.parent, os.W_OK) else None
    with ExitStack() as stack:
        folders = {}
        for name in commits:
            made = tempfile.TemporaryDirectory(prefix=f".nbkit-try-{name}-", dir=place)
            folders[name] = Path(stack.enter_context(made))
        try:
            for name, commit in commits.items():
                _git(top, "worktree", "add", "--detach", str(folders[name]), commit)
                for path in untracked:
                    _link(top / path, folders[name] / path)
            yield folders
        finally:
            for folder in folders.values():
                if (folder / ".git").exists():
                    _git(top, "worktree", "remove", "--force", str(folder))


def _link(original: Path, copy: Path) -> None:
    """Link what a copy lacks; in a folder that it has, what that lacks."""
    if original.name == "__pycache__":
        return  # two versions of a module would share it
    if not os.path.lexists(copy):
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.symlink_to(original)
    elif original.is_dir() and copy.is_dir() and not copy.is_symlink():
        for child in original.iterdir():
            _link(child, copy / child.name)


def _commit_of_now(top: Path) -> str:
    """Return a commit, of no branch: tracked files as they are, and new Python files.

    Other new files, such as what a training has written, are no change.
    """
    with tempfile.TemporaryDirectory(prefix="nbkit-try-") as folder:
        index = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
        _git(top, "read-tree", "HEAD", variables=index)
        _git(top, "add", "--update", variables=index)
        new = ("ls-files", "--others", "--exclude-standard", "-z", "--", "*.py")
        names = os.fsdecode(_git_output(top, *new, variables=index)).split("\0")
        _git(top, "update-index", "--add", "--", *names[:-1], variables=index)
        tree = _git(top, "write-tree", variables=index)
    author = {
        f"GIT_{role}_{part}": "nbkit"
        for role in ("AUTHOR", "COMMITTER")
        for part in ("NAME", "EMAIL")
    }
    message = ("-m", "nbkit try: files as they were", "-p", "HEAD")
    return _git(top, "commit-tree", tree, *message, variables=author)


def _git(
    folder: Path, *arguments: str, variables: Mapping[str, str] | None = None
) -> str:
    output = _git_output(folder, *arguments, variables=variables)
    return output.decode(errors="replace").strip()


def _git_output(
    folder: Path, *arguments: str, variables: Mapping[str, str] | None = None
) -> bytes:
    command = ["git", "-C", str(folder), *arguments]
    environment: dict[str, Any] = {**os.environ, **(variables or {})}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, check=False
        )
    except FileNotFoundError:
        message = "git is not installed. Install it, or use nbkit.Study.create."
        raise ConfigError(message) from None
    if done.returncode:
        raise _GitError(folder, arguments, done.stderr.decode(errors="replace").strip())
    return done.stdout


class _GitError(ConfigError):
    """A command of git that failed, and what it said."""

    def __init__(self, folder: Path, arguments: Sequence[str], said: str) -> None:
        super().__init__(f"git {' '.join(arguments)} failed in {folder}: {said}")
        self.said = said
