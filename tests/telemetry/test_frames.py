"""The rows of numbers that every viewer gets every second."""

from __future__ import annotations

import os

import pytest

from nbkit.telemetry.frames import (
    GPU_COLUMNS,
    HOST_COLUMNS,
    HostShare,
    HostShareReader,
    Rates,
    gpu_row,
    host_row,
    inventory,
)
from nbkit.telemetry.gpu_reader import GpuReading
from nbkit.telemetry.gpu_source import SourceSetting
from nbkit.telemetry.sample import (
    CLOCK_EVENT_WORDS,
    FIRST_READING,
    GpuDevice,
    GpuSample,
    HostSample,
    MigSample,
)
from tests.clocks import PlayedTime
from tests.telemetry.test_cpus import V2, system

__all__ = ["system"]

ALL = HostShare(os.cpu_count(), None)


def _row(gpu, rates=None):
    row = gpu_row(gpu, rates or Rates())
    assert row is not None
    return dict(zip(GPU_COLUMNS, row, strict=True))


def test_a_row_has_the_units_of_its_columns():
    row = _row(
        GpuSample(
            0,
            "GPU-a",
            memory_used_bytes=3 * 2**20,
            memory_reserved_bytes=2**20,
            power_watts=412.345,
            energy_joules=1000.5,
            sm_activity_percent=71.25,
        )
    )

    assert (row["memory_used_mib"], row["memory_reserved_mib"]) == (3, 1)
    assert (row["power_watts"], row["energy_joules"]) == (412.3, 1000)
    assert row["sm_activity_percent"] == 71.2
    assert row["utilization_percent"] is None


def test_a_gpu_that_is_lost_has_no_row():
    assert gpu_row(GpuSample(0, "GPU-a", error="gpu lost"), Rates()) is None


def test_rates_are_those_between_the_times_of_the_counters():
    rates = Rates()
    first = GpuSample(0, "GPU-a", pcie_rx_bytes=10**6, nvlink_tx_bytes=0, t=100.0)
    second = GpuSample(
        0, "GPU-a", pcie_rx_bytes=21 * 10**6, nvlink_tx_bytes=5 * 10**6, t=102.0
    )

    before, after = _row(first, rates), _row(second, rates)

    assert before["pcie_rx_mb_per_s"] is None
    assert (after["pcie_rx_mb_per_s"], after["nvlink_tx_mb_per_s"]) == (10.0, 2.5)
    assert after["pcie_tx_mb_per_s"] is None


def test_a_counter_that_falls_gives_no_rate_and_then_goes_on():
    rates = Rates()

    found = [rates.mb_per_s("a", "rx", t, n) for t, n in ((1, 5e6), (2, 1e6), (3, 4e6))]

    assert found == [None, None, 3.0]


def test_rates_of_two_gpus_are_kept_apart():
    rates = Rates()
    for uuid, count in (("GPU-a", 0), ("GPU-b", 10**9)):
        gpu_row(GpuSample(0, uuid, pcie_rx_bytes=count, t=1.0), rates)

    row = _row(GpuSample(0, "GPU-a", pcie_rx_bytes=10**6, t=2.0), rates)

    assert row["pcie_rx_mb_per_s"] == 1.0


@pytest.mark.parametrize(
    ("words", "bits"),
    [
        (None, None),
        ((), 0),
        (("idle",), 0x1),
        (("power cap", "thermal (hardware)"), 0x44),
        (("reliability", "unknown (0x8000)"), 0x8400),
    ],
)
def test_clock_events_are_bits_of_the_words(words, bits):
    row = _row(GpuSample(0, clock_event_reasons=words))

    assert row["clock_events"] == bits
    known = {w for n, w in enumerate(CLOCK_EVENT_WORDS) if (bits or 0) >> n & 1}
    assert known == {word for word in words or () if "unknown" not in word}


def test_a_row_of_the_host_has_rates_of_disks_and_network():
    rates = Rates()
    host_row(HostSample(disk_read_bytes=0, net_tx_bytes=0), 10.0, rates)

    values = host_row(
        HostSample(
            12.5,
            None,
            0.5,
            2**30,
            disk_read_bytes=4 * 10**6,
            net_tx_bytes=2 * 10**6,
        ),
        12.0,
        rates,
    )

    row = dict(zip(HOST_COLUMNS, values, strict=True))
    assert (row["cpu_percent"], row["memory_used_mib"]) == (12.5, 1024)
    assert row["load_average_1_minute"] == 0.5
    assert (row["disk_read_mb_per_s"], row["net_tx_mb_per_s"]) == (2.0, 1.0)
    assert row["disk_write_mb_per_s"] is None


def _inventory(gpu, device=None, setting=None, share=ALL):
    reading = GpuReading((gpu,), {} if device is None else {device.index: device})
    host = HostSample(memory_used_bytes=2**30, memory_available_bytes=2**30)
    setting = setting or SourceSetting("nvml")
    return inventory(reading, [None], setting, host, share)


def test_an_inventory_names_reasons_by_column():
    reasons = {
        "gpu_utilization_percent": "not supported",
        "pcie_rx_bytes": "driver too old",
        "processes": "no permission",
        "sm_activity_percent": FIRST_READING,
    }

    (gpu,) = _inventory(GpuSample(0, "GPU-a", unavailable=reasons))["gpus"]

    assert gpu["unavailable"] == {
        "utilization_percent": "not supported",
        "pcie_rx_mb_per_s": "driver too old",
        "processes": "no permission",
    }
    assert gpu["holders"] is None


def test_an_inventory_has_limits_and_instances():
    device = GpuDevice(0, "GPU-a", "H100", sm_clock_max_mhz=1980, mig_enabled=False)
    instance = MigSample("MIG-x", "1g.10gb", memory_total_bytes=10 * 2**30)
    sample = GpuSample(
        0,
        "GPU-a",
        memory_total_bytes=80 * 2**30,
        power_limit_watts=700.0,
        mig_instances=(instance,),
    )

    values = _inventory(sample, device)

    (gpu,) = values["gpus"]
    assert (gpu["memory_total_mib"], gpu["power_limit_watts"]) == (81920, 700.0)
    assert gpu["sm_clock_max_mhz"] == 1980
    assert gpu["mig_enabled"] is True  # switched on since the driver was opened
    assert gpu["mig_instances"] == [
        {"uuid": "MIG-x", "name": "1g.10gb", "memory_total_mib": 10240}
    ]
    assert values["memory_total_mib"] == 2048
    assert values["slowdown_words"][0] == "power cap"


@pytest.mark.parametrize(
    ("share", "shown"),
    [
        (ALL, (None, None)),
        (HostShare(os.cpu_count(), 2**63), (None, None)),
        (HostShare(os.cpu_count(), 2**31), (None, None)),
        (HostShare(os.cpu_count(), 2**30), (None, 1024)),
        (HostShare(0.333, None), (0.33, None)),
    ],
    ids=["no limit", "of version 1", "of all", "of memory", "of CPUs"],
)
def test_an_inventory_tells_the_servers_share_where_it_is_less_than_all(share, shown):
    values = _inventory(GpuSample(0), share=share)

    assert (values["cpus"], values["memory_total_mib"]) == (os.cpu_count(), 2048)
    assert (values["usable_cpus"], values["memory_limit_mib"]) == shown


def test_memory_that_a_gpu_shares_with_its_host_is_called_so():
    (own,) = _inventory(GpuSample(0))["gpus"]
    (shared,) = _inventory(GpuSample(0, memory_unified=True))["gpus"]
    (lost,) = _inventory(
        GpuSample(0, error="gpu lost"), GpuDevice(0, memory_unified=True)
    )["gpus"]

    shown = [gpu["memory_unified"] for gpu in (own, shared, lost)]
    assert shown == [False, True, True]


def test_a_lost_gpu_keeps_its_limits():
    device = GpuDevice(0, "GPU-a", "H100", memory_total_bytes=80 * 2**30)

    (gpu,) = _inventory(GpuSample(0, "GPU-a", error="gpu lost"), device)["gpus"]

    assert (gpu["error"], gpu["name"]) == ("gpu lost", "H100")
    assert gpu["memory_total_mib"] == 81920


def test_an_inventory_of_a_replay_says_so():
    plain = _inventory(GpuSample(0))
    played = _inventory(GpuSample(0), setting=SourceSetting("replay", "mig"))

    assert (plain["source"], plain["replay"]) == ("nvml", None)
    assert (played["source"], played["replay"]) == ("replay", "mig")


def test_a_share_is_the_affinity_and_what_the_control_groups_grant(system):
    files = {"job/cpu.max": "50000 100000", "job/memory.max": "4096"}
    root = system("0::/job", V2, **files)

    assert HostShareReader(root).read() == HostShare(0.5, 4096)


def test_limits_are_not_looked_up_at_every_reading(system, monkeypatch):
    clock = PlayedTime(monkeypatch, "nbkit.telemetry.frames")
    root = system("0::/", V2, **{"memory.max": "4096"})
    reader = HostShareReader(root)
    reader.read()
    (root / "sys/fs/cgroup/memory.max").write_text("1024\n")

    assert reader.read().memory_bytes == 4096
    clock.seconds += 60
    assert reader.read().memory_bytes == 1024
