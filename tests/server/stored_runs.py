"""Runs in the store as files alone: nothing of them has to run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from nbkit.store.processes import ProcessIdentity


def store_run(
    store: Path, run_id: str, state: str = "finished", **config: object
) -> Path:
    """Write the files of a run; of one under way this process is the supervisor."""
    me = ProcessIdentity.of().to_dict()
    submission = {"attempt": 0, "supervisor": me, "owner": me}
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
    (folder / "config.json").write_text(
        json.dumps({"steps": 10, "engine": "local", **config})
    )
    return folder


def write_scalars(folder: Path, tag: str, values: Sequence[float]) -> None:
    """Write a run's event file, as a training run does."""
    writer = EventFileWriter(str(folder / "tensorboard"))
    for step, value in enumerate(values):
        summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
        writer.add_event(Event(step=step, wall_time=1577836800 + step, summary=summary))
    writer.close()
