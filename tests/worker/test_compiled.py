"""What torch's compiler is told and wraps: its import takes as long as these tests."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from nbkit.config import ExperimentConfig
from nbkit.worker.precision import Precision
from tests.worker.images import CPU
from tests.worker.test_ddp import group, stay_on_their_rank
from tests.worker.test_precision import tf32_as_before

__all__ = ["group", "tf32_as_before"]


@pytest.fixture
def inductor():
    """Return torch.compile's settings, which are put back afterwards."""
    import torch._inductor.config as settings

    with settings.patch(layout_optimization=settings.layout_optimization):
        yield settings


def test_compiled_channels_first_stays_channels_first(inductor):
    inductor.layout_optimization = True
    config = ExperimentConfig(compile=True, memory_format="channels_first")

    format_ = Precision(config, CPU)

    assert inductor.layout_optimization is False
    model = nn.Sequential(nn.BatchNorm2d(4))
    assert format_.kernels(model, 8) == {"batch_norm": "inductor"}


@pytest.mark.parametrize("setting", [True, False])
def test_compiled_channels_last_is_left_to_torch(inductor, setting):
    inductor.layout_optimization = setting

    Precision(ExperimentConfig(compile=True), CPU)

    assert inductor.layout_optimization is setting


def test_gradients_of_a_compiled_model_stay_on_their_rank(group, tmp_path):
    stay_on_their_rank(tmp_path, torch.compile)
