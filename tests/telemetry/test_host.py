"""Readings of this host and of processes on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from nbkit.telemetry import host
from nbkit.telemetry.host import HostReader
from nbkit.telemetry.sample import HostSample, Sample
from tests.waiting import wait_until


def _burn_cpu_seconds(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_memory_adds_up_to_that_of_the_kernel():
    sample = HostReader().read()

    lines = Path("/proc/meminfo").read_text().splitlines()
    total = next(int(line.split()[1]) * 1024 for line in lines if "MemTotal" in line)
    assert sample.memory_used_bytes + sample.memory_available_bytes == total


def test_two_readers_do_not_spoil_each_others_cpu_percent():
    readers = [HostReader(), HostReader()]
    for reader in readers:
        reader.read()

    _burn_cpu_seconds(0.3)
    # Long enough after the first that the kernel's clock has moved between the two.
    first = readers[0].read().cpu_percent
    _burn_cpu_seconds(0.05)
    second = readers[1].read().cpu_percent

    lowest = 100 / os.cpu_count() / 4
    assert lowest < first <= 100
    assert lowest < second <= 100


def test_a_core_that_works_is_told_apart(monkeypatch):
    times = psutil.cpu_times(percpu=True)[0]._replace(idle=10.0, iowait=0.0)
    readings = [
        [times._replace(user=10.0), times._replace(user=10.0)],
        [times._replace(user=11.0), times._replace(user=10.0, iowait=1.0)],
        [times._replace(user=12.0)],
    ]
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: readings.pop(0))
    reader = HostReader(per_core=True)

    shares = [
        (it.cpu_percent, it.cores_percent) for it in (reader.read() for _ in "123")
    ]

    # A CPU that was switched off leaves no two readings to compare.
    assert shares == [(None, None), (50.0, (100, 0)), (None, None)]


def test_shares_of_cpus_go_to_json_and_back():
    sample = Sample(1.0, host=HostSample(50.0, (100, None)))

    assert Sample.from_dict(json.loads(json.dumps(sample.to_dict()))) == sample


def test_only_hardware_counts_and_not_what_lies_on_it(tmp_path):
    for name in ("nvme0n1", "eth0"):
        (tmp_path / name / "device").mkdir(parents=True)
    for name in ("dm-0", "loop0", "md127", "bond0", "docker0"):
        (tmp_path / name).mkdir()
    (tmp_path / "nvme-subsystem" / "nvme1n1" / "device").mkdir(parents=True)
    (tmp_path / "nvme1n1").symlink_to(tmp_path / "nvme-subsystem" / "nvme1n1")
    (tmp_path / "vf0" / "device").mkdir(parents=True)
    (tmp_path / "vf0" / "master").symlink_to(tmp_path / "eth0")

    assert host.hardware_in(tmp_path) == {"nvme0n1", "eth0"}
    assert host.hardware_in(tmp_path / "none") == set()


FAMILY = """
import os, signal, sys, time
child = os.fork()
end = time.process_time() + 0.2
while time.process_time() < end:
    pass
os.write(1, b'%d\\n' % os.getpid())
if not child:
    signal.pause()
sys.stdin.readline()
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
os.write(1, b'collected\\n')
sys.stdin.readline()
"""


@pytest.fixture
def family():
    """Start a process and its child, each with 0.2 s of CPU to its name."""
    process = subprocess.Popen(
        [sys.executable, "-c", FAMILY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    )
    try:
        pids = {int(process.stdout.readline()) for _ in range(2)}
        yield process, (pids - {process.pid}).pop()
    finally:
        process.communicate()


def test_processes_of_the_reader_do_not_include_itself(family):
    def seconds_of_children():
        children = psutil.Process().children(recursive=True)
        return sum(sum(each.cpu_times()[:4]) for each in children)

    # What else this process has may start or end a process between the two.
    def are_all():
        with suppress(psutil.NoSuchProcess):
            seconds = HostReader([os.getpid()]).read().processes_cpu_seconds
            return seconds == pytest.approx(seconds_of_children(), abs=0.02)

    wait_until(are_all, "the time of its children")


def test_processes_count_with_descendants_and_after_their_end(family):
    process, child = family
    reader = HostReader([process.pid])

    both = reader.read()
    # The kernel counts time in ticks of 10 ms or so.
    assert 0.3 < both.processes_cpu_seconds < 60
    once = HostReader([process.pid, child]).read().processes_cpu_seconds
    assert once == pytest.approx(both.processes_cpu_seconds, abs=0.05)

    process.stdin.write(b"\n")
    assert process.stdout.readline() == b"collected\n"
    collected = reader.read()
    assert collected.processes_cpu_seconds >= both.processes_cpu_seconds

    process.communicate()
    ended = reader.read()
    assert ended.processes_cpu_seconds == collected.processes_cpu_seconds


def test_a_root_that_ended_before_the_start_is_no_failure():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()

    assert HostReader([ended.pid]).read().processes_cpu_seconds == 0
