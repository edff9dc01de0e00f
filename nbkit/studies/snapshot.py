"""Snapshot of a study and its runs: each file is read once.

All parts of a report then agree on that moment, and a report on a slow file system does
not open the record of a run fifty times.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from nbkit.launch.run import Run
from nbkit.studies.order import Slot
from nbkit.studies.study import Study


class RunSnapshot(Run):
    """A run as its files were when they were first asked for."""

    record = cached_property(Run.record.fget)  # type: ignore[assignment, arg-type]
    submission = cached_property(Run.submission.fget)  # type: ignore[assignment, arg-type]
    worker = cached_property(Run.worker.fget)  # type: ignore[assignment, arg-type]
    state = cached_property(Run.state.fget)  # type: ignore[assignment, arg-type]
    summary = cached_property(Run.summary.fget)  # type: ignore[assignment, arg-type]
    nonfinite = cached_property(Run.nonfinite.fget)  # type: ignore[assignment, arg-type]

    @cached_property
    def _lines(self) -> list[dict[str, Any]]:
        return super().metrics(None)

    def metrics(self, kind: str | None = "step") -> list[dict[str, Any]]:
        """Return lines of one kind, or all of them, as they were."""
        return [line for line in self._lines if kind in (None, line["kind"])]


class StudySnapshot(Study):
    """A study as it was when it was first asked; its runs are the same at each call."""

    @cached_property
    def _content(self) -> dict[str, Any]:  # type: ignore[override]
        return Study._content.fget(self)  # type: ignore[attr-defined]

    @cached_property
    def _slots(self) -> dict[bool, dict[Slot, Run]]:
        return {}

    @cached_property
    def _runs(self) -> dict[Path, RunSnapshot]:
        return {}

    def _finished(self, *, diverged: bool = False) -> dict[Slot, Run]:
        if diverged not in self._slots:
            self._slots[diverged] = {
                slot: self._runs.setdefault(run.paths.root, RunSnapshot(run.paths.root))
                for slot, run in super()._finished(diverged=diverged).items()
            }
        return self._slots[diverged]
