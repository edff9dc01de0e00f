"""The code of a run as it was: the files of its commit, with its saved diff.

They are written into the new run's folder and stay there. The user's checkout, its
index and its branches are only read.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nbkit.errors import RunError
from nbkit.launch.code.entry import RunEntry
from nbkit.reading import can_enter
from nbkit.store.ownership import make_folder
from nbkit.store.stored_runs import StoredRun

_GIT_SECONDS = 600
_UMASK = 0o022
"""The checked out files are executed, so no other user may write them."""


@dataclass(frozen=True)
class Checkout:
    """Where a run's commit can be taken from."""

    repository: Path
    """Top folder of the user's checkout."""
    original: Path
    """The same folder as the run's record calls it."""
    below: str
    """Where the run's folder was, seen from there."""
    commit: str
    diff: Path | None
    """What was not committed; None if all was."""

    @classmethod
    def of(cls, run: StoredRun) -> Checkout:
        """Return where the code of a run is.

        Looked for in the folder in which the run was launched; where that is not on
        this machine, or closed to this user, in the current one.
        """
        code = run.record.get("code") or {}
        commit = str(code.get("commit"))
        # A record may come from anywhere: this must not be an option of git.
        if not re.fullmatch(r"[0-9a-f]{40,64}", commit):
            message = (
                f"Run {run.run_id} has no commit: it was not launched in a "
                "git checkout. Use code='current' to run the present code."
            )
            raise RunError(message)
        launched_in = Path(run.submission.get("cwd") or ".")
        here = launched_in if can_enter(launched_in) else Path.cwd()
        top = _git(here, "rev-parse", "--show-toplevel", run=run)
        below = str(code.get("folder") or "")
        _git(here, "cat-file", "-e", f"{commit}^{{commit}}", run=run)
        original = launched_in
        parts = Path(below).parts
        if parts and launched_in.parts[-len(parts) :] == parts:
            original = launched_in.parents[len(parts) - 1]
        diff = code.get("diff")
        saved = run.paths.root / diff if diff else None
        return cls(Path(top), original, below, commit, saved)

    def write(self, target: Path, run: StoredRun) -> None:
        """Write the files into a folder that does not exist yet."""
        make_folder(target)
        with tempfile.TemporaryDirectory() as folder:
            # A separate index: the user's is not changed.
            index = {"GIT_INDEX_FILE": str(Path(folder, "index"))}
            _git(self.repository, "read-tree", self.commit, run=run, variables=index)
            prefix = f"--prefix={target}{os.sep}"
            arguments = ("checkout-index", "--all", "--force", prefix)
            _git(self.repository, *arguments, run=run, variables=index)
        if self.diff is not None:
            # The store may be in another checkout, which is not this one.
            alone = {"GIT_CEILING_DIRECTORIES": str(target.parent)}
            arguments = ("apply", "--whitespace=nowarn", str(self.diff))
            _git(target, *arguments, run=run, variables=alone)

    def folder(self, target: Path) -> Path:
        """Return where the ranks run: where the original ran, in the files of then."""
        folder = target / self.below
        # A record may come from anywhere, and name any folder.
        is_below = folder.resolve().is_relative_to(target.resolve())
        return folder if is_below and folder.is_dir() else target

    def moved(self, entry: RunEntry, target: Path) -> RunEntry:
        """Return an entry that imports from the files of then.

        What the commit does not have, such as installed packages, stays where it is.
        """
        described: dict[str, Any] = dict(entry.description)
        described["import_path"] = [
            self._moved(path, target) for path in described["import_path"]
        ]
        if "path" in described:
            described["path"] = self._moved(described["path"], target)
        sources: Mapping[str, Any] = described["sources"]
        described["sources"] = {
            self._moved(path, target): source for path, source in sources.items()
        }
        return replace(entry, description=described)

    def _moved(self, path: str, target: Path) -> str:
        for base in (self.original, self.repository):
            if Path(path).is_relative_to(base):
                then = target / Path(path).relative_to(base)
                if then.exists():
                    return str(then)
        return path


def _git(
    folder: Path,
    *arguments: str,
    run: StoredRun,
    variables: Mapping[str, str] | None = None,
) -> str:
    """Return what git says."""
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=folder,
            env={**os.environ, **(variables or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_GIT_SECONDS,
            umask=_UMASK,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        why = error.stderr.strip() or f"exit code {error.returncode}"
    except (OSError, subprocess.SubprocessError) as error:
        why = str(error)
    else:
        return done.stdout.strip("\n")
    message = (
        f"The code of run {run.run_id} cannot be restored from {folder}: git "
        f"{arguments[0]}: {why}. Change to a checkout with its commit, or use "
        "code='current'."
    )
    raise RunError(message)
