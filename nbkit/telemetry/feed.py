"""The Jupyter server's view of this machine: GPUs, their processes, the host.

``python -m nbkit.telemetry.feed --interval 1`` writes lines of JSON to stdout: an
inventory, first and whenever it changed, and a sample at each tick. On stdin it is
given, in lines of JSON, the kernels and runs. It ends when its parent closes stdin
or the pipe of ``--parent-fd``, ends in any way, or sends SIGTERM. It is a separate
process because a call of NVML can hang in the driver; the GPUs are read in a thread, so
that the rest continues meanwhile.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from typing import Any

from nbkit import clock
from nbkit.telemetry import frames
from nbkit.telemetry.gpu_reader import GpuReader, GpuReading, GpuThread
from nbkit.telemetry.gpu_source import SourceSetting
from nbkit.telemetry.holders import HolderFinder, Kernel, ReportedRun
from nbkit.telemetry.host import HostReader
from nbkit.telemetry.machine_history import HistoryThread
from nbkit.telemetry.sample import HostSample
from nbkit.telemetry.sampler import add_child_options

_PATIENCE_SECONDS = 3.0
"""How long a tick waits for the driver, before the host is shown without the GPUs."""


class _Output:
    """Lines of JSON to a reader that may be slow: it then misses samples."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._unsent = b""
        os.set_blocking(fd, False)

    @property
    def is_full(self) -> bool:
        """Whether something waits to be read."""
        return bool(self._unsent)

    def write(self, values: dict[str, Any]) -> None:
        """Write a line, or keep it until the reader takes it."""
        text = json.dumps(values, allow_nan=False, separators=(",", ":"))
        self._unsent += text.encode() + b"\n"
        self.flush()

    def flush(self) -> None:
        """Write as much as the pipe accepts."""
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(self.fd, self._unsent) :]
        except BlockingIOError:
            pass  # `poll` tells when the reader took something.


class Feed:
    """Writes readings as lines of JSON."""

    def __init__(
        self,
        output: _Output,
        setting: SourceSetting,
        gpus: GpuThread,
        past: HistoryThread,
        interval_seconds: float,
        run_marker: str | None,
    ) -> None:
        self._output = output
        self._setting = setting
        self._gpus = gpus
        self._past = past
        self.interval_seconds = interval_seconds
        self._hostname = socket.gethostname()
        self._host = HostReader(per_core=True)
        self._share = frames.HostShareReader()
        self._holders = HolderFinder(run_marker)
        self._rates = frames.Rates()
        self._reading = GpuReading()
        self._inventory: dict[str, Any] = {}
        self._unavailable: dict[str, Any] | None = None
        self._is_silent = False

    def silent_at(self) -> float:
        """Return the time at which the driver counts as not answering."""
        asked_at = self._gpus.asked_at
        if asked_at is None or self._is_silent:
            return math.inf
        return asked_at + _PATIENCE_SECONDS

    def tick(self) -> None:
        """Begin a sample; it is written when the GPUs have answered."""
        asked_at = self._gpus.asked_at
        if asked_at is None:
            self._gpus.ask()
        elif time.monotonic() - asked_at >= _PATIENCE_SECONDS:
            self._write_sample(None)

    def wake(self) -> None:
        """Write the results of the threads."""
        reading = self._gpus.take()
        if reading is not None:
            self._reading = reading
            self._write_sample(reading)
        # The past waits for a reader that is slow, as its thread does then.
        while not self._output.is_full and (rows := self._past.take()) is not None:
            self._output.write({"kind": "past", "rows": rows})

    def handle_command(self, line: bytes) -> None:
        """Handle a command of the parent; report an invalid one on stderr."""
        try:
            self._apply(json.loads(line))
        except (ValueError, TypeError, AttributeError) as error:
            message = (
                f"command {line[:200]!r} is not valid ({error}). Send an object with "
                "the keys of Feed.handle_command.\n"
            )
            sys.stderr.write(message)

    def _apply(self, command: dict[str, Any]) -> None:
        for key, value in command.items():
            match key:
                case "kernels":
                    self._holders.set_kernels([Kernel(**kernel) for kernel in value])
                case "runs":
                    self._holders.set_runs([ReportedRun(**run) for run in value])
                case "hide_commands_of_others":
                    self._holders.hide_commands_of_others = bool(value)
                case "read_history":
                    self._past.ask([str(path) for path in value])
                case _:
                    message = f"unknown key {key!r}"
                    raise ValueError(message)

    def _write_sample(self, reading: GpuReading | None) -> None:
        """Write a sample, after the inventory if that changed."""
        t = round(clock.now(), 3)
        self._is_silent = reading is None
        last = self._reading
        by_gpu = [
            self._holders.find(
                gpu.uuid,
                gpu.processes,
                instances=[mig.uuid for mig in gpu.mig_instances or ()],
                pids_are_here=last.pids_are_here,
                reported_holders=last.reported_holders,
            )
            for gpu in last.gpus
        ]
        pids = (process.pid for gpu in last.gpus for process in gpu.processes or ())
        self._holders.forget_all_but(pid for pid in pids if pid is not None)
        self._note_unavailable(last if reading else None, t)
        host = self._host.read()
        self._write_inventory([holders for holders, _ in by_gpu], host, t)
        values = {
            "kind": "sample",
            "t": t,
            "host": self._hostname,
            "gpus": [
                frames.gpu_row(gpu, self._rates) if reading else None
                for gpu in last.gpus
            ],
            "holders": [
                frames.memory_row(memory if reading else [None] * len(memory))
                for _, memory in by_gpu
            ],
            "mig": [
                None
                if reading is None or gpu.mig_instances is None
                else frames.memory_row([m.memory_used_bytes for m in gpu.mig_instances])
                for gpu in last.gpus
            ],
            "cores": host.cores_percent or (),
            "host_values": frames.host_row(host, t, self._rates),
        }
        # What the parent did not read yet is older, but not lost in part.
        if not self._output.is_full:
            self._output.write(values)

    def _write_inventory(self, holders: list[Any], host: HostSample, t: float) -> None:
        inventory = {
            "host": self._hostname,
            "interval_seconds": self.interval_seconds,
            "gpus_unavailable": self._unavailable,
            **frames.inventory(
                self._reading, holders, self._setting, host, self._share.read()
            ),
        }
        if inventory != self._inventory:
            self._inventory = inventory
            self._output.write({"kind": "inventory", "t": t, **inventory})

    def _note_unavailable(self, reading: GpuReading | None, t: float) -> None:
        if reading is None:
            asked_at = self._gpus.asked_at or time.monotonic()
            reason, since = "driver not answering", t - (time.monotonic() - asked_at)
            message = (
                "GPUs cannot be read (driver not answering): a driver call does not "
                "return. Check dmesg for Xid messages; if the call keeps hanging, "
                "reset the GPU or reboot."
            )
        else:
            reason, message, since = reading.reason, reading.message, t
        if reason is None:
            self._unavailable = None
        elif self._unavailable is None or self._unavailable["reason"] != reason:
            since = round(since, 3)
            self._unavailable = {"reason": reason, "message": message, "since": since}


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m nbkit.telemetry.feed",
        description="Write samples of this machine to stdout as JSON lines.",
    )
    add_child_options(parser)
    parser.add_argument(
        "--gpu",
        action="append",
        default=[],
        metavar="UUID",
        help="read only this GPU (UUID or NVML index; may be repeated; default: the "
        "GPUs in CUDA_VISIBLE_DEVICES)",
    )
    parser.add_argument(
        "--run-marker",
        metavar="NAME",
        help="environment variable that contains the run id in the processes of a run",
    )
    return parser.parse_args(argv)


class _Loop:
    """Waits for the parent, the threads and the next tick."""

    def __init__(self, feed: Feed, gpus: GpuThread, output: _Output) -> None:
        self._feed = feed
        self._gpus = gpus
        self._output = output
        self._unread = b""
        self.ending = False

    def run(self, stdin: int, wake: int, parent: int | None) -> int:
        """Run until the end is requested; return the exit code."""
        poll = select.poll()  # `select.select` refuses descriptors above 1023.
        for fd in (stdin, wake, parent):
            if fd is not None:
                poll.register(fd, select.POLLIN)
        due = time.monotonic()
        while not self.ending:
            wait = max(0.0, min(due, self._feed.silent_at()) - time.monotonic())
            sink = select.POLLOUT if self._output.is_full else 0
            poll.register(self._output.fd, sink)
            ready = dict(poll.poll(math.ceil(1000 * wait)))
            if parent in ready or (stdin in ready and not self._listen(stdin)):
                return 0
            if ready.get(self._output.fd, 0) & (select.POLLERR | select.POLLHUP):
                return 0  # No process reads any more.
            if wake in ready:
                os.read(wake, 1 << 12)
            self._output.flush()
            self._feed.wake()
            if self._gpus.failed:
                return 1
            now = time.monotonic()
            if now >= min(due, self._feed.silent_at()):
                self._feed.tick()
            if now >= due:
                # Times are multiples of the interval; a slow tick skips some.
                interval = self._feed.interval_seconds
                due += interval * (1 + (now - due) // interval)
        return 0

    def _listen(self, stdin: int) -> bool:
        """Obey the lines that came; tell whether more may come."""
        data = os.read(stdin, 1 << 16)
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            self._feed.handle_command(line)
        return bool(data)


def main(argv: Sequence[str] | None = None) -> int:
    """Write readings until the end is requested; return the exit code."""
    arguments = _parse(argv)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    os.set_blocking(wake_read, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    # Ctrl-C is the parent's business: it may ask before it ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    setting = SourceSetting.from_environment()
    gpus = GpuThread(GpuReader(setting, arguments.gpu), wake_write)
    gpus.start()
    output = _Output(sys.stdout.fileno())
    past = HistoryThread(wake_write)
    interval, marker = arguments.interval, arguments.run_marker
    feed = Feed(output, setting, gpus, past, interval, marker)
    loop = _Loop(feed, gpus, output)
    signal.signal(signal.SIGTERM, lambda *_: setattr(loop, "ending", True))
    try:
        return loop.run(sys.stdin.fileno(), wake_read, arguments.parent_fd)
    except BrokenPipeError:
        return 0  # No process reads any more.


if __name__ == "__main__":
    # An orderly exit may wait for what a thread that hangs in the driver holds.
    os._exit(main())
