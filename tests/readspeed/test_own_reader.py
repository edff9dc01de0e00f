"""The own reader in several processes: the same work, the same errors, none left."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from nbkit.errors import NbkitError
from nbkit.readspeed import measure, own_reader, resident_share
from nbkit.readspeed.cache import make_cold
from nbkit.readspeed.meter import Meter
from nbkit.readspeed.own_reader import OwnReader
from nbkit.readspeed.work import Work, work_on
from tests.waiting import wait_until

MEGABYTE = 2**20
OPERATION = 64 * 1024


@pytest.fixture(autouse=True)
def cpus(monkeypatch):
    """Let there be four CPUs."""
    monkeypatch.setattr(own_reader, "usable_cpus", lambda: 4.0)


def work(file, threads=8, pattern="random"):
    return work_on(
        [file],
        pattern,
        operation_bytes=OPERATION,
        total_bytes=2**30,
        threads=threads,
        direct=False,
    )


def children():
    """Return the processes that read; a worker of pytest has others beside them."""
    found = psutil.Process().children()
    return [one for one in found if "nbkit.readspeed.own_reader" in one.cmdline()]


def test_processes_read_everything_once_and_are_used_again(file):
    nowhere = Path("/proc/self/status")  # of no device: the processes' counters tell
    make_cold(file)
    with OwnReader(work(file)) as own:
        own.start()
        began = [child.pid for child in children()]
        for seed in range(2):
            with Meter(nowhere, period_seconds=3600) as meter:
                assert own.read(seed, meter.watch) > 0
            [one] = meter.intervals
            # Beside it each is told to begin, in a line.
            operations = one.operations_per_second * one.seconds
            assert operations == pytest.approx(128 + len(began))
            assert one.bytes_per_second * one.seconds == pytest.approx(
                8 * MEGABYTE, rel=1e-4
            )
        assert [child.pid for child in children()] == began

    assert len(began) == own.num_processes == 4
    assert not children()
    assert resident_share(file) == 1.0


def test_what_this_process_reads_before_is_not_counted(file):
    nowhere = Path("/proc/self/status")
    with (
        OwnReader(work(file)) as own,
        Meter(nowhere, period_seconds=0.001) as meter,
    ):
        wait_until(lambda: file.read_bytes() and len(meter.intervals) > 1, "looks")

        own.read(0, meter.watch)

    lengths = [0.0, *(one.seconds for one in meter.intervals)]
    read = sum(
        one.bytes_per_second * (now - before)
        for (before, now), one in zip(pairwise(lengths), meter.intervals, strict=True)
    )
    assert read == pytest.approx(8 * MEGABYTE, rel=1e-4)


@pytest.mark.parametrize(
    ("cpus", "threads", "processes"), [(2.9, 8, 2), (0.5, 8, 1), (256, 64, 32)]
)
def test_there_are_as_many_as_can_run(file, monkeypatch, cpus, threads, processes):
    monkeypatch.setattr(own_reader, "usable_cpus", lambda: cpus)

    found = measure(
        file,
        pattern="random",
        operation_bytes=OPERATION,
        threads=threads,
        repeats=1,
        engine="own",
    )

    assert found.num_processes == processes


@pytest.mark.parametrize("engine", ["own", "fio"])
def test_one_thread_and_fio_need_no_process_beside_this_one(file, engine):
    seen = []
    found = measure(
        file,
        engine=engine,
        threads=1 if engine == "own" else 4,
        operation_bytes=OPERATION,
        repeats=2,
        on_repeat=lambda number: seen.extend(children()),
    )

    assert found.num_processes == 1
    assert not seen


def test_an_error_of_a_process_is_raised_as_it_is(file):
    operations = ((0, 0, MEGABYTE),), ((0, 8 * MEGABYTE, MEGABYTE),)
    broken = Work((file,), "sequential", MEGABYTE, 2, False, operations)

    with (
        OwnReader(broken) as own,
        pytest.raises(OSError, match="became shorter") as raised,
    ):
        own.read(0)

    assert raised.value.filename == str(file)
    assert not children()


def test_after_an_error_the_work_can_be_done_again(file):
    with OwnReader(work(file)) as own:
        own.start()
        children()[0].kill()
        with pytest.raises(NbkitError):
            own.read(0)

        assert own.read(0) > 0


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (None, r"cannot start \(.*No such file.*\); threads=1 reads"),
        ("exit 1", r"exit status 1 \(no reason given\); threads=1 reads"),
        ("echo No module named nbkit >&2", r"status 0 \(No module named nbkit\); thr"),
    ],
)
def test_a_process_that_cannot_start_is_said(
    file, tmp_path, monkeypatch, program, said
):
    python = tmp_path / "python"
    if program is not None:
        python.write_text(f"#!/bin/sh\n{program}\n")
        python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))

    with OwnReader(work(file)) as own, pytest.raises(NbkitError, match=said):
        own.start()

    assert not children()


def test_a_thread_that_cannot_start_is_said(file):
    with OwnReader(work(file, threads=16)) as own:
        own.start()
        for child in children():
            limit = child.memory_info().vms + MEGABYTE
            child.rlimit(resource.RLIMIT_AS, (limit, limit))

        with pytest.raises(NbkitError, match="thread; read with fewer threads"):
            own.read(0)

    assert not children()


def test_a_process_that_ends_is_said(file):
    with OwnReader(work(file)) as own:
        own.start()
        children()[2].kill()

        with pytest.raises(
            NbkitError, match=r"ended with exit status -9 .*threads=1 reads"
        ):
            own.read(0)

    assert not children()


READS = """
import sys, nbkit
from nbkit.readspeed import own_reader
own_reader.usable_cpus = lambda: 4.0
nbkit.readspeed.measure(
    sys.argv[1], engine="own", pattern="random", repeats=10**6,
    total_bytes=2**23, on_repeat=lambda number: print(number, flush=True),
)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_processes_end_with_the_one_that_asked(tmp_path, how):
    with subprocess.Popen(
        [sys.executable, "-c", READS, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout
        assert process.stderr
        assert [process.stdout.readline() for _ in "01"] == ["0\n", "1\n"]
        readers = psutil.Process(process.pid).children()
        assert len(readers) == 4
        os.killpg(process.pid, how)  # as Jupyter interrupts a kernel
        process.stdout.read()
        said = process.stderr.read()

    wait_until(lambda: not any(one.is_running() for one in readers), "they end")
    if how is signal.SIGINT:
        assert said.count("Traceback") == 1
        assert said.endswith("KeyboardInterrupt\n")
        assert not list(tmp_path.iterdir())
