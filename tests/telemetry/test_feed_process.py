"""The process that feeds viewers: how it ends, what it costs, a reader that is slow."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import select
import signal
import subprocess
import sys
from contextlib import contextmanager

import psutil
import pytest

from nbkit.telemetry import feed, sampler
from tests.waiting import wait_until


def test_it_ends_by_sigterm_and_not_by_an_interrupt(feed, drive_child):
    drive_child()
    child = feed()
    child.wait("sample")

    child.process.send_signal(signal.SIGINT)
    child.wait_for_next("sample")
    child.process.send_signal(signal.SIGTERM)

    assert child.process.wait(60) == 0
    assert child.errors == ""


@contextmanager
def many_files():
    """Let this process, and those that it starts, have more than 1,024 files open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (2048, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("name", ["feed", "sampler"])
def test_the_pipe_of_a_parent_with_many_files_is_heard(drive_child, tmp_path, name):
    drive_child()
    output = tmp_path / "output"
    module = ["-P", "-m", f"nbkit.telemetry.{name}", "--interval", "0.25"]
    options = ["--output", str(output)] if name == "sampler" else []
    read_end, write_end = os.pipe()
    with many_files(), output.open("wb") as stdout:
        os.dup2(read_end, 1500)
        with subprocess.Popen(
            [sys.executable, *module, *options, "--parent-fd", "1500"],
            stdin=subprocess.PIPE,
            stdout=stdout,
            pass_fds=[1500],
        ) as process:
            os.close(read_end)
            os.close(1500)
            wait_until(lambda: output.read_bytes().count(b"\n") > 2, "samples")
            os.close(write_end)
            assert process.wait(60) == 0


def test_it_ends_when_nobody_reads_any_more(drive_child):
    drive_child()
    command = [sys.executable, "-P", "-m", "nbkit.telemetry.feed"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        process.stdout.close()

        assert process.wait(60) == 0


def test_a_reader_that_stops_reading_misses_samples_and_holds_up_nothing(drive_child):
    drive_child(*({"uuid": f"GPU-{n}"} for n in range(8)))
    command = [sys.executable, "-P", "-m", "nbkit.telemetry.feed", "--interval", "0.25"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        # Not even the first inventory fits into one page.
        fcntl.fcntl(process.stdout.fileno(), fcntl.F_SETPIPE_SZ, 4096)
        child = psutil.Process(process.pid)
        wait_until(lambda: select.select([process.stdout], [], [], 0)[0], "output")
        begun = child.num_ctx_switches().voluntary
        # It sleeps two or three times a tick.
        wait_until(lambda: child.num_ctx_switches().voluntary > begun + 24, "ticks")
        run = {"run_id": "r1", "name": "new", "devices": ["GPU-0"], "pids": []}
        line = json.dumps({"runs": [{**run, "path": None}]})
        process.stdin.write(f"{line}\n".encode())
        process.stdin.flush()
        begun = child.num_ctx_switches().voluntary
        wait_until(lambda: child.num_ctx_switches().voluntary > begun + 9, "ticks")

        lines = [process.stdout.readline()]
        while b'"r1"' not in lines[-1]:
            lines.append(process.stdout.readline())
        process.stdin.close()
        process.stdout.close()
        assert process.wait(60) == 0

    # Of eight ticks or more; the reader makes room for some while it reads.
    assert len(lines) <= 5


@pytest.mark.parametrize("module", [feed, sampler])
def test_interval_below_the_minimum(capsys, module):
    output = ["--output", "host.jsonl"] if module is sampler else []
    with pytest.raises(SystemExit) as caught:
        module.main([*output, "--interval", "0.1"])

    assert caught.value.code == 2
    assert "at least 0.25 s, got 0.1" in capsys.readouterr().err


def test_it_imports_nothing_that_it_does_not_need():
    code = "import sys, nbkit.telemetry.feed; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()

    unwanted = {"asyncio", "pydantic", "PIL", "tornado", "torch", "numpy", "pynvml"}
    assert unwanted.isdisjoint(loaded)
