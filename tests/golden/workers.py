"""What the ranks of a written run know: ``worker.json``."""

from __future__ import annotations

from typing import Any

from nbkit.config import ExperimentConfig
from tests.golden.hosts import Host
from tests.golden.outcome import Outcome, batch_of, epoch_steps

__all__ = ["worker_of"]


def worker_of(
    config: ExperimentConfig,
    host: Host,
    outcome: Outcome,
    lines: list[dict[str, Any]],
) -> dict[str, Any]:
    """Return what only the ranks know."""
    size = config.world_size
    device_type = "cuda" if host.gpus else "cpu"
    devices = [host.rank_device(outcome.first_gpu + rank) for rank in range(size)]
    batch = batch_of(config)
    synthetic = {
        "loader": "synthetic",
        "train_images": 1_281_152,
        "dropped_images": 15,
        "evaluation_images": 64_058,
        "fingerprint": {
            "source": "synthetic",
            "seed": config.seed,
            **dict.fromkeys(("kind", "files", "bytes", "sha256")),
        },
        "unreadable": None,
    }
    measured = [x for x in lines if x["kind"] == "step" and not x["warmup"]]
    return {
        "attempt": 0,
        "completed": not outcome.is_stopped,
        "task": config.task,
        "world_size": size,
        "device_type": device_type,
        "devices": [{"rank": rank, **one} for rank, one in enumerate(devices)],
        "bindings": [],
        "batch_size_per_gpu": batch,
        "global_batch_size": batch * size,
        "steps_per_epoch": epoch_steps(config, outcome),
        "data": {**synthetic, **(outcome.data or {})},
        "ranks": [_rank(host, rank, config, outcome, measured) for rank in range(size)]
        if measured
        else [],
        "weights_finite": outcome.nonfinite is None,
        "nonfinite": None if outcome.nonfinite is None else outcome.nonfinite.to_dict(),
        "weights": {"source": "random", "seed": config.seed},
        "numbers": {"batch_norm": "native"},
        **host.software,
        **outcome.worker,
    }


def _rank(
    host: Host,
    rank: int,
    config: ExperimentConfig,
    outcome: Outcome,
    measured: list[dict[str, Any]],
) -> dict[str, Any]:
    total = sum(line["step_time_seconds"] for line in measured)
    images = len(measured) * batch_of(config)
    communication_share = outcome.communication_share if config.world_size > 1 else 0.0
    if outcome.straggler is not None:
        communication_share = (
            0.0 if rank == outcome.straggler else communication_share + 0.17
        )
    on_gpu = bool(host.gpus)
    usable = config.cpus or range(host.cpus)
    share = max(1, len(usable) // config.world_size)
    return {
        "rank": rank,
        "node": None,
        "device": host.rank_device(outcome.first_gpu + rank),
        "cpus": [*usable[rank * share : (rank + 1) * share]],
        "threads": share,
        "steps": len(measured),
        "step_time_seconds": round(total, 6),
        "data_wait_seconds": round(outcome.data_wait_share * total, 6),
        "compute_seconds": round(
            (1 - outcome.data_wait_share - communication_share) * total, 6
        ),
        "communication_exposed_seconds": round(communication_share * total, 6),
        "images": images,
        "cpu_seconds": round(images * outcome.cpu_ms_per_image / 1e3, 6),
        "cpu_queue_seconds": round(0.001 * total, 6),
        "peak_memory_allocated_bytes": outcome.memory_bytes if on_gpu else None,
        "peak_memory_reserved_bytes": outcome.memory_bytes + (1 << 30)
        if on_gpu
        else None,
        "peak_rss_bytes": (3 << 30) if on_gpu else outcome.memory_bytes,
    }
