"""Git checkouts, with real git."""

from __future__ import annotations

import subprocess
from pathlib import Path

__all__ = ["commit_all", "git"]


def git(folder: Path, *arguments: str) -> str:
    """Return what git says, as an author of commits."""
    author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    command = ["git", *author, *arguments]
    done = subprocess.run(
        command, cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout


def commit_all(top: Path) -> None:
    """Commit all files of a folder, in a repository that may be new."""
    git(top, "init", "-q")
    git(top, "add", ".")
    git(top, "commit", "-qm", "one")
