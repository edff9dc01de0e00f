"""What a rank refuses to call deterministic."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
import torchvision

from nbkit.config import ExperimentConfig
from nbkit.config.determinism import not_deterministic
from nbkit.errors import ConfigError
from nbkit.worker.seeding import seed

GPU = torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def torch_is_left_as_it_was():
    benchmark = torch.backends.cudnn.benchmark
    yield
    torch.backends.cudnn.benchmark = benchmark
    torch.use_deterministic_algorithms(False)


def test_a_model_without_a_deterministic_gradient_is_refused_where_a_gpu_was_found():
    config = ExperimentConfig(model="alexnet", deterministic=True)

    with pytest.raises(ConfigError, match=r"^deterministic=True: alexnet .*; use det"):
        seed(config, GPU)
    seed(config, torch.device("cpu"))
    seed(config.replace(deterministic=False), GPU)


def test_a_variable_that_contradicts_it_is_refused_where_gradients_are_exchanged(
    monkeypatch,
):
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "1")
    config = ExperimentConfig(deterministic=True)

    with pytest.raises(ConfigError, match="NCCL_NVLS_ENABLE=1 in the environment"):
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
