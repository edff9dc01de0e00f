"""`python -m nbkit.telemetry.occupants`: who uses GPUs without a lease of them.

A process of its own, since NVML may hang, and so that whoever asks stays small.
Prints a JSON object: what to say of each GPU or MIG instance that is in use.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import psutil

from nbkit.errors import NvmlUnavailableError
from nbkit.telemetry.sample import GpuProcess, GpuSample

__all__ = ["Occupants", "occupants"]

_SILENT = "a driver that does not answer"
_SHARE = 0.05
"""Processes with less of a GPU's memory leave room for a run: a bare CUDA context takes
0.3 to 0.5 GiB, which a notebook keeps that only looked at the GPU once."""


class Occupants:
    """Asks who uses GPUs, now and then.

    Parameters
    ----------
    timeout_seconds
        A driver that takes longer is taken to hang.
    """

    def __init__(self, timeout_seconds: float = 5.0) -> None:
        self._timeout_seconds = timeout_seconds
        self._has_failed = False
        self._stuck: subprocess.Popen[bytes] | None = None

    def ask(self, names: Collection[str], but: int | None = None) -> dict[str, str]:
        """Return what to say of each device that a process uses, by its name.

        Of a driver that does not answer, nobody can tell: every device counts as used.

        Parameters
        ----------
        names
            UUIDs of GPUs or MIG instances to look at.
        but
            Pid of a process whose tree does not count.
        """
        if self._stuck is not None and self._stuck.poll() is None:
            return dict.fromkeys(names, _SILENT)  # no second one beside it
        argv = [sys.executable, "-P", "-m", "nbkit.telemetry.occupants", *names]
        if but is not None:
            argv += ["--but", str(but)]
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            # Once is enough in a log, however long a run waits.
            stderr=subprocess.DEVNULL if self._has_failed else None,
        )
        try:
            answer, _ = process.communicate(timeout=self._timeout_seconds)
        except subprocess.TimeoutExpired:
            self._leave(process)
            return dict.fromkeys(names, _SILENT)
        if process.returncode:
            self._has_failed = True
            return dict.fromkeys(names, "nobody knows who (see the supervisor's log)")
        return json.loads(answer)

    def _leave(self, process: subprocess.Popen[bytes]) -> None:
        """End a helper that hangs; in the driver it may not even end by SIGKILL."""
        process.kill()
        if process.stdout is not None:
            process.stdout.close()
        self._stuck = process
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1)


def occupants(
    samples: Collection[GpuSample], names: Collection[str], own: Collection[int]
) -> dict[str, str]:
    """Return what to say of each device that a process uses, by its name.

    Parameters
    ----------
    samples
        A reading of the GPUs.
    names
        UUIDs of GPUs or MIG instances to look at.
    own
        Pids that do not count.
    """
    strangers: dict[str, list[GpuProcess]] = {}
    totals: dict[str, int | None] = {}
    for name, process, total_bytes in _processes(samples):
        if name in names and process.pid not in own:
            strangers.setdefault(name, []).append(process)
            totals[name] = total_bytes
    return {
        name: _described(processes)
        for name, processes in strangers.items()
        if not _is_little(processes, totals[name])
    }


def _processes(
    samples: Collection[GpuSample],
) -> Iterator[tuple[str, GpuProcess, int | None]]:
    for sample in samples:
        totals = {
            one.uuid: one.memory_total_bytes for one in sample.mig_instances or ()
        }
        totals[str(sample.uuid)] = sample.memory_total_bytes
        for process in sample.processes or ():
            name = process.mig_uuid or str(sample.uuid)
            yield name, process, totals.get(name)


def _is_little(processes: Sequence[GpuProcess], total_bytes: int | None) -> bool:
    used = [process.memory_used_bytes for process in processes]
    known = [number for number in used if number is not None]
    if total_bytes is None or len(known) < len(used):
        return False
    return sum(known) < _SHARE * total_bytes


def _described(processes: Sequence[GpuProcess]) -> str:
    largest = max(processes, key=lambda process: process.memory_used_bytes or 0)
    try:
        known = psutil.Process(largest.pid)
        who = f"process {largest.pid} ({known.name()} of {known.username()})"
    except psutil.Error:
        who = f"process {largest.pid} (of another container)"
    if largest.memory_used_bytes is not None:
        who += f" with {largest.memory_used_bytes / 2**30:.1f} GiB"
    others = len(processes) - 1
    return f"{who} and {others} more" if others else who


def _tree(pid: int) -> set[int]:
    try:
        process = psutil.Process(pid)
        return {pid, *(child.pid for child in process.children(recursive=True))}
    except psutil.Error:
        return set()


def main() -> None:
    """Print who uses the GPUs that the command line names."""
    from nbkit.telemetry.nvml import open_nvml

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--but", type=int)
    asked: Any = parser.parse_args()
    try:
        with open_nvml() as nvml:
            samples = nvml.read()
    except NvmlUnavailableError as error:
        sys.exit(str(error))
    own = set() if asked.but is None else _tree(asked.but)
    sys.stdout.write(json.dumps(occupants(samples, asked.names, own)) + "\n")


if __name__ == "__main__":
    main()
