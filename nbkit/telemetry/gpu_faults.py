"""GPU faults during a run, from its samples."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nbkit.reading import parse_object, read_end
from nbkit.telemetry.cuda_errors import gpu_errors
from nbkit.telemetry.sample import GpuSample

_TAIL_BYTES = 1 << 19
"""The last minutes: an error that is older did not end the run."""
_CLOCK_SECONDS = 5.0
"""By so much the clock of a node may be late."""

_RESET = "reset the GPU (sudo nvidia-smi --gpu-reset -i {index}) or reboot"


@dataclass(frozen=True)
class Fault:
    """An error of a GPU."""

    text: str
    """GPU, what happened, and the fix; without a full stop."""
    may_pass: bool
    """Whether a new attempt on the same GPU may succeed."""
    of_program: bool
    """Whether a program caused the error, not the GPU."""


_ECHOES = {45}
"""Xids that only say that an error before has ended a program."""


def xid_advice(code: int, index: int) -> Fault:
    """Return the meaning of an Xid and its fix."""
    rows = gpu_errors()["xids"]
    row = rows.get(str(code), rows["other"])
    text = f"Xid {code} ({row['what']}): {row['advice'].format(index=index)}"
    return Fault(text, row.get("may_pass", False), row.get("of_program", False))


def last_readings(
    path: Path, names: Collection[str] = (), since: float = 0.0
) -> list[list[GpuSample]]:
    """Return the last readings of a run's GPUs in its newest attempt, oldest first."""
    try:
        data, start = read_end(path, _TAIL_BYTES)
    except OSError:
        return []
    lines = data.split(b"\n")
    # The first line may be cut by where reading began, the last by a full disk.
    readings: list[list[GpuSample]] = []
    is_current = False
    for line in lines[1 if start else 0 : -1]:
        try:
            row = parse_object(line)
            gpus = [GpuSample.from_dict(gpu) for gpu in row.get("gpus", ())]
            t = row.get("t", since)
            is_earlier, began = t < since, t > since - _CLOCK_SECONDS
        except (ValueError, TypeError, AttributeError):
            continue  # A damaged line is not evidence.
        if row.get("kind") == "header":
            readings = []  # An earlier attempt had other troubles.
            is_current = began
        elif is_current or not is_earlier:
            selected = []
            for gpu in gpus:
                uuids = {gpu.uuid, *(mig.uuid for mig in gpu.mig_instances or ())}
                if not names or not uuids.isdisjoint(names):
                    selected.append(gpu)
            readings.append(selected)
    return readings


def faults(readings: Sequence[Sequence[GpuSample]]) -> list[Fault]:
    """Return the first error of each GPU in some readings."""
    last = readings[-1] if readings else ()
    causes: list[Fault] = []
    for gpu in last:
        candidates = [*_xids(readings, gpu.uuid)]
        if gpu.error is not None:
            reset = _RESET.format(index=gpu.index)
            text = f"cannot be read ({gpu.error}): see dmesg, then {reset}"
            candidates.append(Fault(text, may_pass=False, of_program=False))
        # What the program did may be followed by an error of the GPU itself.
        first = min(candidates, key=lambda fault: fault.of_program, default=None)
        if first is not None:
            uuid = f" ({gpu.uuid})" if gpu.uuid else ""
            text = f"GPU {gpu.index}{uuid}: {first.text}"
            causes.append(Fault(text, first.may_pass, first.of_program))
    return causes


def _xids(readings: Sequence[Sequence[GpuSample]], uuid: str | None) -> Iterator[Fault]:
    codes: set[int] = set()
    for reading in readings:
        for gpu in reading:
            if gpu.uuid != uuid or gpu.xid is None or gpu.xid.code in codes | _ECHOES:
                continue
            codes.add(gpu.xid.code)
            yield xid_advice(gpu.xid.code, gpu.index)
