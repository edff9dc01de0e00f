"""Folders of runs that no machine made, as a run of this version writes them."""

from __future__ import annotations

import datetime
import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nbkit.config import ExperimentConfig
from nbkit.store.metrics import to_json_line
from nbkit.store.paths import RunPaths
from nbkit.store.predictions import write_predictions
from tests.golden.hosts import PACKAGES, Host
from tests.golden.outcome import Outcome, Start, batch_of, epoch_steps
from tests.golden.samples import system_of, write_samples
from tests.golden.workers import worker_of

__all__ = ["write_run"]

STARTUP_SECONDS = 4.0
MESSAGE_BYTES = (1 << 10, 1 << 16, 1 << 22, 1 << 28)


def write_run(
    store: Path, config: ExperimentConfig, host: Host, start: Start, outcome: Outcome
) -> None:
    """Write the folder of a run that has ended."""
    paths = RunPaths(store / "runs" / start.run_id)
    paths.root.mkdir(parents=True)
    paths.config.write_text(config.to_json() + "\n", encoding="utf-8")
    drawn = random.Random(f"{start.study_id}/{start.arm}/{start.repeat}")
    lines, seconds = _LINES.get(config.task, step_lines)(config, start, outcome, drawn)
    paths.metrics.write_text("".join(map(to_json_line, lines)))
    begin = start.begin + outcome.delay_seconds
    end = begin + STARTUP_SECONDS + seconds + 1.0
    worker = worker_of(config, host, outcome, lines)
    _write(paths.worker, worker)
    for rank in range(config.world_size):
        process = paths.rank(0, rank).process
        process.parent.mkdir(parents=True)
        _write(process, {"pid": 4_001 + rank, "host": host.name})
    write_samples(paths.system(host.name), config, host, outcome, begin, end)
    identity = {"pid": 4_000, "start_ticks": 1, "host": host.name, "boot_id": "written"}
    tags = {**outcome.tags, **start.tags}
    _write(
        paths.submission,
        {
            "attempt": 0,
            "time": utc(begin - 1),
            "name": config.name,
            "engine": config.engine,
            "supervisor": identity,
            "job": None,
            "owner": identity,
            "on_owner_exit": "stop",
            "tags": tags,
            "device_type": worker["device_type"],
        },
    )
    ended = outcome.nonfinite if outcome.is_stopped else None
    cause = {"kind": "nonfinite", "rank": 0, "message": str(ended), "log": None}
    _write(
        paths.record,
        {
            "schema": "nbkit.run/1",
            "run_id": start.run_id,
            "name": config.name,
            "state": "finished" if ended is None else "failed",
            "cause": None if ended is None else cause,
            "attempt": 0,
            "supervisor": identity,
            "time": {
                "submitted": utc(begin - 1),
                "started": utc(begin),
                "running": utc(begin + STARTUP_SECONDS),
                "ended": utc(end),
            },
            "queue": None,
            "launch": {
                "engine": config.engine,
                "owner": identity,
                "on_owner_exit": "stop",
                "device_type": worker["device_type"],
                "cpus_per_rank": max(1, host.cpus // config.world_size),
                "devices": [
                    host.uuid(outcome.first_gpu + rank)
                    for rank in range(config.world_size)
                    if host.gpus
                ],
                "oversubscribed": False,
                "replayed": False,
            },
            "parameter_sources": {},
            "tags": tags,
            "determinism": {"seed": config.seed, "deterministic": config.deterministic},
            "code": {"commit": "0" * 40, "branch": "main", "dirty": False},
            "environment": {"python": "3.12.11", "packages": PACKAGES, "variables": {}},
            "machine": host.machine,
            "storage": None
            if outcome.data is None
            else {"path": config.data, "file_system": "ext4"},
            "worker": worker,
            "system": system_of(config, host, outcome, end - begin),
        },
    )
    if outcome.predictions is not None:
        write_predictions(paths.predictions, outcome.predictions)


def step_lines(
    config: ExperimentConfig, start: Start, outcome: Outcome, drawn: random.Random
) -> tuple[list[dict[str, Any]], float]:
    """Return the lines of a run with steps, and how long it was at them."""
    images = batch_of(config) * config.world_size
    per_epoch = epoch_steps(config, outcome)
    count = config.steps or (config.epochs or 1) * per_epoch
    if outcome.is_stopped and outcome.nonfinite is not None:
        count = outcome.nonfinite.step
    communication_share = outcome.communication_share if config.world_size > 1 else 0.0
    typical = images / outcome.rate * (1 + outcome.noise * drawn.uniform(-1, 1))
    begin = now = start.begin + outcome.delay_seconds + STARTUP_SECONDS
    lines: list[dict[str, Any]] = []
    for number in range(1, count + 1):
        slow = 3.0 if number == 1 else 1.0
        seconds = round(slow * typical * (1 + outcome.noise * drawn.gauss(0, 1)), 6)
        now += seconds
        is_lost = outcome.nonfinite is not None and number >= outcome.nonfinite.step
        loss = outcome.loss * (0.3 + 0.7 / (1 + 0.05 * (number - 1)))
        line = {
            "kind": "step",
            "attempt": 0,
            "epoch": (number - 1) // per_epoch,
            "step": number,
            "t": round(now, 4),
            "loss": None if is_lost else round(loss + 0.01 * drawn.gauss(0, 1), 4),
            "learning_rate": config.learning_rate,
            "images": images,
            "step_time_seconds": seconds,
            "data_wait_seconds": round(outcome.data_wait_share * seconds, 6),
            "compute_seconds": round(
                (1 - outcome.data_wait_share - communication_share) * seconds, 6
            ),
            "communication_exposed_seconds": round(communication_share * seconds, 6),
            "update_seconds": round(0.02 * seconds, 6),
            "warmup": number <= config.num_warmup_steps,
        }
        if config.precision == "fp16":
            line |= {"loss_scale": 65_536.0, "update_skipped": number == 1}
        lines.append(line)
        if outcome.evaluate is not None and number % per_epoch == 0:
            now = _evaluate(config, outcome, lines, number // per_epoch, now)
            if lines[-1].get("top1_accuracy", 0) >= (config.target_accuracy or 2):
                break
    if outcome.evaluate is not None and config.steps:
        now = _evaluate(config, outcome, lines, count // per_epoch, now)
    if outcome.nonfinite is not None:
        event = {"kind": "nonfinite", "attempt": 0, "t": round(now, 4)}
        lines.append({**event, **outcome.nonfinite.to_dict()})
    return lines, now - begin


def _evaluate(
    config: ExperimentConfig,
    outcome: Outcome,
    lines: list[dict[str, Any]],
    epochs: int,
    now: float,
) -> float:
    """Add the evaluation that is due after some epochs; return when it ended."""
    period, offset = config.evaluation_period_epochs, config.evaluation_offset_epochs
    is_due = epochs == config.epochs or not (epochs - offset) % (period or 1)
    is_due = is_due or bool(config.steps)
    if outcome.evaluate is None or not is_due:
        return now
    event = {"kind": "evaluation", "attempt": 0, "step": lines[-1]["step"]}
    after = {"epoch": epochs, "t": round(now + 0.8, 4), "duration_seconds": 0.8}
    lines.append({**event, **after, **outcome.evaluate(epochs)})
    return now + 0.8


def _allreduce_lines(
    config: ExperimentConfig, start: Start, outcome: Outcome, drawn: random.Random
) -> tuple[list[dict[str, Any]], float]:
    """Return the lines of an all-reduce, of which `rate` is the bus bandwidth."""
    begin = now = start.begin + STARTUP_SECONDS
    lines = []
    for number, size in enumerate(MESSAGE_BYTES, start=1):
        ranks = config.world_size
        typical = 2e-5 + size / outcome.rate * 2 * (ranks - 1) / ranks
        times = [round(typical * drawn.uniform(0.98, 1.1), 8) for _ in range(20)]
        now += sum(times)
        line = {"kind": "allreduce", "attempt": 0, "step": number, "t": round(now, 4)}
        sizes = {"world_size": ranks, "message_bytes": size}
        lines.append({**line, **sizes, "times_seconds": times})
    return lines, now - begin


def _inference_lines(
    config: ExperimentConfig, start: Start, outcome: Outcome, drawn: random.Random
) -> tuple[list[dict[str, Any]], float]:
    """Return the lines of an inference, of which `rate` is that of large batches."""
    settings, on_gpu = config.inference, config.device == "cuda"
    own = 1 + outcome.noise * drawn.uniform(-1, 1)
    begin = now = start.begin + STARTUP_SECONDS
    lines: list[dict[str, Any]] = []
    memory = "peak_memory_allocated_bytes" if on_gpu else "peak_rss_bytes"
    for number, size in enumerate(settings.batch_sizes, start=1):
        typical = own * (0.002 if on_gpu else 0.01) + own * size / outcome.rate
        each = [
            round(typical * (1 + 0.1 * drawn.random() ** 4), 5)
            for _ in range(settings.batches)
        ]
        passes = round(6.0 / typical) if on_gpu else settings.batches
        seconds = round(passes * typical * 0.9, 4) if on_gpu else round(sum(each), 4)
        began = now + (sum(each) if on_gpu else 0.0)
        now = began + seconds
        lines.append(
            {
                "kind": "inference",
                "attempt": 0,
                "step": number,
                "t": round(now, 4),
                "batch_size": size,
                "warmup_batches": settings.warmup_batches,
                "times_seconds": each,
                "throughput_seconds": seconds,
                "throughput_batches": passes,
                "throughput": "passes in a row" if on_gpu else "batch / mean latency",
                "began": round(began, 4),
                "ended": round(now, 4),
                memory: outcome.memory_bytes + size * (1 << 20),
            }
        )
    if outcome.evaluate is not None:
        event = {"kind": "evaluation", "attempt": 0, "step": len(lines), "epoch": 0}
        lines.append({**event, "t": round(now + 1, 4), **outcome.evaluate(0)})
    return lines, now + 1 - begin


_LINES = {"allreduce": _allreduce_lines, "inference": _inference_lines}


def utc(t: float) -> str:
    """Return a Unix time as records write it."""
    moment = datetime.datetime.fromtimestamp(t, datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _write(path: Path, values: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
