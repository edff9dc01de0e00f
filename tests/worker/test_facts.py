"""What a rank says of its device."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from nbkit.worker import facts
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


def tf32():
    """Return what a rank on a GPU says of TF32."""
    return facts._software(torch.device("cuda"))["tf32"]


@pytest.fixture
def on_a_gpu(monkeypatch):
    """Let this process have a GPU's libraries; switches are put back afterwards."""
    switches = torch.backends.cuda.matmul
    before = switches.allow_tf32
    monkeypatch.setattr(facts, "_nccl_version", lambda: "2.27.3")
    yield
    switches.allow_tf32 = before


@pytest.mark.usefixtures("on_a_gpu")
@pytest.mark.parametrize("allowed", [True, False])
def test_tf32_is_what_the_older_switch_was_set_to(allowed):
    torch.backends.cuda.matmul.allow_tf32 = allowed

    assert tf32() is allowed


@pytest.mark.usefixtures("on_a_gpu")
@pytest.mark.skipif(
    not hasattr(torch.backends.cuda.matmul, "fp32_precision"),
    reason="this torch has only the older switch of TF32",
)
def test_tf32_is_what_a_function_has_set_the_newer_switch_to():
    torch.backends.cuda.matmul.fp32_precision = "tf32"

    assert tf32() is True


class Mixed:
    """Switches of which torch says that older and newer ones were mixed."""

    @property
    def allow_tf32(self):
        message = "you have used mix of the legacy and new APIs"
        raise RuntimeError(message)


@pytest.mark.usefixtures("on_a_gpu")
@pytest.mark.parametrize("switches", [Mixed(), SimpleNamespace()])
def test_tf32_of_which_torch_does_not_tell_is_not_known(monkeypatch, switches):
    monkeypatch.setattr(torch.backends.cuda, "matmul", switches)

    assert tf32() is None
