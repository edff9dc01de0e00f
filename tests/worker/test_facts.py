"""What a rank says of its device."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from nbkit.worker.facts import _device


@pytest.mark.parametrize(
    ("setting", "index", "named"),
    [
        (None, 0, "GPU-0123"),
        ("GPU-0123", 0, "GPU-0123"),
        ("0,1", 1, "GPU-0123"),
        ("MIG-b7", 0, "MIG-b7"),
        ("MIG-GPU-0123/3/0", 0, "MIG-GPU-0123/3/0"),
    ],
)
def test_a_device_has_the_name_that_driver_and_pool_give_it(
    setting, index, named, monkeypatch
):
    told = SimpleNamespace(
        name="H200", uuid="0123", major=9, minor=0, total_memory=2**30
    )
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: told)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if setting is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)

    assert _device(torch.device("cuda", index))["uuid"] == named
