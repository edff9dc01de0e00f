"""The sampler as a child process that cannot outlive its parent."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import IO


def start_sampler(
    output: Path,
    *,
    interval_seconds: float = 1.0,
    gpu_uuids: Collection[str] | None = None,
    process_roots: Sequence[int] = (),
    stderr: IO[bytes] | int | None = None,
) -> SamplerProcess:
    """Start a process that appends samples of this machine to a file."""
    # It ends when `SamplerProcess.stop` is called or this process ends in any way, be
    # it by SIGKILL: the kernel then closes the pipe between the two.
    read_end, write_end = os.pipe()
    # -P: the folder of a notebook may hold a signal.py or a json.py.
    command = [sys.executable, "-P", "-m", "nbkit.telemetry.sampler"]
    command += ["--output", str(output.absolute()), "--interval", str(interval_seconds)]
    command += ["--parent-fd", str(read_end)]
    for pid in process_roots:
        command += ["--process-root", str(pid)]
    if gpu_uuids is not None and not gpu_uuids:
        command += ["--no-gpus"]
    for uuid in gpu_uuids or ():
        command += ["--gpu", uuid]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            pass_fds=[read_end],
        )
    except BaseException:
        os.close(write_end)
        raise
    finally:
        os.close(read_end)
    return SamplerProcess(process, write_end)


class SamplerProcess:
    """A running sampler; made by `start_sampler`."""

    def __init__(self, process: subprocess.Popen[bytes], write_end: int) -> None:
        self._process = process
        self._write_end = write_end

    @property
    def pid(self) -> int:
        """The sampler's process id."""
        return self._process.pid

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs; not 0 if it could not write."""
        return self._process.poll()

    def stop(self, timeout_seconds: float = 5.0) -> int | None:
        """Take a last sample, end the sampler and return its exit code."""
        # A process that hangs in the driver cannot even be killed: after the time-out
        # it is sent SIGKILL and left to the kernel, and None is returned.
        if self._write_end >= 0:
            os.close(self._write_end)
            self._write_end = -1
        try:
            return self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.poll()
