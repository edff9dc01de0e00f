"""`python -m nbkit.telemetry.gpu_users`: users of GPUs without a lease.

A separate process, since NVML may hang, and so that the process that asks stays
small. It is kept between questions: without persistence mode the driver initialises
every GPU again for the first process that opens it, which takes 1 to 3 s a GPU. It
reads a question as a line of JSON and answers with one, until its input is closed.
"""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from typing import Any

import psutil

from nbkit.errors import NvmlUnavailableError
from nbkit.telemetry.processes import has_cuda_loaded, pids_are_the_hosts
from nbkit.telemetry.sample import GpuProcess, GpuSample, MigSample

_SILENT = "a driver that does not respond"
_UNKNOWN = "an unknown process, if any (query failed; see supervisor.log)"
_SHARE = 0.05
"""Processes with less of a GPU's memory leave room for a run: a bare CUDA context takes
0.3 to 0.5 GiB, which a notebook keeps that only looked at the GPU once."""


class GpuUsers:
    """Queries the users of GPUs at intervals."""

    def __init__(
        self, timeout_seconds: float = 60.0, patience_seconds: float = 1.0
    ) -> None:
        # 16 GPUs that no process has open take up to 48 s.
        self._timeout_seconds = timeout_seconds
        self._patience_seconds = patience_seconds
        self._has_failed = False
        self._helper: subprocess.Popen[bytes] | None = None
        self._stuck: subprocess.Popen[bytes] | None = None
        self._asked: frozenset[str] = frozenset()
        self._asked_at: float | None = None
        """When the question was asked that has no answer yet, `time.monotonic`."""
        self.unverified_devices: frozenset[str] = frozenset()
        """Devices of the last answer whose only user may be the asker itself."""

    def ask(
        self, names: Collection[str], but: int | None = None
    ) -> dict[str, str] | None:
        """Return the user of each device in use, in words, by the device's name."""
        # If the driver does not answer, every device counts as used.
        if self._stuck is not None and self._stuck.poll() is None:
            return dict.fromkeys(names, _SILENT)  # no second one beside it
        if self._asked_at is None:
            self._send(names, but)
        answer = self._receive()
        if answer is None:
            return None
        if not self._asked.issuperset(names):
            return self.ask(names, but)
        return {name: words for name, words in answer.items() if name in names}

    def close(self) -> None:
        """End the helper; a second call does nothing."""
        if self._helper is not None:
            self._abandon(self._helper)

    def _send(self, names: Collection[str], but: int | None) -> None:
        if self._helper is None:
            self._helper = subprocess.Popen(
                [sys.executable, "-P", "-m", "nbkit.telemetry.gpu_users"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # Once is enough in a log, however long a run waits.
                stderr=subprocess.DEVNULL if self._has_failed else None,
            )
        question = {
            "names": sorted(names),
            "but": but,
            "host_pids": pids_are_the_hosts(),
        }
        self._asked, self._asked_at = frozenset(names), time.monotonic()
        assert self._helper.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended, as reading will tell
            self._helper.stdin.write(json.dumps(question).encode() + b"\n")
            self._helper.stdin.flush()

    def _receive(self) -> dict[str, str] | None:
        """Return the answer; None if it is not there yet."""
        helper, asked_at = self._helper, self._asked_at
        assert helper is not None
        assert helper.stdout is not None
        assert asked_at is not None
        remaining_seconds = asked_at + self._timeout_seconds - time.monotonic()
        poll = select.poll()  # `select.select` refuses descriptors above 1023.
        poll.register(helper.stdout, select.POLLIN)
        if not poll.poll(
            1000 * max(0.0, min(remaining_seconds, self._patience_seconds))
        ):
            if remaining_seconds > self._patience_seconds:
                return None
            self._abandon(helper)
            return dict.fromkeys(self._asked, _SILENT)
        line = helper.stdout.readline()
        self._asked_at = None
        if not line:
            self._has_failed = True
            self._abandon(helper)
            return dict.fromkeys(self._asked, _UNKNOWN)
        answer: dict[str, Any] = json.loads(line)
        self.unverified_devices = frozenset(answer["unverified_devices"])
        return answer["used"]

    def _abandon(self, helper: subprocess.Popen[bytes]) -> None:
        """End a helper; one that hangs in the driver may not even end by SIGKILL."""
        helper.kill()
        for stream in (helper.stdin, helper.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        self._helper, self._asked_at, self.unverified_devices = None, None, frozenset()
        self._stuck = helper
        with contextlib.suppress(subprocess.TimeoutExpired):
            helper.wait(1)


def gpu_users(
    samples: Collection[GpuSample], names: Collection[str], own: Collection[int]
) -> dict[str, str]:
    """Return the user of each device in use, in words, by the device's name."""
    broken = {
        str(sample.uuid): f"the driver ({sample.error}; see dmesg)"
        for sample in samples
        if sample.error is not None and sample.uuid in names
    }
    return broken | {
        name: _describe_processes(processes)
        for name, processes in _strangers(samples, names, own).items()
    }


def unverified_gpus(
    samples: Collection[GpuSample],
    names: Collection[str],
    own: Collection[int],
    *,
    host_pids: bool,
) -> set[str]:
    """Return devices whose only user may be the asking process, by another pid."""
    # In a container with its own pids the driver may name the host's, or none.
    by_device = _strangers(samples, names, own)
    return {
        name
        for name, processes in by_device.items()
        if len(processes) == 1 and not (host_pids and processes[0].pid)
    }


def _strangers(
    samples: Collection[GpuSample], names: Collection[str], own: Collection[int]
) -> dict[str, list[GpuProcess]]:
    """Return whose processes take much of a device, by its name."""
    strangers: dict[str, list[GpuProcess]] = {}
    devices: dict[str, GpuSample | MigSample] = {}
    for sample in samples:
        devices |= {str(device.uuid): device for device in _devices(sample)}
        for process in sample.processes or ():
            name = process.mig_uuid or str(sample.uuid)
            if name in names and process.pid not in own:
                strangers.setdefault(name, []).append(process)
    return {
        name: processes
        for name, processes in strangers.items()
        if not _is_negligible(processes, devices.get(name))
    }


def _devices(sample: GpuSample) -> tuple[GpuSample | MigSample, ...]:
    return sample, *(sample.mig_instances or ())


def _is_negligible(
    processes: Sequence[GpuProcess], device: GpuSample | MigSample | None
) -> bool:
    if device is None or device.memory_total_bytes is None:
        return False
    used_bytes: int | None = 0
    for process in processes:
        if process.memory_used_bytes is None:
            # Windows tells its subsystem for Linux no process's memory. All use is
            # theirs and others': at least as much as theirs.
            used_bytes = device.memory_used_bytes
            break
        used_bytes += process.memory_used_bytes
    return used_bytes is not None and used_bytes < _SHARE * device.memory_total_bytes


def _describe_processes(processes: Sequence[GpuProcess]) -> str:
    largest = max(processes, key=lambda process: process.memory_used_bytes or 0)
    who = _name_process(largest.pid)
    if largest.memory_used_bytes is not None:
        who += f" with {largest.memory_used_bytes / 2**30:.1f} GiB"
    more = len(processes) - 1
    return f"{who} and {more} more" if more else who


def _name_process(pid: int | None) -> str:
    if pid is None:
        return "a process whose id the driver hides"
    try:
        process = psutil.Process(pid)
        return f"process {pid} ({process.name()} of {process.username()})"
    except psutil.Error:
        return f"process {pid} (of another container)"


def _process_tree(pid: int) -> set[int]:
    try:
        process = psutil.Process(pid)
        return {pid, *(child.pid for child in process.children(recursive=True))}
    except psutil.Error:
        return set()


def _find_users(
    samples: Collection[GpuSample], names: Sequence[str], but: int | None, host: bool
) -> dict[str, Any]:
    own = set() if but is None else _process_tree(but)
    used = gpu_users(samples, names, own)
    readable = {str(device.uuid) for sample in samples for device in _devices(sample)}
    gone = "the driver (GPU lost; see dmesg)"
    used |= {name: gone for name in names if name not in readable}
    unverified_devices: set[str] = set()
    if but is not None and has_cuda_loaded(but):
        unverified_devices = unverified_gpus(samples, names, own, host_pids=host)
        used |= {
            name: f"{used[name]}, maybe this kernel," for name in unverified_devices
        }
    return {"used": used, "unverified_devices": sorted(unverified_devices)}


def main() -> None:
    """Answer who uses the GPUs that a question names, for each line of the input."""
    from nbkit.telemetry.nvml import open_nvml

    nvml = None
    for line in sys.stdin:
        question: dict[str, Any] = json.loads(line)
        try:
            nvml = nvml or open_nvml()
        except NvmlUnavailableError as error:
            sys.exit(str(error))
        samples = nvml.read()
        names, but, host = (question[key] for key in ("names", "but", "host_pids"))
        sys.stdout.write(json.dumps(_find_users(samples, names, but, host)) + "\n")
        sys.stdout.flush()
        if any(sample.error for sample in samples):
            nvml.close()  # A GPU that was reset answers only once it is opened again.
            nvml = None


if __name__ == "__main__":
    main()
