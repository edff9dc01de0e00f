"""`nbkit try`: whether a script is better than at an earlier commit."""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbkit.cli.command import Commands, add_command
from nbkit.cli.text import say, write_json, write_lines
from nbkit.errors import ConfigError

if TYPE_CHECKING:
    from nbkit.studies.study import Study


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "try",
        _try,
        summary="compare a script with an earlier commit of its repository",
        description="Run a script as it is now and as it was at a commit, in turn, "
        "several times each, and say whether its metric is better now. Each version "
        "runs from a copy of the repository (ignored files stay out), in the current "
        "folder. Arguments after -- go to both. Exit code: 0 better, 1 not shown to be "
        "better, 2 error.",
        example="nbkit try train.py --against HEAD~1 --metric val_loss --better lower",
    )
    parser.add_argument("script", metavar="SCRIPT", help="a Python script")
    parser.add_argument(
        "--against", default="HEAD", metavar="COMMIT", help="default: HEAD"
    )
    parser.add_argument(
        "--metric",
        required=True,
        help="a name that the script gives to nbkit.log or prints as 'name: value' in "
        "its last 50 lines, or seconds",
    )
    parser.add_argument(
        "--better",
        choices=("lower", "higher"),
        required=True,
        help="which values of the metric are better",
    )
    parser.add_argument(
        "--margin",
        type=float,
        default=0.0,
        metavar="PART",
        help="smallest difference worth a verdict, such as 0.01 (default: 0)",
    )
    parser.add_argument(
        "--repeats",
        type=int,
        default=5,
        metavar="N",
        help="starts per version; a verdict needs 5 (default: 5)",
    )
    parser.add_argument(
        "--control",
        action="store_true",
        help="start the commit a second time as often: the noise floor",
    )
    parser.add_argument("--gpus", type=int, default=1, metavar="N", help="default: 1")
    parser.add_argument(
        "--device",
        choices=("auto", "cuda", "cpu"),
        default="auto",
        help="default: GPUs if there are any",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _try(arguments: argparse.Namespace) -> int:
    from nbkit.errors import NbkitError
    from nbkit.questions.study_report import make

    script = Path(arguments.script).resolve()
    top = Path(_git(script.parent, "rev-parse", "--show-toplevel"))
    base = _git(top, "rev-parse", "--verify", f"{arguments.against}^{{commit}}")
    new = _commit_of_now(top)
    if _git(top, "rev-parse", f"{base}^{{tree}}") == _git(
        top, "rev-parse", f"{new}^{{tree}}"
    ):
        message = (
            f"{script.name} and its repository are the same as at "
            f"{arguments.against}. Change something, or name an earlier commit: "
            "--against HEAD~1."
        )
        raise ConfigError(message)
    with _worktrees(top, {"base": base, "new": new}) as folders:
        study = _study(arguments, script.relative_to(top), folders)
        say(f"study {study.study_id}")
        try:
            study.run(progress=not arguments.json)
        except NbkitError as error:
            error.add_note(f"nbkit report {study.study_id} reports the runs so far.")
            raise
    report = make(study)
    verdict = {row["arm"]: row["verdict"] for row in report.result["rows"]}["new"]
    if arguments.json:
        write_json({"study": study.study_id, "verdict": verdict, **report.result})
    else:
        write_lines([report.answer, *report.tables[0].notes])
    return 0 if verdict == "better" else 1


def _study(
    arguments: argparse.Namespace, script: Path, folders: Mapping[str, Path]
) -> Study:
    from nbkit.launch.program import script as program
    from nbkit.studies.study import Study

    arms = {}
    for name, folder in folders.items():
        # Before an editable installation, which is the same for both.
        path = [str(folder), str(folder / "src"), os.environ.get("PYTHONPATH")]
        arms[name] = program(
            folder / script,
            arguments.script_arguments,
            environment={"PYTHONPATH": os.pathsep.join(filter(None, path))},
            gpus=arguments.gpus,
            device=arguments.device,
        )
    return Study.create(
        f"try {script.stem}",
        arms,
        metric=arguments.metric,
        better=arguments.better,
        margin=arguments.margin,
        repeats=arguments.repeats,
        control="base" if arguments.control else None,
    )


@contextmanager
def _worktrees(top: Path, commits: Mapping[str, str]) -> Iterator[dict[str, Path]]:
    """Check out each commit in a folder of its own, and remove it at the end."""
    with tempfile.TemporaryDirectory(prefix="nbkit-try-") as parent:
        folders = {name: Path(parent) / name for name in commits}
        try:
            for name, commit in commits.items():
                _git(top, "worktree", "add", "--detach", str(folders[name]), commit)
            yield folders
        finally:
            for folder in folders.values():
                if folder.exists():
                    _git(top, "worktree", "remove", "--force", str(folder))


def _commit_of_now(top: Path) -> str:
    """Return a commit, of no branch, with all files as they are but ignored ones."""
    with tempfile.TemporaryDirectory(prefix="nbkit-try-") as folder:
        index = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
        _git(top, "read-tree", "HEAD", variables=index)
        _git(top, "add", "--all", variables=index)
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
    command = ["git", "-C", str(folder), *arguments]
    environment: dict[str, Any] = {**os.environ, **(variables or {})}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        message = "git is not installed. Install it, or use nbkit.Study.create."
        raise ConfigError(message) from None
    if done.returncode:
        message = f"git {' '.join(arguments)} failed in {folder}: {done.stderr.strip()}"
        raise ConfigError(message)
    return done.stdout.strip()
