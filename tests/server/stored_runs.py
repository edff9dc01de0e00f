"""Runs in the store as files alone: nothing of them has to run."""

from __future__ import annotations

import json
from pathlib import Path

from nbkit.store.processes import ProcessIdentity


def store_run(
    store: Path, run_id: str, state: str = "finished", **config: object
) -> Path:
    """Write the files of a run; of one under way this process is the supervisor."""
    me = ProcessIdentity.of().to_dict()
    submission = {"attempt": 0, "supervisor": me, "owner": me, "devices": []}
    record = {
        "attempt": 0,
        "state": state,
        "name": "a run",
        "supervisor": me,
        "time": {"started": "2020-01-01T00:00:00.000Z", "ended": None},
    }
    folder = store / "runs" / run_id
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "submission.json").write_text(json.dumps(submission))
    (folder / "record.json").write_text(json.dumps(record))
    (folder / "config.json").write_text(json.dumps({"steps": 10, **config}))
    return folder
