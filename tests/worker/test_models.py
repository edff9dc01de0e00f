"""Models: every size they take, nothing they do not."""

from types import SimpleNamespace

import pytest
import torch

from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError
from nbkit.worker import models

SMALLEST = {
    "alexnet": 63,
    "convnext_tiny": 32,
    "densenet121": 29,
    "inception_v3": 75,
    "squeezenet1_0": 21,
    "squeezenet1_1": 17,
    "vgg11": 32,
}


@pytest.fixture(autouse=True, scope="module")
def shapes_of_meta_tensors():
    """Import what tells them: see tests/quick_torch."""
    return torch._meta_registrations.device_hint


@pytest.mark.parametrize(("name", "smallest"), SMALLEST.items())
def test_a_model_takes_its_smallest_image_and_refuses_a_smaller_one(name, smallest):
    config = ExperimentConfig(model=name, image_size=smallest)

    assert logits_shape(config) == (2, 10)
    with pytest.raises(ConfigError, match=f"Use {smallest} or more"):
        config.replace(image_size=smallest - 1)


@pytest.mark.parametrize(("name", "smallest"), SMALLEST.items())
def test_an_image_that_is_refused_would_have_failed(name, smallest):
    with torch.device("meta"):
        size = smallest - 1
        config = SimpleNamespace(model=name, image_size=size)
        model = models.build(config, 10).train()

        with pytest.raises(RuntimeError, match=r"too small|Kernel size"):
            model(torch.empty(2, 3, size, size))


@pytest.mark.parametrize(
    "name", ["resnet18", "mobilenet_v3_small", "shufflenet_v2_x0_5", "googlenet"]
)
def test_other_models_take_the_smallest_image_of_a_config(name):
    assert logits_shape(ExperimentConfig(model=name, image_size=16)) == (2, 10)


@pytest.mark.parametrize(
    ("name", "size"), [("vit_b_16", 48), ("vit_b_32", 64), ("maxvit_t", 224)]
)
def test_a_model_of_patches_is_built_for_the_image_size(name, size):
    assert logits_shape(ExperimentConfig(model=name, image_size=size)) == (2, 10)


def test_a_size_that_patches_do_not_divide_is_refused_with_both_neighbours():
    with pytest.raises(ConfigError, match="Use 48 or 64"):
        ExperimentConfig(model="vit_b_16", image_size=50)
    with pytest.raises(ConfigError, match=r"Use 224\."):
        ExperimentConfig(model="maxvit_t", image_size=64)
    with pytest.raises(ConfigError, match=r"Use 4032\."):
        ExperimentConfig(model="maxvit_t", image_size=4_096)


@pytest.mark.parametrize("name", ["googlenet", "inception_v3"])
def test_model_normalises_for_its_pretrained_weights(name):
    config = SimpleNamespace(model=name, image_size=96)
    with torch.device("meta"):
        assert models.build(config, 10).transform_input


def test_weights_follow_the_seed():
    config = ExperimentConfig(model="shufflenet_v2_x0_5", image_size=32)
    built = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        built.append(models.build(config, 10).fc.weight)

    assert torch.equal(built[0], built[1])
    assert not torch.equal(built[0], built[2])


def logits_shape(config):
    """Return the shape of two images' logits in training, without any arithmetic."""
    size = config.image_size
    with torch.device("meta"):
        model = models.build(config, 10).train()
        return tuple(model(torch.empty(2, 3, size, size)).shape)
