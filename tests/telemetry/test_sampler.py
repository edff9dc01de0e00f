"""The sampler in this process and as a child process that dies with its parent."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pynvml
import pytest

from nbkit.telemetry.child import start_sampler
from nbkit.telemetry.sample import SCHEMA, GpuProcess, Sample
from nbkit.telemetry.sampler import Sampler
from tests.clocks import PlayedTime
from tests.telemetry.fake_nvml.fake_driver import FakeGpu
from tests.waiting import wait_until


@pytest.fixture
def start(tmp_path):
    """Return a starter of samplers that write a file of this test."""
    started = []

    def begin(output=None, **options):
        options.setdefault("interval_seconds", 0.25)
        with (tmp_path / "stderr").open("ab") as stderr:
            process = start_sampler(
                output or _output(tmp_path), stderr=stderr, **options
            )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.stop(60)


def _output(tmp_path):
    return tmp_path / "system" / "host.jsonl"


def _lines(path):
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]]


def _wait_for_lines(path, number):
    return wait_until(
        lambda: lines if len(lines := _lines(path)) >= number else None,
        f"{number} lines in {path}",
    )


# In this process


def test_a_reading_has_gpus_and_host_and_goes_to_json_and_back(drive):
    drive(FakeGpu("GPU-a", pids=(7,)), FakeGpu("GPU-b"))

    sampler = Sampler(process_roots=[os.getpid()])
    sample = sampler.read()

    assert [gpu.uuid for gpu in sample.gpus] == ["GPU-a", "GPU-b"]
    assert sample.host.memory_used_bytes > 0
    assert sample.host.processes_cpu_seconds is not None
    assert sample.gpus_unavailable is None
    text = json.dumps(sample.to_dict(), allow_nan=False)
    assert Sample.from_dict(json.loads(text)) == sample


def test_without_nvml_the_host_is_read_all_the_same(pci, drive):
    drive(init_error=pynvml.NVML_ERROR_DRIVER_NOT_LOADED)

    sampler = Sampler()
    sample = sampler.read()

    assert (sample.gpus, sample.gpus_unavailable) == ((), "driver not loaded")
    assert sample.host.memory_used_bytes > 0


def test_a_driver_that_is_loaded_later_is_found(drive, monkeypatch):
    clock = PlayedTime(monkeypatch, "nbkit.telemetry.sampler")
    driver = drive(FakeGpu("GPU-a"), init_error=pynvml.NVML_ERROR_DRIVER_NOT_LOADED)

    sampler = Sampler()
    assert sampler.read().gpus == ()
    assert driver.calls["nvmlInit"] == 1  # not tried again at every reading
    driver.init_error = None
    clock.seconds += 60
    sample = sampler.read()

    assert [gpu.uuid for gpu in sample.gpus] == ["GPU-a"]
    assert sample.gpus_unavailable is None


# As a child process


def test_sampler_lines(start, drive_child, tmp_path, monkeypatch):
    drive_child({"uuid": "GPU-a", "pids": [7]}, {"uuid": "GPU-b"})
    # Modules of the current folder are not taken for Python's own.
    for name in ("select", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong module')")
    monkeypatch.chdir(tmp_path)
    process = start(process_roots=[os.getpid()])

    _wait_for_lines(_output(tmp_path), 3)
    assert process.stop(60) == 0

    header, *rows = _lines(_output(tmp_path))
    assert (header["kind"], header["schema"]) == ("header", SCHEMA)
    assert header["hostname"] == os.uname().nodename
    assert header["interval_seconds"] == 0.25
    assert [device["uuid"] for device in header["devices"]] == ["GPU-a", "GPU-b"]
    assert {row.pop("kind") for row in rows} == {"sample"}
    samples = [Sample.from_dict(row) for row in rows]
    assert [sample.t for sample in samples] == sorted(s.t for s in samples)
    assert [gpu.power_watts for gpu in samples[0].gpus] == [412.345, 412.345]
    assert samples[0].gpus[0].processes == (GpuProcess(7, 2**30),)
    assert samples[0].host.cpu_percent is None
    assert samples[1].host.cpu_percent is not None
    assert samples[1].host.processes_cpu_seconds is not None
    assert (tmp_path / "stderr").read_text() == ""


@pytest.mark.parametrize("uuids", [("GPU-b",), ()])
def test_sampler_of_named_gpus_after_half_a_line(start, drive_child, tmp_path, uuids):
    drive_child({"uuid": "GPU-a"}, {"uuid": "GPU-b"})
    _output(tmp_path).parent.mkdir()
    _output(tmp_path).write_text('{"kind":"header"}\n{"kind":"sample","t":17')
    start(gpu_uuids=uuids)

    rows = _wait_for_lines(_output(tmp_path), 3)[:3]

    assert [row["kind"] for row in rows] == ["header", "header", "sample"]
    assert [gpu["uuid"] for gpu in rows[2]["gpus"]] == [*uuids]
    assert {"GPU-b"} <= {device["uuid"] for device in rows[1]["devices"]}


def test_the_end_brings_a_last_sample(start, drive_child, tmp_path):
    drive_child()
    process = start(interval_seconds=3600)
    before = _wait_for_lines(_output(tmp_path), 2)

    assert process.stop(60) == 0

    after = _lines(_output(tmp_path))
    assert len(before) == 2
    assert len(after) == 3
    assert after[2]["t"] >= before[1]["t"]


PARENT = """
import os, sys, time
from pathlib import Path
from nbkit.telemetry.child import start_sampler
print(start_sampler(Path(sys.argv[1]), interval_seconds=0.25).pid, flush=True)
# A process that is started later must not hold the pipe open.
os.spawnlp(os.P_WAIT, "cat", "cat")
"""


def test_it_ends_when_its_parent_is_killed(drive_child, tmp_path):
    drive_child()
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(_output(tmp_path))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    sampler = psutil.Process(int(parent.stdout.readline()))
    _wait_for_lines(_output(tmp_path), 2)
    (sibling,) = wait_until(
        lambda: [p for p in psutil.Process(parent.pid).children() if p != sampler],
        "the process that the parent starts later",
    )

    parent.kill()

    assert psutil.wait_procs([sampler], timeout=60)[1] == []
    assert sibling.is_running()
    parent.communicate()
    psutil.wait_procs([sibling], timeout=60)


def test_sampler_ends_by_sigterm_and_not_by_an_interrupt(start, drive_child, tmp_path):
    drive_child()
    process = start()
    number = len(_wait_for_lines(_output(tmp_path), 2))

    os.kill(process.pid, signal.SIGINT)
    _wait_for_lines(_output(tmp_path), number + 2)
    os.kill(process.pid, signal.SIGTERM)

    wait_until(lambda: process.poll() is not None, "the sampler's end")
    assert process.poll() == 0
    assert (tmp_path / "stderr").read_text() == ""


def test_a_driver_that_hangs_holds_up_neither_the_end_nor_the_parent(
    start, drive_child, tmp_path
):
    drive_child({"uuid": "GPU-a", "hangs_in": "nvmlDeviceGetPowerUsage"})
    process = start()
    _wait_for_lines(_output(tmp_path), 1)

    assert process.stop(60) == 0

    assert "GPU driver has not answered" in (tmp_path / "stderr").read_text()


def test_a_disk_that_fills_ends_it_with_whole_lines(start, drive_child, tmp_path):
    drive_child({"uuid": "GPU-a"})
    process = start()
    _wait_for_lines(_output(tmp_path), 2)

    # The kernel then writes a part of the next line and refuses the rest, as it does
    # on a full disk.
    limit = _output(tmp_path).stat().st_size + 100
    hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (limit, hard))

    wait_until(lambda: process.poll() is not None, "the sampler's end")
    assert process.poll() == 1
    assert _output(tmp_path).read_bytes().endswith(b"}\n")
    assert len(_lines(_output(tmp_path))) >= 2
    message = (tmp_path / "stderr").read_text()
    assert f"{_output(tmp_path)} cannot be written (File too large)" in message
    assert "sampling ends" in message


def test_a_file_that_is_removed_is_not_written_into_the_void(
    start, drive_child, tmp_path
):
    drive_child()
    process = start()
    _wait_for_lines(_output(tmp_path), 2)

    _output(tmp_path).unlink()

    wait_until(lambda: process.poll() is not None, "the sampler's end")
    assert process.poll() == 1
    assert "the file was removed" in (tmp_path / "stderr").read_text()


def test_a_folder_that_vanished_is_not_made_anew(start, drive_child, tmp_path):
    drive_child()
    process = start(output=tmp_path / "gone" / "system" / "host.jsonl")

    wait_until(lambda: process.poll() is not None, "the sampler's end")

    assert process.poll() == 1
    assert not (tmp_path / "gone").exists()
    assert "No such file" in (tmp_path / "stderr").read_text()


def test_it_stays_small(start, drive_child, tmp_path, monkeypatch):
    drive_child(*({"uuid": f"GPU-{number}"} for number in range(8)))
    # The first may have to compile what it imports, which takes memory.
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    start(tmp_path / "first.jsonl")
    _wait_for_lines(tmp_path / "first.jsonl", 3)
    process = start()
    _wait_for_lines(_output(tmp_path), 3)

    status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    peak = next(line for line in status if line.startswith("VmHWM"))
    libraries = Path(f"/proc/{process.pid}/maps").read_text()

    assert int(peak.split()[1]) < 30 * 1024
    assert "torch" not in libraries
    assert "pydantic" not in libraries
