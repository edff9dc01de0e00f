"""GPUs for viewers: opened, tried again, opened anew; hidden ones left out."""

from __future__ import annotations

import os

import pynvml
import pytest

from nbkit.telemetry import gpu_reader
from nbkit.telemetry.gpu_reader import GpuReader
from nbkit.telemetry.gpu_source import SourceSetting
from tests.clocks import PlayedTime
from tests.telemetry.fake_nvml.fake_driver import FakeGpu, FakeMig

LOST = pynvml.NVML_ERROR_GPU_IS_LOST


@pytest.fixture(autouse=True)
def no_driver_here(monkeypatch, tmp_path):
    """Hide the GPUs of the machine that runs the test."""
    monkeypatch.setattr(gpu_reader, "DRIVER_GPUS", tmp_path / "gpus")


@pytest.fixture
def clock(monkeypatch):
    return PlayedTime(monkeypatch, "nbkit.telemetry.gpu_reader")


def _reader(*gpus):
    return GpuReader(SourceSetting.from_environment(), gpus)


def _uuids(reading):
    return [gpu.uuid for gpu in reading.gpus]


def test_a_reading_has_gpus_and_what_does_not_change_about_them(drive):
    drive(FakeGpu("GPU-a"), FakeGpu("GPU-b"))

    reading = _reader().read()

    assert _uuids(reading) == ["GPU-a", "GPU-b"]
    assert reading.devices[1].sm_clock_max_mhz == 1980
    assert (reading.driver_version, reading.cuda_driver_version) == (
        "570.86.15",
        "12.8",
    )
    assert (reading.reason, reading.message) == (None, None)
    assert reading.gpus[0].ecc_uncorrected_count == 0


def test_a_driver_that_is_loaded_later_is_found(pci, drive, clock):
    driver = drive(FakeGpu("GPU-a"), init_error=pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    reader = _reader()

    before = [reader.read() for _ in range(3)]
    assert {reading.reason for reading in before} == {"driver not loaded"}
    assert "modprobe nvidia" in before[0].message
    assert driver.calls["nvmlInit"] == 1  # not tried again at every reading
    driver.init_error = None
    clock.seconds += 30
    after = reader.read()

    assert (after.reason, _uuids(after)) == (None, ["GPU-a"])


def test_a_lost_gpu_is_looked_for_again_less_and_less_often(drive, clock):
    falling = FakeGpu("GPU-b")
    driver = drive(FakeGpu("GPU-a"), falling)
    reader = _reader()
    reader.read()
    falling.errors["*"] = LOST
    errors = [[gpu.error for gpu in reader.read().gpus] for _ in range(3)]
    assert errors == [[None, "gpu lost"]] * 3
    assert driver.calls["nvmlInit"] == 1

    waits = [0]
    while len(waits) < 8:
        clock.seconds += 30
        waits[-1] += 30
        reader.read()
        if driver.calls["nvmlInit"] > len(waits):
            waits.append(0)
    assert driver.calls["nvmlInit"] == driver.calls["nvmlShutdown"] + 1 == 8
    assert waits == [30, 60, 120, 240, 480, 600, 600, 0]

    falling.errors.clear()
    clock.seconds += 600
    assert [gpu.error for gpu in reader.read().gpus] == [None, None]


@pytest.mark.parametrize("setting", [None, "GPU-b"])
def test_a_lost_gpu_keeps_its_name_and_its_xid_when_nvml_is_opened_anew(
    drive, monkeypatch, clock, setting
):
    falling = FakeGpu("GPU-b")
    driver = drive(FakeGpu("GPU-a"), falling)
    if setting:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    reader = _reader()
    reader.read()
    driver.xids.append(("GPU-b", 79))
    falling.errors["*"] = LOST
    reader.read()

    clock.seconds += 30
    reader.read()
    lost = reader.read().gpus[-1]

    assert driver.calls["nvmlInit"] == 2
    assert (lost.index, lost.uuid, lost.error) == (1, "GPU-b", "gpu lost")
    assert lost.name == "NVIDIA H100 80GB HBM3"
    assert lost.xid.code == 79


def test_a_gpu_that_is_plugged_in_is_found(drive, clock, tmp_path):
    known = tmp_path / "gpus"
    (known / "0000:01:00.0").mkdir(parents=True)
    driver = drive(FakeGpu("GPU-a"))
    reader = _reader()
    reader.read()

    clock.seconds += 30
    reader.read()
    assert driver.calls["nvmlInit"] == 1
    (known / "0000:02:00.0").mkdir()
    driver.gpus.append(FakeGpu("GPU-b"))
    clock.seconds += 30

    assert _uuids(reader.read()) == ["GPU-a", "GPU-b"]
    assert driver.calls["nvmlInit"] == 2


@pytest.mark.parametrize(
    ("setting", "uuids"),
    [
        ("1", ["GPU-bbbb"]),
        ("GPU-bb,0", ["GPU-aaaa", "GPU-bbbb"]),
        ("0,9", ["GPU-aaaa"]),
    ],
)
def test_gpus_that_the_server_may_not_use_are_not_read(
    drive, monkeypatch, setting, uuids
):
    driver = drive(FakeGpu("GPU-aaaa"), FakeGpu("GPU-bbbb"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    reader = _reader()

    assert _uuids(reader.read()) == uuids
    calls = driver.calls["nvmlDeviceGetPowerUsage"]
    reader.read()
    assert driver.calls["nvmlDeviceGetPowerUsage"] == calls + len(uuids)


def test_a_setting_that_hides_all_gpus_is_named(drive, monkeypatch):
    drive(FakeGpu("GPU-aaaa"), FakeGpu("GPU-bbbb"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")

    reading = _reader().read()

    assert (reading.gpus, reading.reason) == ((), "hidden")
    assert "CUDA_VISIBLE_DEVICES='-1' hides all 2 GPUs" in reading.message


def test_a_named_gpu_counts_more_than_the_environment(drive, monkeypatch):
    drive(FakeGpu("GPU-aaaa"), FakeGpu("GPU-bbbb"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")

    assert _uuids(_reader("GPU-bbbb").read()) == ["GPU-bbbb"]
    assert _uuids(_reader("1").read()) == ["GPU-bbbb"]


def test_a_setting_that_names_an_instance_shows_its_gpu(drive, monkeypatch):
    sliced = FakeGpu("GPU-bbbb", migs=(FakeMig("MIG-bbbb-1"), FakeMig("MIG-bbbb-2")))
    drive(FakeGpu("GPU-aaaa"), sliced)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-bbbb-2")

    (gpu,) = _reader().read().gpus

    assert gpu.uuid == "GPU-bbbb"
    assert len(gpu.mig_instances) == 2


def test_a_gpu_that_was_lost_before_the_start_can_be_named_by_number(
    drive, monkeypatch
):
    gone = FakeGpu("GPU-b", errors={"nvmlDeviceGetHandleByIndex": LOST})
    drive(FakeGpu("GPU-a"), gone, FakeGpu("GPU-c"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")

    reading = _reader().read()

    assert [(gpu.index, gpu.error) for gpu in reading.gpus] == [
        (0, None),
        (1, "gpu lost"),
    ]


def test_a_driver_without_gpus_says_so(drive):
    drive()

    reading = _reader().read()

    assert reading.reason == "no gpu"
    assert "lspci" in reading.message


@pytest.mark.parametrize("value", ["dcgm", "replay:no-such-trace", "replay:"])
def test_a_source_that_cannot_be_used_is_a_message_and_no_crash(monkeypatch, value):
    monkeypatch.setenv("NBKIT_GPU_SOURCE", value)

    reading = _reader().read()

    assert (reading.gpus, reading.reason) == ((), "source cannot be used")
    assert f"NBKIT_GPU_SOURCE={value}" in reading.message
    assert "replay:eight-gpus" in reading.message


def test_the_source_is_nvml_unless_the_environment_says_otherwise(monkeypatch):
    assert SourceSetting.from_environment() == SourceSetting("nvml")
    monkeypatch.setenv("NBKIT_GPU_SOURCE", "nvml")
    assert SourceSetting.from_environment() == SourceSetting("nvml")
    monkeypatch.setenv("NBKIT_GPU_SOURCE", f"replay:{os.sep}a:b.jsonl")
    assert SourceSetting.from_environment() == SourceSetting("replay", "/a:b.jsonl")
