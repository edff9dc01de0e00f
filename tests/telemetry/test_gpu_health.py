"""What doctor says of GPUs that are held back, and the command that changes it."""

from __future__ import annotations

import pynvml
import pytest

from nbkit.findings import Finding
from nbkit.telemetry import gpu_health, health
from nbkit.telemetry.sample import GpuDevice
from tests.telemetry.fake_nvml.fake_driver import FakeGpu

WELL = FakeGpu("GPU-0")


@pytest.fixture
def told(drive, monkeypatch, tmp_path):
    """Return what is said of GPUs that a test describes, by what was looked at."""
    (tmp_path / "dmesg").symlink_to("/bin/true")
    monkeypatch.setenv("PATH", str(tmp_path))

    def tell(*gpus: FakeGpu) -> dict[str, Finding]:
        drive(*gpus)
        return {one.subject: one for one in gpu_health.checks()}

    return tell


def test_gpus_that_are_well_give_no_warning(told):
    assert {one.severity for one in told(WELL, FakeGpu("GPU-1")).values()} == {"ok"}


@pytest.mark.parametrize(
    ("gpu", "what", "state", "found", "remedy"),
    [
        ({"persistence": 0}, "Persistence", "warning", "off on GPU 1", "-pm 1"),
        ({"pcie_width": 8}, "PCIe link", "warning", "GPU 1 limited to 8 of 16", "seat"),
        ({"remapped": (0, 1, 1, 0)}, "GPU 1", "warning", "pending", "--gpu-reset -i 1"),
        ({"remapped": (0, 9, 0, 1)}, "GPU 1", "error", "not be repaired", "replace"),
        (
            {"power_limit_watts": 300},
            "Power limit",
            "warning",
            "300 of 700 W",
            "-pl 700",
        ),
        (
            {"fabric": (pynvml.NVML_GPU_FABRIC_STATE_IN_PROGRESS, 0)},
            *("Fabric manager", "error", "in progress on GPU 1"),
            "restart nvidia-fabricmanager",
        ),
        (
            {
                "fabric": (
                    pynvml.NVML_GPU_FABRIC_STATE_COMPLETED,
                    pynvml.NVML_ERROR_NOT_SUPPORTED,
                )
            },
            *("Fabric manager", "error", "not supported on GPU 1"),
            "restart nvidia-fabricmanager",
        ),
        ({"name": "NVIDIA A100"}, "Mix of GPUs", "warning", "2 models", "=0"),
    ],
)
def test_what_holds_a_gpu_back_is_named_with_its_command(
    told, gpu, what, state, found, remedy
):
    finding = told(WELL, FakeGpu("GPU-1", **gpu))[what]

    assert finding.severity == state
    assert found in finding.evidence
    assert remedy in finding.action


def test_gpus_that_the_fabric_manager_has_connected_are_well(told):
    done = (pynvml.NVML_GPU_FABRIC_STATE_COMPLETED, pynvml.NVML_SUCCESS)

    finding = told(*(FakeGpu(f"GPU-{n}", fabric=done) for n in range(3)))

    assert finding["Fabric manager"].evidence == "GPU 0, 1 and 2 can use NVSwitch"


@pytest.mark.parametrize(
    ("setting", "state", "found"),
    [
        ("0,9", "error", "no GPU '9'"),
        ("GPU-x", "error", "no GPU 'GPU-x'"),
        ("1", "note", "1 of 2 GPUs"),
        ("", "warning", "0 of 2 GPUs"),
        ("-1", "warning", "0 of 2 GPUs"),
    ],
)
def test_a_setting_that_names_no_gpu_is_told(told, monkeypatch, setting, state, found):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)

    finding = told(WELL, FakeGpu("GPU-1"))["Visible GPUs"]

    assert finding.severity == state
    assert found in finding.evidence


LOG = """[ 12.1] NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', GPU has fallen off
[ 13.1] NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', GPU has fallen off
[ 14.1] NVRM: Xid (PCI:0000:3b:00): 31, pid=411, name=python, MMU Fault
[ 15.1] NVRM: Xid (PCI:0000:3b:00): 64, pid=411, row remapper failure
"""


def test_errors_in_the_kernels_log_are_told_by_gpu():
    gpus = [
        GpuDevice(0, "GPU-0", pci_bus_id="00000000:1B:00.0"),
        GpuDevice(1, "GPU-1", pci_bus_id="00000000:3B:00.0"),
    ]

    fallen, fault, memory = gpu_health.judge_log(LOG, gpus)

    assert fallen.evidence.startswith("79 on GPU 0 (2x")
    assert (fallen.severity, fallen.action[:6]) == ("warning", "reboot")
    assert fault.severity == "note"
    assert fault.evidence.endswith("illegal memory access by a kernel of the program")
    assert (memory.evidence[:11], memory.severity) == ("64 on GPU 1", "warning")
    [closed] = gpu_health.judge_log(None, gpus)
    assert closed.action == "sudo dmesg | grep Xid"


def test_gpus_that_only_their_pci_domain_tells_apart_have_their_own_errors():
    gpus = [
        GpuDevice(0, "GPU-0", pci_bus_id="00000001:00:00.0"),
        GpuDevice(1, "GPU-1", pci_bus_id="00000002:00:00.0"),
    ]
    log = "[ 1.0] NVRM: Xid (PCI:0001:00:00): 79, pid=1, name=python\n"

    [lost] = gpu_health.judge_log(log, gpus)

    assert (
        lost.evidence
        == "79 on GPU 0 (1x in the kernel log): the GPU has fallen off the bus"
    )


def test_nccl_needs_shared_memory_beside_the_loading_processes(tmp_path, monkeypatch):
    needed = 2 * 2 * 64 * 224 * 224 * 3  # two batches of each process
    monkeypatch.setattr(health, "usable_cpus", lambda: 2.0)
    usage = type("usage", (), {"total": needed * 2, "free": needed})
    monkeypatch.setattr(health.shutil, "disk_usage", lambda folder: usage)

    one, several = (health.shared_memory(count, tmp_path) for count in (1, 8))

    assert one.severity == "ok"
    assert several.severity == "warning"
    assert "NCCL between 8 GPUs" in several.action
    assert "--shm-size=2g" in several.action
