"""The time that stands in for a GPU follows from a published rate, which is named."""

import pytest

from nbkit.errors import NotEnoughDataError
from nbkit.references.emulated_gpus import emulated_step
from nbkit.references.rows import lookup


def test_it_is_the_fastest_published_result_of_that_gpu_model_and_precision():
    found = emulated_step("NVIDIA A100-SXM4-80GB", "resnet50", "fp16", 256)

    rates = [
        row.images_per_second
        for row in lookup(
            gpu_name="A100-SXM4-80GB", model="resnet50", precision="fp16", world_size=1
        )
        if row.images_per_second
        and not row.compile
        and row.memory_format != "channels_first"
    ]
    assert found.images_per_second == max(rates)
    assert found.seconds == pytest.approx(256 / max(rates))
    assert "A100" in found.source
    assert found.row.publisher in found.source


def test_what_nobody_published_is_refused_with_what_somebody_did():
    with pytest.raises(NotEnoughDataError, match=r"'K80' cannot .* V100-SXM2-32GB"):
        emulated_step("K80", "resnet50", "fp32", 32)
    with pytest.raises(NotEnoughDataError, match="Use another model or precision"):
        emulated_step("V100-SXM2-32GB", "squeezenet1_0", "fp32", 32)
    # Its only rates are in channels_first, below those of slower GPUs in the other.
    with pytest.raises(NotEnoughDataError, match="'NVIDIA H200' cannot"):
        emulated_step("NVIDIA H200", "resnet50", "fp16", 256)
