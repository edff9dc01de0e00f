"""A study of which a test writes the runs' folders, as their processes would."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from nbkit.config import ExperimentConfig
from nbkit.launch.run import Run
from nbkit.store.metrics import to_json_line
from nbkit.store.nonfinite import NonFinite
from nbkit.store.processes import ProcessIdentity
from nbkit.store.stored_runs import create_run_folder
from nbkit.studies.study import Study

__all__ = ["write_runs"]

STEPS = 20


def write_runs(
    study: Study,
    rates: Mapping[str, float],
    lost: Mapping[str, NonFinite] | None = None,
    ended: Sequence[str] = (),
    lines: Sequence[dict[str, Any]] = (),
) -> None:
    """Write a run for every start; the second of a lost arm stops being finite."""
    entries = []
    for slot in study.order:
        is_last = slot.repeat == min(1, study.repeats - 1)
        found = (lost or {}).get(slot.arm) if is_last else None
        config = study.arms[slot.arm]
        rate = rates[slot.arm] * (1 + 0.001 * slot.repeat)
        tags = {"study": study.study_id, "arm": slot.arm, "repeat": str(slot.repeat)}
        beside = [a for one in study.concurrent if slot.arm in one for a in one]
        tags |= {"concurrent": "; ".join(beside)} if beside else {}
        run = _write(config, rate, found, slot.arm in ended, tags, lines)
        entry = {"arm": slot.arm, "repeat": slot.repeat, "run_id": run.run_id}
        entries.append({**entry, "start": slot.repeat})
    content = json.loads(study.paths.study.read_text())
    study.paths.study.write_text(json.dumps({**content, "runs": entries}))


def _write(
    config: ExperimentConfig,
    rate: float,
    found: NonFinite | None,
    is_ended: bool,
    tags: dict[str, str],
    lines: Sequence[dict[str, Any]],
) -> Run:
    paths = create_run_folder(config)
    me = ProcessIdentity.of().to_dict()
    ended = found if is_ended else None
    images = config.batch_size_per_gpu * config.world_size
    told = None if found is None else found.to_dict()
    seconds = images / rate
    steps = [
        {
            "kind": "step",
            "attempt": 0,
            "step": number,
            "epoch": 0,
            "loss": None if found and number >= found.step else 2.0 - 0.01 * number,
            "images": images,
            "step_time_seconds": seconds,
            "data_wait_seconds": 0.01 * seconds,
            "compute_seconds": 0.97 * seconds,
            "communication_exposed_seconds": 0.02 * seconds,
            "warmup": number <= config.num_warmup_steps,
            "t": 1_577_836_800 + number * seconds,
        }
        for number in range(1, 1 + (STEPS if ended is None else ended.step))
    ]
    event = {"kind": "nonfinite", "attempt": 0, "t": 1.0}
    every = [*steps, *lines, *([] if told is None else [{**event, **told}])]
    paths.metrics.write_text("".join(map(to_json_line, every)))
    worker = {
        "task": config.task,
        "completed": ended is None,
        "device_type": "cpu",
        "devices": [{"rank": 0, "name": "a CPU", "uuid": None}],
        "world_size": config.world_size,
        "batch_size_per_gpu": config.batch_size_per_gpu,
        "global_batch_size": images,
        "weights_finite": found is None,
        "nonfinite": told,
        "ranks": [],
    }
    paths.worker.write_text(json.dumps(worker))
    message = f"{ended}; lower learning_rate={config.learning_rate:g}"
    cause = {"kind": "nonfinite", "rank": 0, "message": message, "log": None}
    record = {
        "attempt": 0,
        "state": "finished" if ended is None else "failed",
        "cause": None if ended is None else cause,
        "name": config.name,
        "supervisor": me,
        "tags": tags,
        "worker": worker,
        "launch": {"device_type": "cpu", "devices": []},
        "time": {
            "started": "2020-01-01T00:00:00.000Z",
            "ended": "2020-01-01T00:10:00.000Z",
        },
    }
    paths.record.write_text(json.dumps(record))
    submission = {"attempt": 0, "supervisor": me, "owner": me, "tags": tags}
    paths.submission.write_text(json.dumps(submission))
    return Run(paths.root)
