"""The folder of a training that was evaluated, written by hand as a run writes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from nbkit.launch.run import Run
from tests.widgets.stored_run import WrittenRun, step

__all__ = ["BEGIN", "trained_run"]

BEGIN = 1_577_836_830.0
"""When the first image is asked for: 2020-01-01T00:00:30Z."""

STARTED = "2020-01-01T00:00:10.000Z"
STEPS_PER_EPOCH = 10


def trained_run(
    store: Path,
    accuracies: dict[int, float],
    *,
    epochs: int | None = None,
    evaluation_seconds: float = 4.0,
    noticed_late: float = 0.0,
    worker: dict[str, Any] | None = None,
    record: dict[str, Any] | None = None,
    **config: Any,
) -> Run:
    """Write a run of ten steps an epoch, a second and a hundred images each.

    Accuracies are by the epoch behind which they were found.
    """
    fields = {"model": "resnet50", "target_accuracy": 0.759, "seed": 3, "gpus": 1}
    fields |= {"evaluation_period_epochs": 1, "steps": None, "epochs": 37}
    written = WrittenRun(store, **{**fields, **config})
    times = {"started": STARTED, "running": STARTED, "ended": "2020-01-01T01:00:00Z"}
    written.record("finished", **{"time": times, **(record or {})})
    data = {"train_images": 1_000, "dropped_images": 0, "evaluation_images": 100}
    told = {
        "device_type": "cuda",
        "devices": [{"rank": 0, "name": "NVIDIA A100-SXM4-80GB", "uuid": "GPU-0"}],
        "world_size": 1,
        "batch_size_per_gpu": 100,
        "global_batch_size": 100,
        "steps_per_epoch": STEPS_PER_EPOCH,
        "data": {"loader": "torch", **data},
    }
    paths = written.run.paths
    paths.worker.write_text(json.dumps({**told, **(worker or {})}))
    now, number = BEGIN, 0
    for epoch in range(1, (epochs or max(accuracies)) + 1):
        for _ in range(STEPS_PER_EPOCH):
            now, number = now + 1.0, number + 1
            # The last step before an evaluation is waited for, and no other.
            is_last = number % STEPS_PER_EPOCH == 0 and epoch in accuracies
            at = now if is_last else now + noticed_late
            written.append(step(number, t=at, epoch=epoch - 1))
        if epoch in accuracies:
            now += evaluation_seconds
            written.append(
                {
                    "kind": "evaluation",
                    "attempt": 0,
                    "step": number,
                    "epoch": epoch,
                    "t": now,
                    "images": 100,
                    "top1_accuracy": accuracies[epoch],
                    "duration_seconds": evaluation_seconds,
                }
            )
    return written.run
