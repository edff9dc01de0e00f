"""A run of which a test writes the files, line by line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from nbkit.launch.run import Run
from nbkit.store.metrics import to_json_line
from nbkit.store.processes import ProcessIdentity

__all__ = ["WrittenRun", "step"]


def step(number: int, attempt: int = 0, **values: Any) -> dict[str, Any]:
    """Return the line of one step: a second for a hundred images."""
    return {
        "kind": "step",
        "attempt": attempt,
        "step": number,
        "loss": 1 / number,
        "images": 100,
        "step_time_seconds": 1.0,
        "data_wait_seconds": 0.25,
        "compute_seconds": 0.5,
        "communication_exposed_seconds": 0.25,
        "warmup": False,
        **values,
    }


class WrittenRun:
    """The files of a run under way, whose supervisor is this process."""

    def __init__(self, store: Path, **config: Any) -> None:
        root = store / "runs" / "20200101-000000-written-aaaa"
        root.mkdir(parents=True)
        self.run = Run(root)
        self._me = ProcessIdentity.of().to_dict()
        self._config = {"steps": 1000, "gpus": 2, "nnodes": 1, **config}
        self.run.paths.config.write_text(json.dumps(self._config))
        self.submit(0)

    def submit(self, attempt: int) -> None:
        """Begin an attempt."""
        values = {"attempt": attempt, "supervisor": self._me, "owner": self._me}
        self.run.paths.submission.write_text(json.dumps(values))
        self.record("running", attempt)

    def record(self, state: str, attempt: int = 0, **values: Any) -> None:
        """Replace the record."""
        whole = {
            "attempt": attempt,
            "state": state,
            "name": "written",
            "supervisor": self._me,
            "time": {"running": "2020-01-01T00:00:00.000Z", "ended": None},
            **values,
        }
        temporary = self.run.paths.record.with_suffix(".new")
        temporary.write_text(json.dumps(whole))
        temporary.replace(self.run.paths.record)

    def append(self, *lines: dict[str, Any]) -> None:
        """Append lines to the metrics."""
        with self.run.paths.metrics.open("a") as file:
            file.writelines(map(to_json_line, lines))

    def print(self, text: str, rank: int = 0, attempt: int = 0) -> None:
        """Append to a rank's standard error."""
        path = self.run.paths.rank(attempt, rank).stderr
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(text)
