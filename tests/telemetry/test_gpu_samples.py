"""What a reading of the GPUs holds, over drivers and GPUs that differ."""

from __future__ import annotations

import json

import psutil
import pynvml
import pytest

from nbkit.telemetry.nvml import open_nvml
from nbkit.telemetry.sample import GpuProcess, GpuSample, MigSample
from tests.telemetry.fake_nvml.fake_driver import GIBIBYTE, FakeGpu, FakeMig

NOT_SUPPORTED = pynvml.NVML_ERROR_NOT_SUPPORTED
LOST = pynvml.NVML_ERROR_GPU_IS_LOST

FULL = GpuSample(
    index=0,
    uuid="GPU-a",
    name="NVIDIA H100 80GB HBM3",
    gpu_utilization_percent=87,
    memory_used_bytes=2 * GIBIBYTE,
    memory_reserved_bytes=GIBIBYTE // 2,
    memory_total_bytes=80 * GIBIBYTE,
    power_watts=412.345,
    power_limit_watts=700.0,
    energy_joules=1000.5,
    temperature_celsius=61,
    sm_clock_mhz=1755,
    memory_clock_mhz=2619,
    clock_event_reasons=(),
    pcie_rx_bytes=5_000,
    pcie_tx_bytes=6_000,
    nvlink_rx_bytes=7 * 1024,
    nvlink_tx_bytes=8 * 1024,
    processes=(GpuProcess(pid=4321, memory_used_bytes=GIBIBYTE),),
)


def test_every_field_has_the_unit_of_its_name(drive):
    drive(FakeGpu("GPU-a", pids=(4321,)))

    with open_nvml() as nvml:
        assert nvml.read() == (FULL,)


def test_only_the_named_gpus_are_asked(drive):
    driver = drive(FakeGpu("GPU-a"), FakeGpu("GPU-b"), FakeGpu("GPU-c"))

    with open_nvml() as nvml:
        samples = nvml.read({"GPU-b"})

    assert [gpu.uuid for gpu in samples] == ["GPU-b"]
    assert driver.calls["nvmlDeviceGetPowerUsage"] == 1


@pytest.mark.parametrize(
    "odd",
    [{"errors": {"nvmlDeviceGetMemoryInfo": NOT_SUPPORTED}}, {"memory_bytes": 0}],
    ids=["not supported", "a total of 0"],
)
def test_a_gpu_without_memory_of_its_own_has_the_hosts(drive, odd):
    drive(FakeGpu("GPU-a", "NVIDIA GB10", used_bytes=0, **odd), FakeGpu("GPU-b"))

    with open_nvml() as nvml:
        first, second = nvml.read()
        devices = nvml.devices()

    total_bytes = psutil.virtual_memory().total
    assert (first.memory_used_bytes, first.memory_reserved_bytes) == (None, None)
    assert first.unavailable["memory_used_bytes"] == "not supported"
    for one in (first, devices[0]):
        assert (one.memory_total_bytes, one.memory_unified) == (total_bytes, True)
    for one in (second, devices[1]):
        assert (one.memory_total_bytes, one.memory_unified) == (80 * GIBIBYTE, False)
    assert GpuSample.from_dict(first.to_dict()) == first
    assert "memory_unified" not in second.to_dict()


def test_an_instance_without_memory_has_not_the_hosts(drive):
    drive(FakeGpu("GPU-a", migs=(FakeMig("MIG-a", memory_bytes=0),)))

    with open_nvml() as nvml:
        (gpu,) = nvml.read()

    assert gpu.mig_instances == (MigSample("MIG-a", "MIG 1g.10gb"),)


@pytest.mark.parametrize("number", [0, 2**32 - 1])
def test_a_number_that_no_process_can_have_is_no_pid(drive, number):
    drive(FakeGpu("GPU-a", pids=(number, 4321), process_bytes=None))

    with open_nvml() as nvml:
        (gpu,) = nvml.read()

    assert gpu.processes == (GpuProcess(None), GpuProcess(4321))


def test_what_is_not_supported_is_asked_once(drive):
    driver = drive(
        FakeGpu("GPU-a", errors={"nvmlDeviceGetPowerUsage": NOT_SUPPORTED}),
        FakeGpu("GPU-b"),
    )

    with open_nvml() as nvml:
        samples = [nvml.read()[0] for _ in range(3)]

    assert driver.calls["nvmlDeviceGetPowerUsage"] == 1 + 3
    assert {sample.unavailable["power_watts"] for sample in samples} == {
        "not supported"
    }


def test_a_passing_failure_is_asked_again(drive):
    gpu = FakeGpu(
        "GPU-a", errors={"nvmlDeviceGetPowerUsage": pynvml.NVML_ERROR_TIMEOUT}
    )
    drive(gpu)

    with open_nvml() as nvml:
        (during,) = nvml.read()
        gpu.errors.clear()
        (after,) = nvml.read()

    assert (during.power_watts, during.unavailable) == (
        None,
        {"power_watts": "timeout"},
    )
    assert (after.power_watts, after.unavailable) == (412.345, {})


def test_pcie_comes_from_counters_and_never_from_the_call_that_takes_20_ms(drive):
    driver = drive(FakeGpu("GPU-a"))

    with open_nvml() as nvml:
        nvml.read()

    assert driver.calls["nvmlDeviceGetFieldValues"] == 2
    assert "nvmlDeviceGetPcieThroughput" not in driver.calls


def test_an_old_driver_is_asked_in_the_forms_that_it_knows(drive):
    missing = {
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetTemperatureV",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetComputeRunningProcesses_v3",
    }
    # Field counters that a driver does not know are invalid arguments to it.
    unknown = {
        pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES: pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES: pynvml.NVML_ERROR_INVALID_ARGUMENT,
    }
    gpu = FakeGpu("GPU-a", pids=(4321,), reasons=0x4, field_errors=unknown)
    driver = drive(gpu, missing=missing)

    with open_nvml() as nvml:
        samples = [nvml.read()[0] for _ in range(3)]

    for sample in samples:
        assert sample.temperature_celsius == 61
        assert sample.clock_event_reasons == ("power cap",)
        assert sample.processes == FULL.processes
        # The old form counts the driver's own share as used and cannot tell it apart.
        assert sample.memory_used_bytes == 2 * GIBIBYTE + GIBIBYTE // 2
        assert sample.memory_reserved_bytes is None
        assert sample.pcie_rx_bytes is None
        assert sample.nvlink_rx_bytes == FULL.nvlink_rx_bytes
        assert sample.unavailable == {
            "memory_reserved_bytes": "driver too old",
            "pcie_rx_bytes": "not supported",
            "pcie_tx_bytes": "not supported",
        }
    assert driver.calls["nvmlDeviceGetMemoryInfo"] == 2 + 1 + 1
    assert driver.calls["nvmlDeviceGetTemperatureV"] == 1
    assert driver.calls["nvmlDeviceGetFieldValues"] == 1 + 3


def test_a_gpu_that_is_lost_says_so_and_the_others_live(drive):
    falling = FakeGpu("GPU-b")
    drive(FakeGpu("GPU-a", pids=(4321,)), falling, FakeGpu("GPU-c"))

    with open_nvml() as nvml:
        assert [gpu.error for gpu in nvml.read()] == [None, None, None]
        falling.errors["*"] = LOST
        samples = nvml.read()

    assert samples[0] == FULL
    assert samples[1] == GpuSample(1, "GPU-b", FULL.name, error="gpu lost")
    assert samples[2].error is None


def test_a_gpu_that_is_lost_before_the_start_keeps_its_place(drive):
    drive(
        FakeGpu("GPU-a", errors={"nvmlDeviceGetHandleByIndex": LOST}), FakeGpu("GPU-b")
    )

    with open_nvml() as nvml:
        first, second = nvml.read()
        described = nvml.devices()[0]

    assert first == GpuSample(0, error="gpu lost")
    assert (described.index, described.uuid, described.error) == (0, None, "gpu lost")
    assert (second.index, second.uuid, second.error) == (1, "GPU-b", None)


def test_mig_instances_have_memory_and_processes_of_their_own(drive):
    slots = (FakeMig("MIG-x", 3 * GIBIBYTE, (11, 12)), None, FakeMig("MIG-y", 0))
    drive(FakeGpu("GPU-a", migs=slots), FakeGpu("GPU-b"))

    with open_nvml() as nvml:
        sliced, whole = nvml.read()

    half, total = GIBIBYTE // 2, 80 * GIBIBYTE
    assert sliced.mig_instances == (
        MigSample("MIG-x", "MIG 1g.10gb", 3 * GIBIBYTE, half, total),
        MigSample("MIG-y", "MIG 1g.10gb", 0, half, total),
    )
    assert sliced.processes == (
        GpuProcess(11, GIBIBYTE, "MIG-x"),
        GpuProcess(12, GIBIBYTE, "MIG-x"),
    )
    assert sliced.gpu_utilization_percent is None
    assert sliced.unavailable == {"gpu_utilization_percent": "not supported"}
    assert sliced.power_watts == FULL.power_watts
    assert whole.mig_instances is None
    assert whole.gpu_utilization_percent == 87


def test_what_a_gpu_did_not_tell_under_mig_is_asked_again_without(drive):
    gpu = FakeGpu("GPU-a", migs=(FakeMig("MIG-x"),), pids=(4321,))
    driver = drive(gpu)

    with open_nvml() as nvml:
        (under_mig,) = nvml.read()
        nvml.read()
        asked = driver.calls["nvmlDeviceGetUtilizationRates"]
        gpu.migs = None
        samples = nvml.read() + nvml.read()

    assert under_mig.unavailable == {"gpu_utilization_percent": "not supported"}
    assert asked == 1
    assert samples == (FULL, FULL)


def test_processes_that_may_not_be_seen_are_unknown_and_not_none_at_all(drive):
    name = "nvmlDeviceGetComputeRunningProcesses_v3"
    drive(
        FakeGpu("GPU-a", errors={name: pynvml.NVML_ERROR_NO_PERMISSION}),
        missing={"nvmlDeviceGetComputeRunningProcesses_v2"},
    )

    with open_nvml() as nvml:
        (sample,) = nvml.read()

    assert sample.processes is None
    assert "processes" in sample.unavailable


@pytest.mark.parametrize(
    ("bits", "words", "slowed"),
    [
        (0x000, (), False),
        (0x001, ("idle",), False),
        (0x002, ("application clocks",), False),
        (0x004, ("power cap",), True),
        (0x048, ("hardware slowdown", "thermal (hardware)"), True),
        (0x8000, ("unknown (0x8000)",), False),
    ],
)
def test_clock_event_reasons_are_words(drive, bits, words, slowed):
    drive(FakeGpu("GPU-a", reasons=bits))

    with open_nvml() as nvml:
        (sample,) = nvml.read()

    assert sample.clock_event_reasons == words
    assert sample.is_slowed is slowed


def test_whether_a_gpu_is_slowed_is_unknown_where_reasons_are():
    assert GpuSample(0).is_slowed is None


def test_a_sample_goes_to_json_and_back(drive):
    slots = (FakeMig("MIG-x", 3 * GIBIBYTE, (11,)),)
    drive(FakeGpu("GPU-a", migs=slots, reasons=0x4), FakeGpu("GPU-b", pids=(1,)))

    with open_nvml() as nvml:
        for sample in nvml.read():
            text = json.dumps(sample.to_dict(), allow_nan=False)
            assert GpuSample.from_dict(json.loads(text)) == sample
