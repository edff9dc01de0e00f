"""Replay of a GPU trace, for machines without a GPU: Binder, demos, tests.

A trace is a file that `nbkit.telemetry.sampler` wrote: a header, then samples. Of a
file with several headers, the longest part is played. It is repeated endlessly;
gauges are those of the previous sample, counters grow evenly between samples and across
repetitions. Traces written manually say ``"scripted": true`` in their header, and may
hold lines of further kinds:

``{"kind": "wave", "field": ..., "gpus": [0, 1], "middle": m, "swing": s,
"period_seconds": p, "shift_seconds": d}``
    While the trace is played, the field of GPU *i* is
    ``m + s * sin(2 * pi * (t + i * d) / p)``, *t* seconds after the start, rounded if
    *m* is a whole number. Without ``gpus``, of all GPUs.
``{"kind": "hang", "seconds": 8}``
    A reading hangs for this time, once per repetition, after the sample above.
``{"kind": "holders", "by_pid": {"4321": {"user": "ann", "idle_seconds": 60, ...}}}``
    Facts that the sidebar shows for a process of the trace; ``idle_seconds`` is its
    idle time when the trace is opened.
"""

from __future__ import annotations

import bisect
import json
import math
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nbkit.clock import now
from nbkit.errors import NvmlUnavailableError
from nbkit.telemetry.sample import GpuDevice, GpuSample, Sample

TRACE = "eight-gpus"
"""The name of the trace that comes with nbkit."""

_COUNTERS = (
    "energy_joules",
    "pcie_rx_bytes",
    "pcie_tx_bytes",
    "nvlink_rx_bytes",
    "nvlink_tx_bytes",
)

_MOST_SAMPLES = 600
"""Of a longer part, the beginning is played: ten minutes of 8 GPUs take 10 MiB."""


def open_replay(name: str) -> Replay:
    """Return a trace, ready to be played."""
    own = Path(__file__).with_name("traces") / f"{TRACE}.jsonl"
    try:
        with (own if name == TRACE else Path(name)).open("rb") as file:
            trace = _longest_trace(_read_traces(file))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        reason = getattr(error, "strerror", None) or error or type(error).__name__
        value = f"replay:{name}"
        raise refuse(value, str(reason)) from error
    _raise_if_unavailable(trace.header.get("gpus_unavailable"))
    return Replay(trace)


def refuse(value: str, why: str) -> NvmlUnavailableError:
    """Return the error for a GPU source that cannot be used."""
    message = (
        f"GPUs cannot be read: NBKIT_GPU_SOURCE={value} cannot be used ({why}). Use "
        "replay:FILE with a file of python -m nbkit.telemetry.sampler, or "
        f"replay:{TRACE}, or unset it. Then restart Jupyter or nbkit monitor."
    )
    return NvmlUnavailableError(message, reason="source cannot be used")


def _raise_if_unavailable(reason: str | None) -> None:
    if reason:
        from nbkit.telemetry.nvml import unavailable

        raise unavailable(reason)


@dataclass
class Trace:
    """One part of a file: a sampler's lines from one header to the next."""

    header: dict[str, Any] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    waves: list[dict[str, Any]] = field(default_factory=list)
    hangs: list[tuple[float, float]] = field(default_factory=list)
    """Hangs: start in seconds from the first sample, and length in seconds."""
    holders: dict[int, dict[str, Any]] = field(default_factory=dict)

    def add(self, row: dict[str, Any]) -> None:
        """Add a line that is not a header."""
        match row.pop("kind"):
            case "sample":
                if len(self.samples) < _MOST_SAMPLES:
                    self.samples.append(Sample.from_dict(row))
            case "wave":
                self.waves.append(row)
            case "hang":
                self.hangs.append((self.offsets()[-1], float(row["seconds"])))
            case "holders":
                by_pid = row["by_pid"].items()
                self.holders |= {int(pid): holder for pid, holder in by_pid}
            case kind:
                message = f"unknown kind {kind!r}"
                raise ValueError(message)

    def offsets(self) -> list[float]:
        """Return when each sample was taken, in seconds from the first."""
        return [sample.t - self.samples[0].t for sample in self.samples]


def _read_traces(lines: Any) -> Iterator[Trace]:
    trace: Trace | None = None
    for number, line in enumerate(lines, 1):
        if not line.endswith(b"\n"):
            break  # It is being written.
        try:
            row = json.loads(line)
            if row["kind"] == "header":
                if trace is not None:
                    yield trace
                trace = Trace(row)
            elif trace is not None:
                trace.add(row)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            message = f"line {number}: {type(error).__name__} {error}"
            raise ValueError(message) from error
    if trace is not None:
        yield trace


def _longest_trace(parts: Iterator[Trace]) -> Trace:
    trace = max(parts, key=lambda part: len(part.samples), default=None)
    if trace is None:
        message = "it has no header line"
        raise ValueError(message)
    if not trace.samples and not trace.header.get("gpus_unavailable"):
        message = "it contains no sample"
        raise ValueError(message)
    return trace


class Replay:
    """A trace that is being played; made by `open_replay`."""

    def __init__(
        self, trace: Trace, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._trace = trace
        self._clock = clock
        self._began = clock()
        self._began_t = now()
        header = trace.header
        self.driver_version: str | None = header.get("driver_version")
        self.cuda_driver_version: str | None = header.get("cuda_driver_version")
        self.pids_are_here = header.get("hostname") == socket.gethostname()
        """Whether its pids may be those of processes of this machine."""
        self.reported_holders = {pid: {**told} for pid, told in trace.holders.items()}
        """Facts on the processes of the trace, by pid."""
        for holder in self.reported_holders.values():
            if (seconds := holder.pop("idle_seconds", None)) is not None:
                holder["idle_since"] = round(self._began_t - seconds, 3)
        self._last_passed = -math.inf
        self._offsets = trace.offsets()
        self._round_seconds = self._offsets[-1] or 1.0
        first, last = trace.samples[0], trace.samples[-1]
        before = _by_key(first)
        self._growth = {
            key: _growth(before[key], gpu)
            for key, gpu in _by_key(last).items()
            if key in before
        }

    def devices(self) -> tuple[GpuDevice, ...]:
        """Return the constant properties of each GPU, as in the header."""
        described = self._trace.header.get("devices") or ()
        return tuple(map(GpuDevice.from_dict, described))

    def read(self, uuids: Collection[str] | None = None) -> tuple[GpuSample, ...]:
        """Return the reading of this moment."""
        self._hang(self._clock() - self._began)
        passed = self._clock() - self._began
        rounds, offset = divmod(passed, self._round_seconds)
        place = bisect.bisect_right(self._offsets, offset) - 1
        sample = self._trace.samples[place]
        _raise_if_unavailable(sample.gpus_unavailable)
        following = min(place + 1, len(self._offsets) - 1)
        between = self._offsets[following] - self._offsets[place]
        share = (offset - self._offsets[place]) / between if between else 0.0
        after = _by_key(self._trace.samples[following])
        return tuple(
            self._play(gpu, after.get(_key(gpu)), share, rounds, passed)
            for gpu in sample.gpus
            if uuids is None or gpu.uuid in uuids
        )

    def close(self) -> None:
        """Do nothing: a trace holds nothing."""

    def _hang(self, passed: float) -> None:
        last, self._last_passed = self._last_passed, passed
        for offset, seconds in self._trace.hangs:
            times = math.floor((passed - offset) / self._round_seconds)
            before = -1 if last < offset else (last - offset) // self._round_seconds
            if times > before:
                threading.Event().wait(seconds)

    def _play(
        self,
        gpu: GpuSample,
        after: GpuSample | None,
        share: float,
        rounds: float,
        passed: float,
    ) -> GpuSample:
        values: dict[str, Any] = {"t": round(now(), 3)}
        if gpu.xid is not None:
            start = self._began_t + rounds * self._round_seconds
            heard_t = start + gpu.xid.t - self._trace.samples[0].t
            values["xid"] = replace(gpu.xid, t=round(heard_t, 3))
        grown = self._growth.get(_key(gpu), {})
        step = _growth(gpu, after) if after else {}
        for name in _COUNTERS:
            start = getattr(gpu, name)
            if start is not None:
                more = share * step.get(name, 0) + rounds * grown.get(name, 0)
                values[name] = start + (round(more) if type(start) is int else more)
        for wave in self._trace.waves:
            name = wave["field"]
            if getattr(gpu, name) is not None and gpu.index in wave.get(
                "gpus", (gpu.index,)
            ):
                values[name] = _wave(wave, gpu.index, passed)
        return replace(gpu, **values)


def _wave(wave: dict[str, Any], index: int, passed: float) -> float:
    shifted = passed + index * wave.get("shift_seconds", 0.0)
    turn = math.sin(2 * math.pi * shifted / wave["period_seconds"])
    value = wave["middle"] + wave["swing"] * turn
    return round(value) if type(wave["middle"]) is int else value


def _key(gpu: GpuSample) -> str | int:
    return gpu.uuid or gpu.index


def _by_key(sample: Sample) -> dict[str | int, GpuSample]:
    return {_key(gpu): gpu for gpu in sample.gpus}


def _growth(before: GpuSample, after: GpuSample) -> dict[str, float]:
    """Return by how much each counter grew; one that was reset did not."""
    pairs = ((name, getattr(before, name), getattr(after, name)) for name in _COUNTERS)
    return {
        name: max(end - start, 0)
        for name, start, end in pairs
        if start is not None and end is not None
    }
