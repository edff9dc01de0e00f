"""Samples of this machine: one class, and the child process that stores them.

``python -m nbkit.telemetry.sampler --output FILE --parent-fd N`` appends a header and
then a line of JSON a second, until its parent closes the pipe, ends in any way, or
sends SIGTERM. It is a separate process because a call of NVML can hang in the driver:
then only this process waits. `nbkit.telemetry.child` starts it.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import socket
import stat
import sys
import threading
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from nbkit import clock
from nbkit.errors import NvmlUnavailableError
from nbkit.telemetry.host import HostReader
from nbkit.telemetry.nvml import Nvml, describe_gpus, open_nvml
from nbkit.telemetry.sample import SCHEMA, Sample

MIN_INTERVAL_SECONDS = 0.25
"""NVML renews its readings every 1/6 to 1 s: asking more often repeats them."""

_RETRY_SECONDS = 30.0
"""How often NVML is tried again where it is unavailable; a failed try takes 0.03 ms."""

_GRACE_SECONDS = 2.0
"""How long the last sample may take once the end was asked for."""

_LONGEST_LINE_BYTES = 1 << 20
"""No line is longer: 16 GPUs with 64 processes each make 100 kB."""


class Sampler:
    """Reads GPUs and host together; a MIG instance is read as its GPU."""

    def __init__(
        self,
        *,
        gpu_uuids: Collection[str] | None = None,
        process_roots: Sequence[int] = (),
    ) -> None:
        self._gpu_uuids = gpu_uuids
        self._host = HostReader(process_roots)
        self._nvml: Nvml | None = None
        self._gpus_unavailable: str | None = None
        self._next_try = 0.0
        self._open()

    def read(self) -> Sample:
        """Return one reading; a part that cannot be read affects no other."""
        # Rates and shares in it are those since the previous call.
        t = clock.now()
        if self._nvml is None and time.monotonic() >= self._next_try:
            self._open()
        return Sample(
            t=round(t, 3),
            gpus=self._nvml.read(self._gpu_uuids) if self._nvml else (),
            gpus_unavailable=self._gpus_unavailable,
            host=self._host.read(),
        )

    def header(self) -> dict[str, Any]:
        """Return the facts common to all samples, as JSON values: host and GPUs."""
        return {
            "kind": "header",
            "schema": SCHEMA,
            "t": round(clock.now(), 3),
            "hostname": socket.gethostname(),
            **describe_gpus(self._nvml),
        }

    def _open(self) -> None:
        try:
            # The only witness of why a GPU ended a run.
            self._nvml = open_nvml(xid_events=True)
            self._gpu_uuids = _gpus_of(self._nvml, self._gpu_uuids)
            self._gpus_unavailable = None
        except NvmlUnavailableError as error:
            self._gpus_unavailable = error.reason
            self._next_try = time.monotonic() + _RETRY_SECONDS


def _gpus_of(nvml: Nvml, uuids: Collection[str] | None) -> Collection[str] | None:
    """Return the GPUs that are meant, or contain the MIG instances that are meant."""
    if not any(uuid.startswith("MIG-") for uuid in uuids or ()):
        return uuids
    selected = set(uuids or ())
    return {
        str(gpu.uuid)
        for gpu in nvml.read()
        if selected & {gpu.uuid, *(mig.uuid for mig in gpu.mig_instances or ())}
    }


class _LineFile:
    """Appends lines of JSON, each with one system call; never leaves half a line."""

    def __init__(self, path: Path) -> None:
        # Only the last folder: a run folder that vanished is not made again.
        path.parent.mkdir(0o755, exist_ok=True)
        # Not through a link, which others may have made in an older folder.
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        self._fd = os.open(path, flags, 0o644)
        status = os.fstat(self._fd)
        self._is_file = stat.S_ISREG(status.st_mode)
        if self._is_file:
            # Cut off what a predecessor began and could not finish.
            start = max(0, status.st_size - _LONGEST_LINE_BYTES)
            tail = os.pread(self._fd, status.st_size - start, start)
            os.ftruncate(self._fd, start + tail.rfind(b"\n") + 1)

    def write(self, values: dict[str, Any]) -> None:
        line = json.dumps(values, allow_nan=False, separators=(",", ":")) + "\n"
        data = line.encode()
        size = os.fstat(self._fd).st_size
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError:
            if self._is_file:
                os.ftruncate(self._fd, size)
            raise
        if not os.fstat(self._fd).st_nlink:
            message = "the file was removed"
            raise FileNotFoundError(message)


class _Recorder(threading.Thread):
    """Samples in a thread, so that the main thread can end a process that hangs."""

    def __init__(self, arguments: argparse.Namespace, wake_fd: int) -> None:
        super().__init__(name="nbkit-sampler", daemon=True)
        self._arguments = arguments
        self._wake_fd = wake_fd
        self._ending = threading.Event()
        self.failed = False

    def run(self) -> None:
        """Write the header, then samples until the end; wake the main thread."""
        try:
            self._record()
        except OSError as error:
            self.failed = True
            reason = error.strerror or error
            message = (
                f"{self._arguments.output} cannot be written ({reason}), so "
                "sampling ends. Check free space and permissions of its folder.\n"
            )
            sys.stderr.write(message)
        except BaseException:
            self.failed = True
            raise
        finally:
            os.write(self._wake_fd, b"\0")

    def finish(self) -> None:
        """Ask for a last sample and wait for it, but not for a driver that hangs."""
        self._ending.set()
        self.join(_GRACE_SECONDS)
        if self.is_alive():
            message = (
                f"The GPU driver has not answered for {_GRACE_SECONDS:g} s, so the "
                "last sample is missing. Check dmesg and nvidia-smi.\n"
            )
            sys.stderr.write(message)

    def _record(self) -> None:
        arguments = self._arguments
        interval = arguments.interval
        file = _LineFile(arguments.output)
        sampler = Sampler(gpu_uuids=arguments.gpu, process_roots=arguments.process_root)
        file.write({**sampler.header(), "interval_seconds": interval})
        began = time.monotonic()
        ending = False
        while True:
            file.write({"kind": "sample", **sampler.read().to_dict()})
            if ending:
                return
            # Times are multiples of the interval; a slow reading skips some.
            passed = time.monotonic() - began
            ending = self._ending.wait(interval - passed % interval)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m nbkit.telemetry.sampler",
        description="Append samples of this machine to a file as JSON lines.",
    )
    parser.add_argument("--output", type=Path, required=True, metavar="FILE")
    add_child_options(parser)
    parser.add_argument(
        "--process-root",
        type=int,
        action="append",
        default=[],
        metavar="PID",
        help="also record the CPU time of this process tree; may be repeated",
    )
    gpus = parser.add_mutually_exclusive_group()
    gpus.add_argument(
        "--gpu",
        action="append",
        metavar="UUID",
        help="read this GPU only; may be repeated (default: all GPUs)",
    )
    gpus.add_argument(
        "--no-gpus", action="store_const", dest="gpu", const=[], help="read no GPU"
    )
    return parser.parse_args(argv)


def add_child_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of every process that reads this machine for a parent."""
    parser.add_argument(
        "--interval", type=to_interval, default=1.0, metavar="SECONDS", help="default 1"
    )
    parser.add_argument(
        "--parent-fd",
        type=int,
        metavar="N",
        help="read end of a pipe; the process exits when the write end is closed",
    )


def to_interval(text: str) -> float:
    """Return an argument as seconds between two samples."""
    try:
        seconds = float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if not MIN_INTERVAL_SECONDS <= seconds < float("inf"):
        message = f"must be finite and at least {MIN_INTERVAL_SECONDS} s, got {text}"
        raise argparse.ArgumentTypeError(message)
    return seconds


def main(argv: Sequence[str] | None = None) -> int:
    """Write samples until the end is requested; return the exit code."""
    arguments = _parse(argv)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    # With a parent, Ctrl-C is the parent's business: it may ask before it ends.
    has_parent = arguments.parent_fd is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    if has_parent:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    recorder = _Recorder(arguments, wake_write)
    recorder.start()
    poll = select.poll()  # `select.select` refuses descriptors above 1023.
    for fd in (wake_read, *([arguments.parent_fd] if has_parent else [])):
        poll.register(fd, select.POLLIN)
    poll.poll()
    recorder.finish()
    return int(recorder.failed)


if __name__ == "__main__":
    # An orderly exit may wait for what a thread that hangs in the driver holds.
    os._exit(main())
