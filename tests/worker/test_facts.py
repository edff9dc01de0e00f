"""What a rank says of its device."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from nbkit.config import ExperimentConfig
from nbkit.store.paths import RunPaths
from nbkit.store.record import read_json
from nbkit.worker.facts import write_facts
from nbkit.worker.rank import Rank


@pytest.fixture
def told(tmp_path, monkeypatch):
    """Return what a rank on a GPU says; switches are put back afterwards."""
    gpu = SimpleNamespace(name="H200", uuid="0123", major=9, minor=0, total_memory=1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: gpu)
    monkeypatch.setattr("torch.cuda.nccl.version", lambda: (2, 27, 3))
    switches = torch.backends.cuda.matmul
    before = switches.allow_tf32
    rank = Rank(RunPaths(tmp_path), 0, 0, 1, 1, 0, None)

    def tell(index=0):
        device = torch.device("cuda", index)
        config = ExperimentConfig()
        write_facts(rank, config, device, None, None, None, completed=False)
        return read_json(rank.paths.worker)

    yield tell
    switches.allow_tf32 = before


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
    setting, index, named, monkeypatch, told
):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if setting is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)

    assert told(index)["devices"][0]["uuid"] == named


@pytest.mark.parametrize("allowed", [True, False])
def test_tf32_is_what_the_older_switch_was_set_to(told, allowed):
    torch.backends.cuda.matmul.allow_tf32 = allowed

    assert told()["tf32"] is allowed


@pytest.mark.skipif(
    not hasattr(torch.backends.cuda.matmul, "fp32_precision"),
    reason="this torch has only the older switch of TF32",
)
def test_tf32_is_what_a_function_has_set_the_newer_switch_to(told):
    torch.backends.cuda.matmul.fp32_precision = "tf32"

    assert told()["tf32"] is True


class Mixed:
    """Switches of which torch says that older and newer ones were mixed."""

    @property
    def allow_tf32(self):
        message = "you have used mix of the legacy and new APIs"
        raise RuntimeError(message)


@pytest.mark.parametrize("switches", [Mixed(), SimpleNamespace()])
def test_tf32_of_which_torch_does_not_tell_is_not_known(monkeypatch, told, switches):
    monkeypatch.setattr(torch.backends.cuda, "matmul", switches)

    assert told()["tf32"] is None
