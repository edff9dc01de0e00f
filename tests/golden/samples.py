"""What the sampler of a machine that does not exist saw of a run."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nbkit.config import ExperimentConfig
from nbkit.store.metrics import to_json_line
from nbkit.telemetry.sample import GpuProcess, GpuSample, HostSample, Sample
from tests.golden.hosts import Host
from tests.golden.outcome import GIBIBYTE, Outcome

__all__ = ["system_of", "write_samples"]

STRANGER_PID = 90_000


def write_samples(
    path: Path,
    config: ExperimentConfig,
    host: Host,
    outcome: Outcome,
    begin: float,
    end: float,
) -> None:
    """Write what was sampled of a run: once a second, from its start to its end."""
    seconds = range(math.floor(end - begin) + 1)
    many = 20  # samples are enough of a long run
    period = max(1, len(seconds) // many)
    header = {
        "kind": "header",
        "schema": 1,
        "t": begin,
        "hostname": host.name,
        "driver_version": host.driver if host.gpus else None,
        "cuda_driver_version": "12.8" if host.gpus else None,
        "devices": [asdict(one) for one in host.devices] if host.gpus else None,
        **host.links,
        "gpus_unavailable": None if host.gpus else "no gpu",
        "interval_seconds": float(period),
    }
    rows = [header]
    for second in [*seconds[::period], len(seconds)]:
        one = Sample(
            t=begin + second,
            gpus=tuple(
                _gpu(config, host, outcome, index, second)
                for index in range(config.world_size if host.gpus else 0)
            ),
            gpus_unavailable=None if host.gpus else "no gpu",
            host=_host(config, outcome, second),
        )
        rows.append({"kind": "sample", **one.to_dict()})
    path.parent.mkdir(parents=True)
    path.write_text("".join(map(to_json_line, rows)))


def _gpu(
    config: ExperimentConfig, host: Host, outcome: Outcome, index: int, second: int
) -> GpuSample:
    is_busy = second > 3
    ours = GpuProcess(4_001 + index, outcome.memory_bytes)
    others = [
        GpuProcess(STRANGER_PID + number, 4 * GIBIBYTE)
        for number in range(outcome.other_gpu_processes)
    ]
    is_slowed = is_busy and second % 10 < 10 * outcome.slowed_share
    clock = host.sm_clock_max_mhz
    return GpuSample(
        outcome.first_gpu + index,
        uuid=host.uuid(outcome.first_gpu + index),
        name=host.gpu,
        gpu_utilization_percent=round(98 * (1 - outcome.data_wait_share))
        if is_busy
        else 0,
        memory_used_bytes=outcome.memory_bytes,
        memory_reserved_bytes=600 << 20,
        memory_total_bytes=host.gpu_bytes,
        power_watts=outcome.power_watts if is_busy else 60.0,
        power_limit_watts=host.power_limit_watts,
        energy_joules=10_000.0 + outcome.power_watts * second,
        temperature_celsius=88 if is_slowed else 61,
        sm_clock_mhz=clock - 300 if is_slowed else clock,
        memory_clock_mhz=1_593,
        clock_event_reasons=("thermal (hardware)",) if is_slowed else (),
        processes=(ours, *others),
    )


def _host(config: ExperimentConfig, outcome: Outcome, second: int) -> HostSample:
    arrived = round(outcome.disk_bytes_per_second * second)
    return HostSample(
        cpu_percent=None if second == 0 else 30.0,
        load_average_1_minute=4.0,
        memory_used_bytes=12 * GIBIBYTE,
        memory_available_bytes=16 * GIBIBYTE,
        disk_read_bytes=1_000_000 + arrived,
        disk_write_bytes=2_000_000,
        net_rx_bytes=3_000_000,
        net_tx_bytes=4_000_000,
        processes_cpu_seconds=1.0 * config.world_size * second,
    )


def system_of(
    config: ExperimentConfig, host: Host, outcome: Outcome, seconds: float
) -> dict[str, Any]:
    """Return what a record keeps of the samples."""
    count = math.floor(seconds) + 1
    used = range(config.world_size if host.gpus else 0)
    return {
        "samples": count,
        "seconds": seconds,
        "gpus": {
            host.uuid(outcome.first_gpu + index): {
                "energy_joules": outcome.power_watts * count,
                "slowed_seconds": round(outcome.slowed_share * seconds, 3),
                "gpu_utilization_percent_sum": 95 * count,
                "gpu_utilization_samples": count,
                "memory_used_bytes_max": outcome.memory_bytes,
            }
            for index in used
        },
        "other_gpu_processes": outcome.other_gpu_processes if host.gpus else None,
        "driver_version": host.driver if host.gpus else None,
        "cuda_driver_version": "12.8" if host.gpus else None,
        "devices": [asdict(one) for one in host.devices] if host.gpus else None,
        **host.links,
        "gpus_unavailable": None if host.gpus else "no gpu",
    }
