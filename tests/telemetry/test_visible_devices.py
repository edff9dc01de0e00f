"""What CUDA_VISIBLE_DEVICES leaves where GPUs are divided; else see tests/launch."""

from __future__ import annotations

import pytest

from nbkit.telemetry.sample import GpuDevice
from nbkit.telemetry.visible_devices import visible_devices

GPUS = [GpuDevice(index=n, uuid=f"GPU-{n}{n}{n}{n}-x") for n in range(3)]
PARENTS = {"MIG-aaaa-1": "GPU-1111-x", "MIG-aabb-2": "GPU-2222-x"}


@pytest.mark.parametrize(
    ("setting", "indices"),
    [
        ("MIG-aabb-2", [2]),
        ("MIG-aabb", [2]),
        ("MIG-aaaa-1,0", [1, 0]),
        ("MIG-aaaa-1,MIG-aaaa-1", [1]),
        ("MIG-GPU-1111-x/3/0", [1]),
        ("0,MIG-none,1", [0]),
    ],
)
def test_an_instance_leaves_the_gpu_that_contains_it(setting, indices):
    assert [gpu.index for gpu in visible_devices(GPUS, setting, PARENTS)] == indices
