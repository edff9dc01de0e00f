"""What ranks send each other beside gradients."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torchvision.models import resnet18, swin_t

from nbkit.config import ExperimentConfig
from nbkit.store.paths import RunPaths
from nbkit.worker import models
from nbkit.worker.ddp import ddp_of, no_sync, wrap_ddp
from nbkit.worker.rank import Rank
from nbkit.worker.step_clock import StepClock
from nbkit.worker.train import train

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def group():
    """Return a process group of one rank."""
    store = dist.HashStore()  # pyright: ignore[reportPrivateImportUsage]
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class _Codebook(nn.Module):
    """Reads a buffer in every step."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("codes", torch.ones(3))


@pytest.mark.parametrize(
    ("make", "sent"),
    [(resnet18, False), (swin_t, True), (_Codebook, True)],
    ids=["running statistics", "constants", "a buffer that is read"],
)
def test_running_statistics_are_not_sent_before_every_step(group, tmp_path, make, sent):
    config = ExperimentConfig(device="cpu", gpus=2)
    rank = Rank(tmp_path, 0, 0, 2, 2, 0, None)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)  # of a deprecated argument
        model = wrap_ddp(make(), config, rank, CPU, StepClock(CPU))

    assert isinstance(model, DistributedDataParallel)
    assert model.will_sync_module_buffers() is sent


class _Wrapper(nn.Module):
    """Keeps a module under another name than torch.compile does."""

    def __init__(self, module):
        super().__init__()
        self.inner = module


@pytest.mark.parametrize("wrapper", [lambda model: model, _Wrapper])
def test_gradients_stay_on_their_rank_whatever_wraps_the_model(
    group, tmp_path, wrapper
):
    stay_on_their_rank(tmp_path, wrapper)


def stay_on_their_rank(tmp_path, wrapper):
    """See that no gradient is exchanged where a wrapped model is told so."""
    config = ExperimentConfig(device="cpu", gpus=2)
    rank = Rank(tmp_path, 0, 0, 2, 2, 0, None)
    exchanging = wrap_ddp(nn.Linear(2, 2), config, rank, CPU, StepClock(CPU))

    with no_sync(ddp_of(wrapper(exchanging))):
        assert not exchanging.require_backward_grad_sync
    assert exchanging.require_backward_grad_sync


class _Counted(nn.Module):
    """Counts who looks through its modules."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3 * 16 * 16, 4)
        self.looks = 0

    def forward(self, images):
        return self.linear(images.flatten(1))

    def modules(self, *args, **kwargs):
        self.looks += 1
        return super().modules(*args, **kwargs)


def test_a_step_of_several_parts_does_not_look_through_the_model(tmp_path, monkeypatch):
    looks = []
    for steps in (1, 4):
        model = _Counted()
        monkeypatch.setattr(models, "build", lambda config, outputs, it=model: it)
        config = ExperimentConfig(
            device="cpu",
            image_size=16,
            num_classes=4,
            batch_size_per_gpu=2,
            gradient_accumulation_steps=3,
            steps=steps,
            warmup_steps=0,
            tensorboard=False,
        )
        root = tmp_path / str(steps)
        root.mkdir()
        train(Rank(RunPaths(root), 0, 0, 1, 1, 0, None), config)
        looks.append(model.looks)

    assert looks[0] == looks[1]
