"""The stored table of memory is what models keep for their backward pass."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from nbkit.config import ExperimentConfig
from nbkit.worker import models
from tests.estimates.test_memory import estimate
from tests.soak.model_memory import measure, saved_bytes


# A convolution network, one with depthwise convolutions, and a transformer.
@pytest.mark.skipif(
    torch.__version__ < (2, 10), reason="an older torch aborts without the fake GPU"
)
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "vit_b_32"])
def test_the_table_is_what_is_measured_now(name):
    found = measure(name)

    for precision, per_image in (
        ("fp32", found.activation_bytes_fp32),
        ("bf16", found.activation_bytes_16bit),
    ):
        said = estimate(
            model=name,
            image_size=found.image_size,
            batch_size_per_gpu=1,
            precision=precision,
        )
        # Another version of torch may keep something else here and there.
        assert said.activations_bytes == pytest.approx(per_image, rel=0.1)
    assert said.gradients_bytes == 4 * found.parameters


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "vit_b_32"])
def test_the_estimate_is_near_what_a_real_forward_pass_keeps(name):
    config = ExperimentConfig(model=name, batch_size_per_gpu=3)
    model = models.build(config, 1_000).train()
    images, labels = torch.randn(3, 3, 224, 224), torch.zeros(3, dtype=torch.long)

    kept = saved_bytes(
        lambda: functional.cross_entropy(model(images), labels),
        [*model.parameters(), *model.buffers()],
    )

    said = estimate(model=name, batch_size_per_gpu=3).activations_bytes
    assert said == pytest.approx(kept, rel=0.1)
