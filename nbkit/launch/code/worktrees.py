"""A script at two commits of its git repository, each in a folder of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbkit.errors import ConfigError, RunError, StoreError
from nbkit.store.locks import locked
from nbkit.store.paths import trial_lock
from nbkit.store.processes import hostname

_PREFIX = ".nbkit-try-"
"""Of worktrees, as only `nbkit try` makes them."""


@dataclass(frozen=True)
class ScriptChange:
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

    @property
    def trees(self) -> list[str]:
        """Return what names the files of both versions, whatever their commits."""
        commits = (self.base, self.new)
        return [_git(self.top, "rev-parse", f"{commit}^{{tree}}") for commit in commits]

    def to_dict(self) -> dict[str, str]:
        """Return the commits of both versions, as JSON values."""
        return {
            "base_commit": self.base[:7],
            "head_commit": _git(self.top, "rev-parse", "--short", "HEAD"),
            "uncommitted": self.uncommitted,
        }

    def patch(self) -> bytes:
        """Return what leads from the base to the new version."""
        arguments = ("diff", "--binary", "--no-color", "--no-ext-diff")
        return _git_output(self.top, *arguments, self.base, self.new)

    @contextmanager
    def worktrees(self, key: str, *, is_locked: bool) -> Iterator[dict[str, Path]]:
        """Check out both versions, in folders of this name, and remove them at the end.

        Scripts run in them: files that git tracks, such as configurations, are then
        those of their commit. Others are links.

        Parameters
        ----------
        key
            Of the change, this host and this store.
        is_locked
            Whether the caller has the `trial_lock` of this key: then no other process
            uses these folders.

        Raises
        ------
        RunError
            If one of them exists, and may be in use.
        """
        # What the new commit lacks: the index may have more, or less.
        others = ("ls-files", "--others", "--directory", "-z")
        with tempfile.TemporaryDirectory(prefix="nbkit-try-") as temporary:
            index = {"GIT_INDEX_FILE": str(Path(temporary) / "index")}
            _git(self.top, "read-tree", self.new, variables=index)
            names = _names(self.top, *others, variables=index)
        links = [*names, *_submodules(self.top, self.new)]
        # Beside the repository, for paths such as ../data.
        is_writable = os.access(self.top.parent, os.W_OK)
        place = self.top.parent if is_writable else Path(tempfile.gettempdir())
        folders = {name: place / f"{_PREFIX}{name}-{key}" for name in ("base", "new")}
        _remove_abandoned(self.top)
        with ExitStack() as stack:
            for name, folder in folders.items():
                if is_locked:
                    _remove_worktree(self.top, folder)
                _new_folder(folder)
                stack.callback(_remove_worktree, self.top, folder)
                # Twice: git may know one that is gone.
                add = ("worktree", "add", "--force", "--force", "--detach")
                _git(self.top, *add, str(folder), getattr(self, name))
                for path in links:
                    _link(self.top / path, folder / path)
            yield folders


def find_change(script: Path, against: str) -> ScriptChange:
    """Return a script as it is now and at a commit.

    Raises
    ------
    ConfigError
        If there are no two versions of it that can be compared.
    """
    if not script.is_file():
        message = f"{script} is not a file. Pass a Python script in a git repository."
        raise ConfigError(message)
    try:
        top = Path(_git(script.parent, "rev-parse", "--show-toplevel"))
    except _GitError as error:
        message = (
            f"{script} is not in a git repository that git can open ({error.output}). "
            "Create or repair one, or compare two scripts with nbkit.Study.create."
        )
        raise ConfigError(message) from None
    try:
        base = _git(top, "rev-parse", "--verify", f"{against}^{{commit}}")
    except _GitError:
        message = (
            f"against={against!r} is not a commit of {top}. Use one that git log "
            "--oneline lists."
        )
        raise ConfigError(message) from None
    new, path = _commit_working_tree(top), script.relative_to(top)
    remedies = {
        base: f"does not exist at {against}. Use a commit that contains it.",
        new: "is not tracked by git. Add it with git add --force.",
    }
    for commit, remedy in remedies.items():
        try:
            _git(top, "cat-file", "-e", f"{commit}:{path}")
        except _GitError:
            message = f"{path} {remedy}"
            raise ConfigError(message) from None
    if _submodules(top, base) != _submodules(top, new):
        message = (
            f"a submodule of {top} differs from {against}, but its current files would "
            "be used for both versions. Compare two clones with nbkit.Study.create."
        )
        raise ConfigError(message)
    uncommitted = _git(top, "diff", "--shortstat", "HEAD", new)
    return ScriptChange(top, path, base, new, uncommitted)


def _submodules(top: Path, commit: str) -> dict[str, str]:
    """Return the commit of each submodule by its path."""
    lines = _names(top, "ls-tree", "-r", "-z", commit)
    entries = [line.split(None, 3) for line in lines]
    return {path: sha for mode, _, sha, path in entries if mode == "160000"}


def _new_folder(folder: Path) -> None:
    try:
        folder.mkdir(0o700)
    except FileExistsError:
        message = (
            f"{folder} exists: another process may be measuring this change. Wait for "
            "it, or remove the folder."
        )
        raise RunError(message) from None


def _remove_abandoned(top: Path) -> None:
    """Remove worktrees of processes that were killed."""
    lines = _git(top, "worktree", "list", "--porcelain").splitlines()
    for folder in (Path(line[9:]) for line in lines if line.startswith("worktree ")):
        lock = trial_lock(hostname(), folder.name.rpartition("-")[2])
        # Without one, it is of another host or store.
        if folder.name.startswith(_PREFIX) and lock.is_file():
            with suppress(StoreError), locked(lock) as is_locked:
                if is_locked:
                    _remove_worktree(top, folder)


def _remove_worktree(top: Path, folder: Path) -> None:
    with suppress(_GitError):  # git does not know it
        # Twice: it may have been killed while git made it.
        _git(top, "worktree", "remove", "--force", "--force", str(folder))
    shutil.rmtree(folder, ignore_errors=True)


def _link(original: Path, copy: Path) -> None:
    """Link what a copy lacks; in a folder that it has, what that lacks."""
    # Two versions of a module would share the first.
    if original.name in ("__pycache__", ".git"):
        return
    if not os.path.lexists(copy):
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.symlink_to(original)
    elif original.is_dir() and copy.is_dir() and not copy.is_symlink():
        for child in original.iterdir():
            _link(child, copy / child.name)


def _commit_working_tree(top: Path) -> str:
    """Return a commit, of no branch: tracked files as they are, and new Python files.

    Other new files, such as an environment or what a training has written, are no
    change.
    """
    with tempfile.TemporaryDirectory(prefix="nbkit-try-") as folder:
        index = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
        _git(top, "read-tree", "HEAD", variables=index)
        _git(top, "add", "--update", variables=index)
        new = ("ls-files", "--others", "--exclude-standard", "-z", "--", "*.py")
        folders = ("site-packages", "lib*/python3*")
        installed = [f":(exclude,glob)**/{folder}/**" for folder in folders]
        names = _names(top, *new, *installed, variables=index)
        _git(top, "update-index", "--add", "--", *names, variables=index)
        tree = _git(top, "write-tree", variables=index)
    author = {
        f"GIT_{role}_{part}": "nbkit"
        for role in ("AUTHOR", "COMMITTER")
        for part in ("NAME", "EMAIL")
    }
    message = ("-m", "nbkit try: files as they were", "-p", "HEAD")
    return _git(top, "commit-tree", tree, *message, variables=author)


def _names(
    folder: Path, *arguments: str, variables: Mapping[str, str] | None = None
) -> list[str]:
    """Return what git lists with a NUL after each."""
    output = _git_output(folder, *arguments, variables=variables)
    return os.fsdecode(output).split("\0")[:-1]


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

    def __init__(self, folder: Path, arguments: Sequence[str], output: str) -> None:
        super().__init__(f"git {' '.join(arguments)} failed in {folder}: {output}")
        self.output = output
