"""`nbkit doctor`: checks of this machine, with fixes.

It only collects: each package has its checks in ``nbkit/<package>/health.py``, which
run concurrently, each in a separate process that is abandoned when it hangs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import IO

from nbkit.cli.command import Commands, add_command
from nbkit.cli.text import say, wrapped, write_json, write_lines
from nbkit.findings import Finding
from nbkit.plural import plural

ROOMS = {
    "This machine": ("nbkit.telemetry.health",),
    "Training": ("nbkit.worker.health",),
    "Starting runs": ("nbkit.launch.health",),
    "Store": ("nbkit.store.health", "nbkit.readspeed.health"),
    "Images": ("nbkit.datasets.health",),
    "JupyterLab": ("nbkit.server.health", "nbkit.studies.health"),
}
"""Headings, and the modules whose results come below each."""

_GPU_MARGIN_SECONDS = 5.0
"""For the ranks on the GPUs to end, and for the result to be written."""
_LIMIT_SECONDS = 120.0
"""Importing torch from a slow file server takes a minute."""
_KILLED_SECONDS = 2.0
_WIDTH = 80
_WHAT_WIDTH = 17
_INDENT = " " * 9


@contextmanager
def examine(module: str, *arguments: str) -> Iterator[Examination]:
    """Run the checks of a module in a separate process, which has ended at the end."""
    # Files take any length; a pipe without a reader would block it.
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        # -P: a notebook's folder may hold a signal.py or a json.py.
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
        )
        try:
            yield Examination(module, process, output, errors)
        finally:
            if process.poll() is None:
                process.kill()
                # One that hangs in a driver is left to it.
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_KILLED_SECONDS)


@dataclass(frozen=True)
class Examination:
    """The checks of one module, under way; made by `examine`."""

    module: str
    process: subprocess.Popen[bytes]
    output: IO[bytes]
    errors: IO[bytes]

    def results(self, deadline: float) -> Iterator[Finding]:
        """Yield what it has found until then, and whether it has finished."""
        code: int | None = None
        with suppress(subprocess.TimeoutExpired):
            code = self.process.wait(max(0.0, deadline - time.monotonic()))
        last = "its start"
        for line in _read(self.output).splitlines(keepends=True):
            if line.endswith("\n"):
                result = Finding(**json.loads(line))
                last = f"the check {result.subject!r}"
                yield result
        if code is None:
            evidence = f"{self.module} does not respond after {last}"
            action = (
                "check dmesg for a driver or file server error; to see each check, run "
                f"python -m {self.module}"
            )
            yield Finding("Checks", "error", evidence, action)
        elif code:
            stderr_lines = _read(self.errors).strip().splitlines()[-1:] or ["no output"]
            evidence = f"{self.module} ended after {last} with exit code {code}: "
            action = f"to see its full output, run python -m {self.module}"
            yield Finding("Checks", "error", evidence + stderr_lines[0], action)


def doctor(
    limit_seconds: float = _LIMIT_SECONDS,
) -> Iterator[tuple[str, Finding]]:
    """Yield the heading and the result of every check, in the order of headings."""
    checks = [(heading, [name]) for heading, names in ROOMS.items() for name in names]
    return _results(checks, limit_seconds)


def doctor_of_gpus(
    limit_seconds: float = _LIMIT_SECONDS,
) -> Iterator[tuple[str, Finding]]:
    """Yield the same for the GPUs only, and for an all-reduce over the free ones."""
    # All processes share the clock; one of them may take seconds to start.
    deadline = time.monotonic() + limit_seconds - _GPU_MARGIN_SECONDS
    checks = [
        ("GPUs", ["nbkit.telemetry.gpu_health"]),
        ("GPUs together", ["nbkit.launch.gpu_health", f"--deadline={deadline}"]),
    ]
    return _results(checks, limit_seconds)


def _results(
    checks: Sequence[tuple[str, Sequence[str]]], limit_seconds: float
) -> Iterator[tuple[str, Finding]]:
    deadline = time.monotonic() + limit_seconds
    with ExitStack() as stack:
        under_way = [
            (heading, stack.enter_context(examine(*command)))
            for heading, command in checks
        ]
        for heading, examination in under_way:
            for result in examination.results(deadline):
                yield heading, result


def lines_of(result: Finding) -> list[str]:
    """Return a result as lines of at most 80 letters; a long word is not cut."""
    indent = _INDENT + " " * (_WHAT_WIDTH + 1)
    lines = wrapped(result.evidence, _WIDTH, indent) or [""]
    what = f"{result.severity:<9}{result.subject:<{_WHAT_WIDTH}} "
    if len(what) > len(indent):
        lines.insert(0, what)
    else:
        lines[0] = what + lines[0].removeprefix(indent)
    if result.action:
        lines += wrapped(f"-> {result.action}", _WIDTH, indent)
    return [line.rstrip() for line in lines]


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "doctor",
        _work,
        summary="check this machine and show how to fix problems",
        description="Check Python, CPUs, memory, GPUs and driver, torch and DALI, the "
        "device pool, Slurm, the store, JupyterLab and the notebooks. An error "
        "prevents common uses of this machine; a warning affects performance or "
        "only one feature. A missing GPU is not an error, but a GPU that torch cannot "
        "use is an error. With --gpus, check only the GPUs and an all-reduce over the "
        "free GPUs. The exit code is 1 if there is an error, else 0.",
        example="nbkit doctor --json > doctor.json",
    )
    parser.add_argument(
        "--gpus",
        action="store_true",
        help="check only the GPUs and an all-reduce over the free GPUs",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--limit",
        type=_seconds,
        metavar="SECONDS",
        help="time limit for all checks together, in seconds; a check that exceeds it "
        f"fails (default: {_LIMIT_SECONDS:g})",
    )


def _seconds(text: str) -> float:
    try:
        if (seconds := float(text)) >= 1:
            return seconds
    except ValueError:
        pass
    message = f"{text!r} is not a number of seconds (minimum 1)"
    raise argparse.ArgumentTypeError(message)


def _work(arguments: argparse.Namespace) -> int:
    check = doctor_of_gpus if arguments.gpus else doctor
    if sys.stderr.isatty():
        what = "the GPUs" if arguments.gpus else "everything"
        say(f"Checking {what}; importing torch may take a minute.")
    results: list[tuple[str, Finding]] = []
    before = ""
    for heading, result in check(arguments.limit or _LIMIT_SECONDS):
        results.append((heading, result))
        if not arguments.json:
            title = [] if heading == before else ["", heading] if before else [heading]
            write_lines([*title, *lines_of(result)])
            before = heading
    failed = sum(result.severity == "error" for _, result in results)
    warned = sum(result.severity == "warning" for _, result in results)
    if arguments.json:
        rows = [{"part": heading, **asdict(result)} for heading, result in results]
        write_json({"works": not failed, "findings": rows})
    else:
        counts = [(failed, "error"), (warned, "warning")]
        words = [plural(count, word) for count, word in counts if count]
        verdict = f"{' and '.join(words)}." if words else "No problems found."
        write_lines(["", verdict])
    return 1 if failed else 0


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")
