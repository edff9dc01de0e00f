"""`nbkit monitor`: the sidebar's table of GPUs with their holders, in a terminal.

The readings come from the same kind of process as in the Jupyter server; it ends with
this one. Only a Jupyter server knows its kernels; here a kernel is shown as a process.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import IO, Any

from nbkit.cli.command import Commands, add_command
from nbkit.cli.text import write_json, write_lines
from nbkit.errors import StoreError, TelemetryError
from nbkit.visible import visible

_INTERVAL_SECONDS = 1.0
_LOOK_SECONDS = 2.0
"""How often the store is checked for active runs."""
_END_SECONDS = 5.0
_HOME = "\x1b[H"
_REST_OF_LINE = "\x1b[K"
_REST_OF_SCREEN = "\x1b[J"

Values = dict[str, Any]


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "monitor",
        _monitor,
        summary="show the GPUs and their processes, as in the sidebar",
        description="Show utilization, memory (GiB), power (W), temperature (C), "
        "clock (MHz) and processes of each GPU until Ctrl-C. "
        "NBKIT_GPU_SOURCE=replay:eight-gpus replays a synthetic trace instead, and "
        "NBKIT_GPU_SOURCE=replay:FILE a recorded trace.",
        example="nbkit monitor --interval 5",
    )
    parser.add_argument(
        "--interval",
        type=_interval,
        default=_INTERVAL_SECONDS,
        metavar="SECONDS",
        help="sampling interval in seconds, at least 0.25 (default: %(default)g)",
    )
    parser.add_argument(
        "--once", action="store_true", help="print one sample and exit, for scripts"
    )
    parser.add_argument(
        "--json", action="store_true", help="print one reading as JSON and exit"
    )


def _interval(text: str) -> float:
    from nbkit.telemetry.sampler import to_interval

    return to_interval(text)


def _monitor(arguments: argparse.Namespace) -> int:
    from nbkit.cli.gpu_table import gpu_table, gpu_values

    is_one = arguments.once or arguments.json
    with closing(_samples(arguments.interval)) as samples:
        if is_one:
            next(samples)  # it has no shares and rates, which need two readings
        for inventory, sample in samples:
            if arguments.json:
                write_json(gpu_values(inventory, sample))
            elif not is_one and sys.stdout.isatty():
                _redraw(gpu_table(inventory, sample))
            else:
                write_lines([*gpu_table(inventory, sample), *[""][is_one:]])
            if is_one:
                break
    return 0


def _redraw(lines: Sequence[str]) -> None:
    """Replace what is on the screen; a line that is too long is cut."""
    columns, rows = shutil.get_terminal_size()
    shown = [
        f"{visible(line)[:columns]}{_REST_OF_LINE}\n" for line in lines[: rows - 1]
    ]
    sys.stdout.write(_HOME + "".join(shown) + _REST_OF_SCREEN)
    sys.stdout.flush()


def _samples(interval_seconds: float) -> Generator[tuple[Values, Values], None, None]:
    """Yield each sample behind its inventory, without end."""
    from nbkit.server.run_table import StoredRunTable

    runs = StoredRunTable(None)
    looked_at = -_LOOK_SECONDS
    inventory: Values = {}
    with _run_feed(interval_seconds) as feed:
        feed.say(hide_commands_of_others=False)
        while True:
            if time.monotonic() - looked_at >= _LOOK_SECONDS:
                looked_at = time.monotonic()
                feed.say(runs=_active_runs(runs))
            line = feed.read()
            if line["kind"] == "inventory":
                inventory = line
            elif line["kind"] == "sample":
                yield inventory, line


def _active_runs(runs: Any) -> list[Values]:
    """Return the active runs in the form that the sampler's process reads."""
    try:
        return runs.poll([]).active
    except (StoreError, OSError):
        return []  # the GPUs are shown even if the store cannot be read


@contextmanager
def _run_feed(interval_seconds: float) -> Iterator[_Feed]:
    """Run the sampler's process, which ends when its standard input is closed."""
    from nbkit.server.monitor import FEED_COMMAND

    with tempfile.TemporaryFile() as errors:
        # -P: the current folder may hold a signal.py or a json.py.
        command = [sys.executable, "-P", *FEED_COMMAND]
        process = subprocess.Popen(
            [*command, "--interval", f"{interval_seconds:g}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        try:
            yield _Feed(process, errors)
        finally:
            for pipe in filter(None, (process.stdout, process.stdin)):
                with suppress(BrokenPipeError):  # it has ended already
                    pipe.close()
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()  # one that hangs in the driver is left to the kernel


class _Feed:
    """The sampler's process, as this one reads it."""

    def __init__(self, process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
        self._process = process
        self._errors = errors

    def say(self, **values: Any) -> None:
        """Send it values; if it has ended, `read` raises the reason."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(values).encode() + b"\n")
            self._process.stdin.flush()

    def read(self) -> Values:
        """Return the next line."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line.endswith(b"\n"):
            return json.loads(line)
        message = (
            f"The sampler process has ended ({self._last_line()}). Run nbkit doctor "
            "to find the problem."
        )
        raise TelemetryError(message)

    def _last_line(self) -> str:
        from nbkit.server.child import FRESH_SECONDS

        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        age_seconds = time.time() - os.fstat(self._errors.fileno()).st_mtime
        return lines[-1] if lines and age_seconds <= FRESH_SECONDS else "no output"
