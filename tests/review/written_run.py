"""Folders of runs on GPUs and large hosts, written by hand as a run writes them.

No GPU was there: what they hold is made up, and shows what a diagnosis does with it.
"""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from nbkit.launch.run import Run
from nbkit.review.diagnosis import diagnose
from nbkit.store.metrics import to_json_line
from nbkit.telemetry.sample import GpuProcess, GpuSample, HostSample, Sample
from tests.widgets.stored_run import WrittenRun, step

__all__ = [
    "A100",
    "STEP_SECONDS",
    "diagnosed",
    "gpu",
    "on_cpus",
    "rank",
    "samples",
    "steps",
    "write_run",
]

STEPS = 60
STEP_SECONDS = 0.5
BEGIN = 1_000.0
PIDS = (4_001, 4_002)
A100 = "NVIDIA A100-SXM4-80GB"

CONFIG = {
    "task": "train",
    "model": "resnet50",
    "precision": "bf16",
    "memory_format": "channels_last",
    "image_size": 224,
    "data": "/images",
    "loader": "torch",
    "loader_config": {"num_workers": 8},
}
MACHINE = {"num_cpus": 64, "usable_cpus": 64}
CPU = {
    "device_type": "cpu",
    "devices": [{"rank": 0, "name": "a CPU", "uuid": None}],
    "world_size": 1,
}


@pytest.fixture
def diagnosed(tmp_path):
    """Return what diagnoses a run without a fault, but for what it is given."""
    stores = count()

    def run(**files):
        return diagnose(write_run(tmp_path / str(next(stores)), **files))

    return run


def on_cpus(*ranks: dict[str, Any], **values: Any) -> dict[str, Any]:
    """Return what a run on CPUs says of its ranks."""
    return {**CPU, "world_size": len(ranks), "ranks": list(ranks), **values}


def rank(number: int, **shares: Any) -> dict[str, Any]:
    """Return what a rank wrote at its end; parts are shares of its time."""
    seconds = STEPS * STEP_SECONDS
    parts = {"data_wait": 0.01, "communication_exposed": 0.03}
    times = {name: shares.pop(name, part) for name, part in parts.items()}
    known = {f"{name}_seconds": part * seconds for name, part in times.items()}
    used = {"cpu": 6.0, "cpu_queue": 0.01}
    known |= {f"{k}_seconds": shares.pop(k, part) * seconds for k, part in used.items()}
    waits = times["data_wait"] + times["communication_exposed"]
    return {
        "rank": number,
        "cpus": list(range(64)),
        "num_cpus": 64,
        "cpu_quota": None,
        "threads": 32,
        "steps": STEPS,
        "images": STEPS * 128,
        "step_time_seconds": seconds,
        "compute_seconds": (1 - waits) * seconds,
        **known,
        **shares,
    }


def gpu(index: int, **values: Any) -> GpuSample:
    """Return a reading of a busy GPU with full clocks."""
    defaults: dict[str, Any] = {
        "gpu_utilization_percent": 98,
        "sm_clock_mhz": 1_400,
        "clock_event_reasons": (),
        "processes": (GpuProcess(PIDS[index], 10 << 30),),
    }
    return GpuSample(index, uuid=f"GPU-{index}", **(defaults | values))


def samples(*gpus: GpuSample, cpu_percent: float = 20.0) -> list[dict[str, Any]]:
    """Return a header and a sample for every second of the steps, all alike."""
    devices = [
        {"index": n, "uuid": f"GPU-{n}", "sm_clock_max_mhz": 1_410} for n in (0, 1)
    ]
    lines: list[dict[str, Any]] = [{"kind": "header", "devices": devices}]
    for second in range(int(STEPS * STEP_SECONDS) + 1):
        host = HostSample(cpu_percent=cpu_percent)
        one = Sample(t=BEGIN + second, gpus=gpus or (gpu(0), gpu(1)), host=host)
        lines.append({"kind": "sample", **one.to_dict()})
    return lines


def write_run(
    store: Path,
    *,
    state: str = "finished",
    config: dict[str, Any] | None = None,
    worker: dict[str, Any] | None = None,
    record: dict[str, Any] | None = None,
    lines: list[dict[str, Any]] | None = None,
    sampled: list[dict[str, Any]] | None = None,
) -> Run:
    """Write a run of two GPUs on which nothing is wrong, but for what is given."""
    written = WrittenRun(store, **(CONFIG | (config or {})))
    machine = {"machine": MACHINE, "system": None}
    written.record(state, **(machine | (record or {})))
    told = {
        "device_type": "cuda",
        "devices": [
            {"rank": n, "name": A100, "uuid": f"GPU-{n}", "compute_capability": [8, 0]}
            for n in (0, 1)
        ],
        "world_size": 2,
        "batch_size_per_gpu": 128,
        "ranks": [rank(0), rank(1)],
        **(worker or {}),
    }
    paths = written.run.paths
    paths.worker.write_text(json.dumps(told))
    written.append(*(steps() if lines is None else lines))
    for number, pid in enumerate(PIDS):
        process = paths.rank(0, number).process
        process.parent.mkdir(parents=True, exist_ok=True)
        process.write_text(json.dumps({"pid": pid}))
    (paths.root / "system").mkdir()
    text = "".join(map(to_json_line, samples() if sampled is None else sampled))
    paths.system("node1").write_text(text)
    return written.run


def steps(**shares: float) -> list[dict[str, Any]]:
    """Return the lines of rank 0, with parts as shares of each step."""
    parts = {"data_wait": 0.01, "communication_exposed": 0.03, "update": 0.02, **shares}
    times = {f"{name}_seconds": part * STEP_SECONDS for name, part in parts.items()}
    return [
        step(
            number,
            t=BEGIN + number * STEP_SECONDS,
            step_time_seconds=STEP_SECONDS,
            **times,
        )
        for number in range(1, STEPS + 1)
    ]
