"""What nbkit reads of a GPU, beside what nvidia-smi says in the same seconds."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from checks import ShortError

from nbkit.telemetry.nvml import open_nvml
from nbkit.telemetry.processes import pids_are_the_hosts
from nbkit.telemetry.sample import GpuSample

__all__ = ["beside_nvidia_smi", "compare_rounds"]

_ROUNDS = 8
_BETWEEN_SECONDS = 0.5

_QUERY = (
    ("utilization.gpu", "gpu_utilization_percent"),
    ("memory.used", "memory_used_mib"),
    ("power.draw", "power_watts"),
    ("clocks.sm", "sm_clock_mhz"),
    ("temperature.gpu", "temperature_celsius"),
)
_NEAR = {
    # Of a second or less each: both read another moment of it.
    "gpu_utilization_percent": (0.0, 25.0),
    "memory_used_mib": (0.02, 16.0),
    "power_watts": (0.15, 10.0),
    "sm_clock_mhz": (0.15, 30.0),
    "temperature_celsius": (0.0, 3.0),
}
"""How far medians may be apart: as a part, and at least so much."""
_LIMIT_SECONDS = 10.0
"""For one answer of nvidia-smi; a driver that hangs gives none."""


def beside_nvidia_smi(uuid: str, pid: int) -> tuple[str, dict[str, Any], list[str]]:
    """Return what both say in words and numbers, and what is wrong.

    Parameters
    ----------
    uuid
        Of the GPU.
    pid
        Of the process that keeps it busy.
    """
    ours: list[dict[str, float | None]] = []
    theirs: list[dict[str, float | None]] = []
    pids: set[int] = set()
    with open_nvml() as nvml:
        for _ in range(_ROUNDS):
            [sample] = nvml.read({uuid})
            ours.append(_values(sample))
            theirs.append(_told(uuid))
            held = sample.processes or ()
            pids |= {one.pid for one in held if one.pid is not None}
            time.sleep(_BETWEEN_SECONDS)
    others = _pids(uuid)
    words, numbers, wrong = compare_rounds(ours, theirs)
    numbers |= {"pids": sorted(pids), "pids_nvidia_smi": others}
    # In a container with pids of its own both tell the host's, or none.
    if pids_are_the_hosts():
        wrong += [
            f"the rank, process {pid}, is not among {sorted(told)} of {who}"
            for who, told in (("nbkit", pids), ("nvidia-smi", set(others)))
            if pid not in told
        ]
    seen = "seen" if pid in pids else "not told by its own pid here"
    words.append(f"the rank {seen}")
    return f"nbkit (nvidia-smi): {', '.join(words)}", numbers, wrong


def compare_rounds(
    ours: Sequence[Mapping[str, float | None]],
    theirs: Sequence[Mapping[str, float | None]],
) -> tuple[list[str], dict[str, Any], list[str]]:
    """Return medians in words, as numbers, and what is wrong about them.

    Parameters
    ----------
    ours
        What nbkit read in each round, by name; unknown is None.
    theirs
        What nvidia-smi said in the same rounds.
    """
    words, numbers, wrong = [], {}, []
    for name, (part, least) in _NEAR.items():
        said = [one[name] for one in theirs if one[name] is not None]
        pairs = [
            (mine[name], other[name])
            for mine, other in zip(ours, theirs, strict=True)
            if mine[name] is not None and other[name] is not None
        ]
        if said and all(one[name] is None for one in ours):
            wrong.append(f"{name} unknown, nvidia-smi {median(said):.0f}")
        if not pairs:
            continue
        mine, other = (median(values) for values in zip(*pairs, strict=True))
        numbers[name] = {"nbkit": mine, "nvidia_smi": other}
        words.append(f"{name} {mine:.0f} ({other:.0f})")
        if abs(mine - other) > max(part * other, least):
            wrong.append(f"{name} {mine:.0f}, nvidia-smi {other:.0f}")
    if not any(one["gpu_utilization_percent"] for one in ours):
        wrong.append("no utilization under load")
    return words, numbers, wrong


def _values(sample: GpuSample) -> dict[str, float | None]:
    memory = sample.memory_used_bytes
    return {
        "gpu_utilization_percent": sample.gpu_utilization_percent,
        "memory_used_mib": None if memory is None else memory / 2**20,
        "power_watts": sample.power_watts,
        "sm_clock_mhz": sample.sm_clock_mhz,
        "temperature_celsius": sample.temperature_celsius,
    }


def _told(uuid: str) -> dict[str, float | None]:
    query = ",".join(word for word, _ in _QUERY)
    cells = _asked(f"--query-gpu={query}", uuid)[0].split(", ")
    return {name: _number(cell) for (_, name), cell in zip(_QUERY, cells, strict=True)}


def _pids(uuid: str) -> list[int]:
    return sorted({int(line) for line in _asked("--query-compute-apps=pid", uuid)})


def _asked(query: str, uuid: str) -> list[str]:
    form = "--format=csv,noheader,nounits"
    try:
        said = subprocess.check_output(
            ["nvidia-smi", f"--id={uuid}", query, form],
            text=True,
            timeout=_LIMIT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        message = f"nvidia-smi does not answer within {_LIMIT_SECONDS:g} s"
        raise ShortError(message) from None
    return [line.strip() for line in said.splitlines() if line.strip()]


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None
