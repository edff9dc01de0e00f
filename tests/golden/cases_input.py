"""Cases of input: storage and input pipelines."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nbkit.config import ExperimentConfig
from nbkit.questions.input_pipeline import planning as input_pipeline_plan
from nbkit.questions.input_pipeline.trials import LoaderSetting, Trial, tune
from nbkit.questions.storage import planning as storage_plan
from nbkit.questions.storage.reads import Reads
from nbkit.questions.study_plan import Plan
from nbkit.readspeed.cache import PageCacheState
from nbkit.readspeed.measuring import Reading, ReadSpeed
from nbkit.readspeed.meter import Interval
from nbkit.studies.parameters import Parameters
from tests.golden.cases_speed import CPU, LOST
from tests.golden.hosts import A100_NODE, CPU_HOST
from tests.golden.outcome import Outcome
from tests.golden.planted import DATA, Planted
from tests.golden.studies import Case

__all__ = ["INPUT"]

COLD = PageCacheState("cold", True, "no page in this machine's memory (mincore)", 0.0)
WARM = PageCacheState("warm", False, "read once before", 1.0)
DOUBTFUL = PageCacheState("not provable", False, "mincore does not tell", None)
BYTES_PER_SECOND = {
    ("sequential", "cold"): 2.1e9,
    ("sequential", "warm"): 8.4e9,
    ("random", "cold"): 1.2e9,
    ("random", "warm"): 5.5e9,
}


def _read(
    place: str, pattern: Any, cache: Any, repeats: int, cold: PageCacheState
) -> Any:
    """Return how fast a place was read."""
    drawn = random.Random(f"{place}/{pattern}/{cache}")
    factor = 1.0 if place == "nas" else 2.5
    operation, total = (512 << 10 if pattern == "sequential" else 112 << 10), 1 << 30
    readings = []
    for number in range(repeats):
        rate = round(
            factor * BYTES_PER_SECOND[pattern, cache] * drawn.uniform(0.97, 1.03)
        )
        intervals = tuple(
            Interval(
                seconds=0.1 * n,
                bytes_per_second=float(rate),
                operations_per_second=rate / operation,
                operation_bytes=float(operation),
            )
            for n in (1, 2, 3)
        )
        readings.append(
            Reading(
                started=f"2026-03-02T09:5{number}:00.000Z",
                seconds=total / rate,
                bytes_per_second=float(rate),
                operations_per_second=rate / operation,
                page_cache=cold if cache == "cold" else WARM,
                device_bytes=total if cache == "cold" else 0,
                intervals=intervals if cache == "cold" else (),
            )
        )
    return ReadSpeed(
        path=f"{DATA}/{place}",
        what="files",
        pattern=pattern,
        cache=cache,
        engine="python",
        engine_reason="many-files",
        operation_bytes=operation,
        threads=1 if pattern == "sequential" else 16,
        direct=False,
        num_files=1_600,
        total_bytes=total,
        num_operations=total // operation,
        storage={"path": f"{DATA}/{place}", "file_system": "ext4", "kind": "local"},
        counted_by="device nvme0n1p1",
        readings=tuple(readings),
    )


def _storage(here: Planted, p: Parameters, cold: PageCacheState = COLD) -> Plan:
    found = storage_plan.plan(p)
    reads = Reads(
        tuple(
            (
                place.name,
                _read(place.name, pattern, cache, found.prepared["read_repeats"], cold),
            )
            for place in found.places
            for pattern in ("sequential", "random")
            for cache in ("cold", "warm")
        )
    )
    return replace(found, prepared={**found.prepared, **reads.facts})


def _storage_doubtful(here: Planted, p: Parameters) -> Plan:
    return _storage(here, p, DOUBTFUL)


def _folder_data(images: int, bytes_each: int = 110_000) -> Mapping[str, Any]:
    """Return what a worker says of files of images."""
    return {
        "loader": "torch",
        "train_images": images,
        "dropped_images": 0,
        "evaluation_images": 200,
        "num_classes": 1,
        "fingerprint": {
            "source": "files",
            "seed": None,
            "kind": "image folder",
            "files": images,
            "bytes": images * bytes_each,
            "sha256": "ab" * 32,
        },
        "unreadable": {"count": 0, "files": []},
    }


def _storage_runs(arm: str, config: ExperimentConfig, repeat: int) -> Outcome:
    rate = 900.0 if config.device == "cpu" else 2_600.0
    rate *= 1.0 if arm.startswith("nas") else 1.3
    data_wait_share, emulated = 0.96, config.emulated_step_seconds
    if emulated:
        busy = config.world_size * 256 / emulated
        data_wait_share = max(0.02, 1 - rate / busy)
    elif config.task == "train":
        rate, data_wait_share = 1_100.0, 0.12
    return Outcome(
        rate,
        data_wait_share=data_wait_share,
        communication_share=0.0,
        cpu_ms_per_image=9.0,
        # As many as the images have, within a run of some six seconds.
        disk_bytes_per_second=1_600 * 110_000 / 6,
        data=_folder_data(1_600),
        tags={
            "cache": "cold",
            "cache_proven": "yes",
            "cache_reason": "no page in this machine's memory (mincore)",
        },
    )


def _storage_disturbed(arm: str, config: ExperimentConfig, repeat: int) -> Outcome:
    outcome = _storage_runs(arm, config, repeat)
    if arm.endswith("again"):
        return replace(outcome, rate=0.8 * outcome.rate)
    if config.task == "train":
        return replace(outcome, nonfinite=LOST)
    if repeat == 1:
        # The page cache gave what should have come from the device.
        return replace(outcome, disk_bytes_per_second=1_000.0)
    return replace(outcome, noise=0.2)


# Input pipelines


def _pipelines(here: Planted, p: Parameters) -> Plan:
    found = input_pipeline_plan.plan(p)

    def measure(setting: LoaderSetting, why: str) -> Trial:
        if setting.prefetch > 4:
            cause = "no space left in shared memory"
            return Trial(setting, 0.0, run_id="20260302-093000-trial", cause=cause)
        rate = min(2_400.0, 400.0 * setting.workers) * (1 + 0.01 * setting.prefetch)
        return Trial(
            setting,
            images_per_second=rate,
            data_wait_share=round(max(0.0, 1 - rate / 2_500), 4),
            cpu_ms_per_image=6.0,
            run_id="20260302-093000-trial",
        )

    if found.tuned is None:
        return found
    tuning = tune(found.grid, found.start, measure, most_trials=found.most_trials)
    return input_pipeline_plan.with_tuning(found, tuning, found.tuned)


def _pipeline_runs(arm: str, config: ExperimentConfig, repeat: int) -> Outcome:
    name = arm.split(",")[0]
    each = {"chexnet_old": 240.0, "chexnet_new": 610.0, "naive": 90.0, "rule": 700.0}
    rate = each.get(name, 820.0) * config.world_size**0.9
    most = config.world_size * (432.0 if config.task == "load" else 1_390.0)
    rate = min(rate, 0.97 * most)
    return Outcome(
        rate,
        data_wait_share=max(0.01, 1 - rate / most),
        communication_share=0.01,
        cpu_ms_per_image=9.0 if name != "naive" else 14.0,
        data=_folder_data(800),
        disk_bytes_per_second=1e6,
    )


def _pipelines_disturbed(arm: str, config: ExperimentConfig, repeat: int) -> Outcome:
    outcome = _pipeline_runs(arm, config, repeat)
    if arm.endswith("again"):
        return replace(outcome, rate=0.85 * outcome.rate)
    if arm.startswith("naive"):
        return replace(outcome, nonfinite=LOST)
    return (
        replace(outcome, other_gpu_processes=1, slowed_share=0.2)
        if repeat == 1
        else outcome
    )


_STORAGE = {"data": [f"nas={DATA}/nas", f"local={DATA}/local"]}
_ONE_PLACE = {"data": [f"nas={DATA}/nas"]}
_PIPELINES = {
    "data": f"{DATA}/shards",
    "gpus": 2,
    "batch_size_per_gpu": 32,
    "steps": 24,
    "warmup_steps": 4,
}


def _case(
    question: str, host: Any, chosen: Mapping[str, Any], outcome: Any, **more: Any
) -> Case:
    plan = _storage if question == "storage" else _pipelines
    return Case(host, more.pop("plan", plan), outcome, question, chosen, **more)


INPUT: dict[str, Case] = {
    "storage/gpu": _case(
        "storage", A100_NODE, {**_ONE_PLACE, "control": True}, _storage_runs
    ),
    "storage/cpu": _case("storage", CPU_HOST, {**_STORAGE, **CPU}, _storage_runs),
    "storage/one_repeat": _case(
        "storage",
        A100_NODE,
        {**_STORAGE, "repeats": 1, "gpus": 2, "batch_size_per_gpu": 64},
        _storage_runs,
    ),
    "storage/no_control": _case(
        "storage", A100_NODE, {**_STORAGE, "repeats": 2}, _storage_runs
    ),
    "storage/disturbed": _case(
        "storage",
        A100_NODE,
        {**_ONE_PLACE, "repeats": 3, "control": True},
        _storage_disturbed,
        plan=_storage_doubtful,
    ),
    "input_pipeline/gpu": _case(
        "input_pipeline",
        A100_NODE,
        {**_PIPELINES, "arms": ["naive", "tuned"]},
        _pipeline_runs,
    ),
    "input_pipeline/cpu": _case(
        "input_pipeline",
        CPU_HOST,
        {"data": f"{DATA}/shards", **CPU},
        _pipeline_runs,
    ),
    "input_pipeline/one_repeat": _case(
        "input_pipeline",
        A100_NODE,
        {**_PIPELINES, "arms": ["all"], "repeats": 1},
        _pipeline_runs,
    ),
    "input_pipeline/no_control": _case(
        "input_pipeline",
        A100_NODE,
        {**_PIPELINES, "arms": ["rule"], "repeats": 2, "control": False},
        _pipeline_runs,
    ),
    "input_pipeline/disturbed": _case(
        "input_pipeline",
        A100_NODE,
        {**_PIPELINES, "arms": ["naive", "rule"], "repeats": 3},
        _pipelines_disturbed,
    ),
}
