"""What ranks draw alike, and what each for itself; what is called deterministic."""

from __future__ import annotations

import random
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
from torch import nn

from nbkit.config import ExperimentConfig
from nbkit.config.determinism import not_deterministic
from nbkit.errors import ConfigError
from nbkit.store.paths import RunPaths
from nbkit.worker import models
from nbkit.worker.rank import Rank
from nbkit.worker.seeding import seed, seed_rank
from nbkit.worker.train import train

GPU = torch.device("cuda", 0)
CPU = torch.device("cpu")


def drawn():
    """Return a number of each generator."""
    return random.random(), float(torch.rand(())), float(np.random.rand())


def rank_of(root, number):
    return Rank(RunPaths(root), number, 0, 1, 1, 0, None)


@pytest.fixture(autouse=True)
def torch_is_left_as_it_was():
    cudnn = torch.backends.cudnn
    benchmark, limit = cudnn.benchmark, cudnn.benchmark_limit
    yield
    cudnn.benchmark, cudnn.benchmark_limit = benchmark, limit
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(
    ("search", "expected"),
    [("off", (False, 3)), (4, (True, 4)), ("exhaustive", (True, 0))],
)
def test_seed_cudnn_search(search, expected):
    cudnn = torch.backends.cudnn
    cudnn.benchmark, cudnn.benchmark_limit = search == "off", 3
    config = ExperimentConfig(cudnn_benchmark=search)

    seed(config, CPU)
    assert (cudnn.benchmark, cudnn.benchmark_limit) == (search == "off", 3)
    seed(config, GPU)
    assert (cudnn.benchmark, cudnn.benchmark_limit) == expected


def test_a_model_without_a_deterministic_gradient_is_refused_where_a_gpu_was_found():
    config = ExperimentConfig(model="alexnet", deterministic=True)

    with pytest.raises(
        ConfigError, match=r"^deterministic=True: .* in alexnet .*. Use det"
    ):
        seed(config, GPU)
    seed(config, CPU)
    seed(config.replace(deterministic=False), GPU)


def test_a_variable_that_contradicts_it_is_refused_where_gradients_are_exchanged(
    monkeypatch,
):
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "1")
    config = ExperimentConfig(deterministic=True)

    with pytest.raises(ConfigError, match="NCCL_NVLS_ENABLE=1: reductions"):
        seed(config.replace(gpus=2), GPU)
    seed(config, GPU)
    assert torch.are_deterministic_algorithms_enabled()


def test_every_model_that_pools_to_more_than_the_mean_is_known():
    folder = Path(torchvision.models.__file__).parent
    call = re.compile(r"adaptive_?avg_?pool2d\((?:x, )?\(?(\d+)", re.IGNORECASE)
    pools = {
        file.stem
        for file in folder.glob("*.py")
        if {*call.findall(file.read_text())} - {"1"}
    }

    # GoogLeNet's is in its auxiliary heads, which are left out.
    assert pools - {"googlenet"} == {"alexnet", "vgg"}
    assert all(not_deterministic(name) for name in ("alexnet", "vgg11_bn", "vgg19"))


def test_every_generator_is_seeded_and_then_each_rank_draws_its_own(tmp_path):
    config = ExperimentConfig(device="cpu", seed=2**31 - 1)
    seed(config, CPU)
    alike = drawn()
    ranks = []
    for number in range(3):
        seed(config, CPU)
        seed_rank(config, rank_of(tmp_path, number))
        ranks.append(drawn())

    assert ranks[0] == alike
    assert all(len({*kind}) == 3 for kind in zip(*ranks, strict=True))


class _Drawing(nn.Module):
    """Notes its first weights, and what it draws in each step."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3 * 16 * 16, 4)
        self.first = self.linear.weight.detach().clone()
        self.draws = []

    def forward(self, images):
        self.draws.append(drawn())
        return self.linear(images.flatten(1))


def test_ranks_of_a_training_begin_with_equal_weights_and_draw_their_own_masks(
    tmp_path, monkeypatch
):
    config = ExperimentConfig(
        device="cpu",
        image_size=16,
        num_classes=4,
        batch_size_per_gpu=2,
        steps=2,
        warmup_steps=0,
        tensorboard=False,
    )
    found = []
    monkeypatch.setattr(
        models, "build", lambda config, outputs: found.append(_Drawing()) or found[-1]
    )
    for number in range(2):
        root = tmp_path / str(number)
        root.mkdir()
        train(rank_of(root, number), config)

    one, other = found
    assert torch.equal(one.first, other.first)
    assert not {*sum(one.draws, ())} & {*sum(other.draws, ())}
