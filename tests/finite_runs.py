"""Every training that a test runs to its end has to be finite, unless the test says so.

A training whose loss is not a number finishes like any other one, and tests of other
things pass over it. So each test looks at the runs in its temporary folders afterwards.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

MARKER = "nonfinite"

# A store lies in the test's folder, or in one below it: tmp/lab/store/runs.
_DEPTH = 2


class FiniteRuns:
    """What pytest's temporary folders hold, looked at once for each run."""

    def __init__(self, folders: list[Path]) -> None:
        self.folders = folders
        self._seen: set[Path] = set()

    def check(self, folders: Iterable[Path], *, excused: bool) -> None:
        """Fail if a finished training in these folders is not finite.

        Those that a test means are excused, and not looked at again.
        """
        found: list[str] = []
        for run in _runs_in(folders):
            if run not in self._seen and _is_finished_training(run):
                self._seen.add(run)
                if not excused and (what := _not_finite(run)):
                    found.append(f"{run}: {what}")
        if found:
            pytest.fail(
                "a training was not finite; lower its learning rate, or mark a test "
                f"that means it as {MARKER}: {'; '.join(found)}",
                pytrace=False,
            )


def _runs_in(folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        for runs in _named_runs(folder, _DEPTH):
            with suppress(OSError):
                yield from runs.iterdir()


def _named_runs(folder: Path | str, depth: int) -> Iterator[Path]:
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name == "runs":
                    yield Path(entry)
                elif depth:
                    yield from _named_runs(entry.path, depth - 1)


def _is_finished_training(run: Path) -> bool:
    worker = _read(run / "worker.json")
    if worker.get("task") != "train" or not worker.get("completed"):
        return False
    if not (run / "record.json").is_file():
        return True  # it ran in the test's own process
    # A run that a test has written by hand has no processes.
    return _read(run / "record.json").get("state") == "finished" and any(
        run.glob("logs/*/*/process.json")
    )


def _not_finite(run: Path) -> str | None:
    worker = _read(run / "worker.json")
    if worker.get("nonfinite"):
        return f"worker.json says {worker['nonfinite']}"
    if worker.get("weights_finite") is False:
        return "weights_finite is false"
    for text in (run / "metrics.jsonl").read_text().splitlines():
        line = json.loads(text)
        if line["kind"] in ("step", "evaluation") and line["loss"] is None:
            return f"{line['kind']} {line['step']} has no loss"
    return None


def _read(path: Path) -> dict[str, Any]:
    """Return an object; an empty one for a file that is missing, damaged or a pipe."""
    with suppress(OSError, ValueError):
        if path.is_file() and isinstance(found := json.loads(path.read_text()), dict):
            return found
    return {}
