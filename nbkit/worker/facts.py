"""`worker.json`: facts that only a torch process knows, written by rank 0."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from nbkit.config import ExperimentConfig
from nbkit.errors import DeviceError
from nbkit.plural import plural
from nbkit.reading import retry_io
from nbkit.store.nonfinite import NonFinite
from nbkit.store.record import write_json
from nbkit.telemetry.cpus import cpu_quota
from nbkit.telemetry.machine import cpu_model
from nbkit.worker.rank import Rank
from nbkit.worker.usage import peak_memory

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist

    from nbkit.worker.data import Data
    from nbkit.worker.metrics_log import MeasuredCounts


def write_facts(
    rank: Rank,
    config: ExperimentConfig,
    device: torch.device | None,
    group: dist.ProcessGroup | None,
    data: Data | None,
    batch_size_per_gpu: int | None,
    *,
    completed: bool,
    ended_by: str | None = None,
    source: dict[str, Any] | None = None,
    window: MeasuredCounts | None = None,
    weights_finite: bool | None = None,
    nonfinite: NonFinite | None = None,
    weights: dict[str, Any] | None = None,
    numbers: dict[str, Any] | None = None,
    answers_stop: bool = False,
) -> None:
    """Gather every rank's facts; rank 0 writes them. Called by all ranks."""
    mine = {
        "rank": rank.rank,
        # What a scheduler calls the node; None on the only machine of a run.
        "node": os.environ.get("NBKIT_NODE"),
        "binding": rank.binding and asdict(rank.binding),
        "device": _device(device),
        "cpus": sorted(os.sched_getaffinity(0)),
        "num_cpus": os.cpu_count(),
        "cpu_quota": cpu_quota(),
    }
    if device is not None and window is not None:
        mine |= {"threads": sys.modules["torch"].get_num_threads()}
        mine |= {**window.to_dict(), **peak_memory(device)}
    ranks = [mine]
    if group is not None:
        from nbkit.worker.distributed import gather

        ranks = gather(mine, rank, group)
    uuids = [entry["device"]["uuid"] for entry in ranks if entry["device"]["uuid"]]
    if len(set(uuids)) < len(uuids) and not config.oversubscribe:
        message = (
            f"{len(uuids)} ranks share {plural(len(set(uuids)), 'GPU')} (limit: one "
            "rank per GPU). Use fewer ranks or oversubscribe=True."
        )
        raise DeviceError(message)
    if rank.rank != 0:
        return
    # Apart from `ranks`, which only a run that got to its end has.
    bindings = [
        {"rank": entry["rank"], **binding}
        for entry in ranks
        if (binding := entry.pop("binding"))
    ]
    per_step = (batch_size_per_gpu or 0) * config.gradient_accumulation_steps
    facts = {
        "attempt": rank.attempt,
        "completed": completed,
        "ended_by": ended_by,
        "task": config.task,
        "world_size": rank.world_size,
        "device_type": "cpu" if device is None else device.type,
        "devices": [{"rank": entry["rank"], **entry["device"]} for entry in ranks],
        "bindings": bindings,
        "batch_size_per_gpu": batch_size_per_gpu,
        "global_batch_size": per_step * rank.world_size or None,
        "steps_per_epoch": data.steps_per_epoch if data else None,
        "data": {**data.describe(), **(source or {})} if data else None,
        "ranks": ranks if window is not None else None,
        "weights_finite": weights_finite,
        "nonfinite": None if nonfinite is None else nonfinite.to_dict(),
        "weights": weights,
        "numbers": numbers,
        **({"answers_stop": True} if answers_stop else {}),
        **_software(device),
    }
    retry_io(lambda: write_json(rank.paths.worker, facts))


def _device(device: torch.device | None) -> dict[str, Any]:
    if device is None or device.type == "cpu":
        return {"name": cpu_model(), "uuid": None}
    import torch

    properties = torch.cuda.get_device_properties(device)
    return {
        "name": properties.name,
        "uuid": _uuid(device, properties.uuid),
        "compute_capability": [properties.major, properties.minor],
        "memory_total_bytes": properties.total_memory,
    }


def _uuid(device: torch.device, uuid: object) -> str:
    """Return the name of a GPU or MIG instance, as the driver and the pool call it."""
    # torch tells it without the prefix, and of an instance, by the version of CUDA, its
    # own or its GPU's. A process that may use an instance was given its name.
    entries = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    entry = dict(enumerate(entries)).get(device.index or 0, "").strip()
    return entry if entry.startswith("MIG-") else f"GPU-{uuid}"


def _software(device: torch.device | None) -> dict[str, Any]:
    """Return the versions of what has been imported; None is not there, or not used."""
    torch = sys.modules.get("torch")
    group = sys.modules.get("torch.distributed")
    unknown = ("cuda", "cudnn", "nccl", "cudnn_benchmark", "cudnn_benchmark_limit")
    of_gpus: dict[str, Any] = dict.fromkeys((*unknown, "tf32"))
    if torch and device is not None and device.type == "cuda":
        cudnn = torch.backends.cudnn
        of_gpus = {
            "cuda": torch.version.cuda,
            "cudnn": cudnn.version(),
            "nccl": ".".join(map(str, torch.cuda.nccl.version())),
            "cudnn_benchmark": cudnn.benchmark,
            "cudnn_benchmark_limit": cudnn.benchmark_limit if cudnn.benchmark else None,
            "tf32": is_tf32(torch.backends.cuda.matmul),
        }
    return {
        "backend": group.get_backend() if group and group.is_initialized() else None,
        "torch": torch and torch.__version__,
        **of_gpus,
    }


def is_tf32(switches: Any) -> bool | None:
    """Return whether products use TF32; None if torch does not say."""
    # A user's function may have written the newer switch (from torch 2.9 on), after
    # which reading the older one is an error.
    try:
        if precision := getattr(switches, "fp32_precision", None):
            return precision == "tf32"
        return switches.allow_tf32
    except (AttributeError, RuntimeError):
        return None
