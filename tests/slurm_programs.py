"""Stand-ins for Slurm's programs: they print what they are told, and count."""

from __future__ import annotations

from pathlib import Path

import pytest

from nbkit.store import jobs

__all__ = ["SlurmPrograms"]

# Builtins of the shell alone: PATH leads to no other program.
_SCRIPT = """#!/bin/sh
printf '%s\\n' "$*" >>"{calls}"
{also}
while IFS= read -r line; do printf '%s\\n' "$line"; done <"{answer}"
printf '%s' "{words}" >&2
exit {status}
"""


class SlurmPrograms:
    """A PATH on which there is a Slurm of the test's, or none."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._folder = folder / "slurm"
        self._folder.mkdir()
        patch.setenv("PATH", str(self._folder))
        patch.setattr(jobs, "clusters", {})
        # These answer: a reader that goes on without them has met a busy machine.
        patch.setattr(jobs, "PATIENCE_SECONDS", 60.0)

    def tell(
        self,
        program: str,
        *lines: str,
        also: str = "",
        status: int = 0,
        words: str = "",
    ) -> None:
        """Let a program print lines from now on."""
        answer = self._folder / f"{program}.answer"
        answer.write_text("".join(f"{line}\n" for line in lines))
        calls = self._folder / f"{program}.calls"
        path = self._folder / program
        text = _SCRIPT.format(
            calls=calls, answer=answer, also=also, status=status, words=words
        )
        # Replaced as a whole: it may be running.
        new = self._folder / f"{program}.new"
        new.write_text(text)
        new.chmod(0o755)
        new.replace(path)

    def calls(self, program: str) -> list[str]:
        """Return the arguments of every call so far."""
        try:
            return (self._folder / f"{program}.calls").read_text().splitlines()
        except FileNotFoundError:
            return []
