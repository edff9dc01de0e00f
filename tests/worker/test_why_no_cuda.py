"""Why torch sees no GPU where there is one: in CUDA's words, with what to do."""

from __future__ import annotations

import pynvml
import pytest
import torch

from nbkit.config import ExperimentConfig
from nbkit.errors import DeviceError
from nbkit.worker.distributed import choose_device
from nbkit.worker.rank import Rank
from tests.telemetry.fake_nvml.fake_driver import FakeDriver, FakeGpu

_COUNTED = (
    "Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions "
    "before calling NumCudaDevices() that might have already set an error? Error "
)
_TOO_OLD = (
    "The NVIDIA driver on your system is too old (found version 12080). Please update "
    "your GPU driver by downloading and installing a new version from the URL: "
    "http://www.nvidia.com/Download/index.aspx Alternatively, go to: "
    "https://pytorch.org to install a PyTorch version that has been compiled with your "
    "version of the CUDA driver."
)


@pytest.fixture
def refused(tmp_path, monkeypatch):
    """Return what a rank says where CUDA refuses with the words given."""
    FakeDriver([FakeGpu("GPU-a")]).install(pynvml, monkeypatch.setattr)
    monkeypatch.setattr(torch.version, "cuda", "13.2")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.delenv("NBKIT_DEVICE_TYPE", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def say(words):
        def init():
            raise RuntimeError(words)

        monkeypatch.setattr(torch.cuda, "init", init)
        rank = Rank(tmp_path, 0, 0, 1, 1, 0, None)
        with pytest.raises(DeviceError) as error:
            choose_device(rank, ExperimentConfig(device="cuda", gpus=1))
        return str(error.value)

    return say


@pytest.mark.parametrize(
    ("words", "quoted", "todo"),
    [
        (
            _COUNTED + "802: system not yet initialized",
            "Error 802: system not yet initialized",
            "systemctl status nvidia-fabricmanager",
        ),
        (
            _TOO_OLD,
            "The NVIDIA driver on your system is too old (found version 12080)",
            "update the driver, or install an older torch",
        ),
        (
            _COUNTED + "803: system has unsupported display driver / cuda driver "
            "combination",
            "Error 803",
            "reboot after an update of the driver",
        ),
        (
            _COUNTED + "804: forward compatibility was attempted on non supported HW",
            "Error 804",
            "remove it from LD_LIBRARY_PATH",
        ),
        (
            "No CUDA GPUs are available",
            "No CUDA GPUs are available",
            "compare the variable with nvidia-smi -L",
        ),
        (
            _COUNTED + "101: invalid device ordinal",
            "Error 101",
            "no GPU has this number",
        ),
        (
            "CUDA driver initialization failed, you might not have a CUDA gpu.",
            "CUDA driver initialization failed",
            "check for an Xid message",
        ),
        (
            "CUDA unknown error - this may be due to an incorrectly set up "
            "environment, e.g. changing env variable CUDA_VISIBLE_DEVICES after "
            "program start. Setting the available devices to be zero.",
            "CUDA unknown error",
            "modprobe nvidia_uvm",
        ),
        ("Something new", "Something new", "run nvidia-smi for details"),
    ],
    ids=["802", "too old", "803", "804", "none", "101", "driver", "unknown", "new"],
)
def test_what_cuda_says_decides_what_to_do(words, quoted, todo, refused):
    said = refused(words)

    assert quoted in said
    assert todo in said
    assert "built for CUDA 13.2" in said
    assert "driver 570.86.15, which supports CUDA up to 12.8" in said
    # torch's own advice would stand beside it.
    assert "Please" not in said
    assert "Did you run" not in said


def test_the_setting_that_hides_gpus_is_named(refused, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "9")

    assert "CUDA_VISIBLE_DEVICES='9'" in refused("No CUDA GPUs are available")
