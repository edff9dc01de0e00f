"""Detailed readings: activity, memory errors, Xid errors; each degrades alone."""

from __future__ import annotations

import json

import pynvml
import pytest

from nbkit.telemetry import gpm
from nbkit.telemetry.nvml import open_nvml
from nbkit.telemetry.sample import FIRST_READING, GpuSample, Xid
from tests.clocks import PlayedTime
from tests.telemetry.fake_nvml.fake_driver import FakeGpu

LOST = pynvml.NVML_ERROR_GPU_IS_LOST


@pytest.fixture
def at_once(monkeypatch):
    """Let readings follow each other without the time that GPM needs between them."""
    monkeypatch.setattr(gpm, "SHORTEST_SECONDS", 0.0)


def test_activity_is_that_between_two_readings(drive, at_once, monkeypatch):
    driver = drive(FakeGpu("GPU-a"))

    with open_nvml(detailed=True) as nvml:
        (first,), (second,) = nvml.read(), nvml.read()
        # Readings that are too close repeat it.
        monkeypatch.setattr(gpm, "SHORTEST_SECONDS", 3600.0)
        assert nvml.read() == (second,)

    assert driver.calls["nvmlGpmSampleGet"] == 2
    assert driver.calls["nvmlGpmSampleFree"] == driver.calls["nvmlGpmSampleAlloc"] == 2
    assert (driver.calls["nvmlEventSetFree"], driver.calls["nvmlShutdown"]) == (1, 1)
    assert first.sm_activity_percent is None
    assert first.unavailable["sm_activity_percent"] == FIRST_READING
    assert second.sm_activity_percent == pytest.approx(71.2, abs=0.1)
    assert second.tensor_activity_percent == 33.0
    assert second.unavailable == {}


def test_memory_errors_are_asked_for_now_and_then(drive, monkeypatch):
    clock = PlayedTime(monkeypatch, "nbkit.telemetry.gpu")
    card = FakeGpu("GPU-a", ecc_errors=2)
    driver = drive(card)

    with open_nvml(detailed=True) as nvml:
        counts = [nvml.read()[0].ecc_uncorrected_count for _ in range(3)]
        assert driver.calls["nvmlDeviceGetTotalEccErrors"] == 1
        clock.seconds += 60
        card.ecc_errors = 3
        counts.append(nvml.read()[0].ecc_uncorrected_count)

    assert counts == [2, 2, 2, 3]


def test_xid_of_a_gpu_stays_known(drive):
    falling = FakeGpu("GPU-b")
    driver = drive(FakeGpu("GPU-a"), falling)

    with open_nvml(detailed=True) as nvml:
        assert [sample.xid for sample in nvml.read()] == [None, None]
        driver.xids += [("GPU-b", 13), ("GPU-b", 31)]
        first, second = nvml.read()
        later = nvml.read()[1]
        driver.xids.append(("GPU-b", 79))
        falling.errors["*"] = LOST
        lost = nvml.read()[1]

    assert first.xid is None
    assert second.xid.code == later.xid.code == 31
    assert later.xid.t == second.xid.t
    assert (lost.error, lost.xid.code) == ("gpu lost", 79)


def test_a_gpu_that_reports_no_errors_says_why(drive):
    deaf = FakeGpu(
        "GPU-a", errors={"nvmlDeviceRegisterEvents": pynvml.NVML_ERROR_NOT_SUPPORTED}
    )
    driver = drive(deaf, FakeGpu("GPU-b"), xids=[("GPU-b", 13)])

    with open_nvml(detailed=True) as nvml:
        first, second = nvml.read()

    assert first.unavailable["xid"] == "not supported"
    assert "xid" not in second.unavailable
    assert second.xid.code == 13
    assert driver.calls["nvmlEventSetFree"] == 1


def test_a_driver_without_the_wait_for_events_loses_no_other_field(drive, at_once):
    drive(FakeGpu("GPU-a"), missing={"nvmlEventSetWait_v2"})

    with open_nvml(detailed=True) as nvml:
        nvml.read()
        (sample,) = nvml.read()

    assert sample.unavailable == {"xid": "driver too old"}


def test_an_ordinary_reading_asks_for_no_details(drive):
    driver = drive(FakeGpu("GPU-a"))

    with open_nvml() as nvml:
        (sample,) = nvml.read()

    assert not [name for name in driver.calls if "Gpm" in name or "EventSet" in name]
    assert "nvmlDeviceGetTotalEccErrors" not in driver.calls
    assert "sm_activity_percent" not in sample.to_dict()


def test_details_go_to_json_and_back(drive, at_once):
    drive(FakeGpu("GPU-a"), xids=[("GPU-a", 48)])

    with open_nvml(detailed=True) as nvml:
        nvml.read()
        (sample,) = nvml.read()

    text = json.dumps(sample.to_dict(), allow_nan=False)
    assert GpuSample.from_dict(json.loads(text)) == sample
    assert isinstance(sample.xid, Xid)
