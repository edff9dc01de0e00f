"""What memory and arithmetic allow, and that nobody is above it."""

from __future__ import annotations

import pytest

from nbkit.errors import ConfigError
from nbkit.references.gpu_names import canonical_gpu_name
from nbkit.references.rows import published
from nbkit.review.bounds import (
    resnet50_bound,
    resnet50_convolutions,
    resnet50_kernels,
)
from nbkit.review.gpu_peaks import gpu_peaks

H100, H200 = "NVIDIA H100 80GB HBM3", "NVIDIA H200"
A100, V100 = "NVIDIA A100-SXM4-80GB", "Tesla V100-SXM2-16GB"
WITH_DATASHEET = [
    V100,
    "Tesla V100-PCIE-32GB",
    "NVIDIA A100-SXM4-40GB",
    A100,
    "NVIDIA A100-PCIE-40GB",
    "NVIDIA A100 80GB PCIe",
    "NVIDIA H100 PCIe",
    H100,
    H200,
    "NVIDIA B200",
    "NVIDIA L4",
    "NVIDIA L40S",
    "Tesla T4",
    "NVIDIA GeForce RTX 3090",
    "NVIDIA GeForce RTX 4090",
]


def test_layers_add_up_to_the_known_totals_of_resnet50():
    layers = resnet50_convolutions()

    assert len(layers) == 53
    dense = 2048 * 1000
    # timm's results table: 4.11 GMAC (counting other layers too), 11.11 M activations
    multiply_adds = sum(layer.multiply_adds for layer in layers) + dense
    assert multiply_adds / 1e9 == pytest.approx(4.089, abs=0.0005)
    assert sum(layer.outputs for layer in layers) / 1e6 == pytest.approx(
        11.11, abs=0.01
    )
    batch_norm = 2 * sum(layer.out_channels for layer in layers)
    weights = sum(layer.weights for layer in layers)
    assert weights + batch_norm + dense + 1000 == 25_557_032  # torchvision's resnet50


def test_stem_needs_no_gradient_of_the_image():
    (stem,) = [layer for layer in resnet50_convolutions() if layer.first]

    assert stem.multiply_adds / 1e9 == pytest.approx(0.118, abs=0.0005)
    total = sum(kernel.flop for kernel in resnet50_kernels()) / 1e9
    assert total == pytest.approx(2 * (3 * 4.089 - 0.118), abs=0.005)


@pytest.mark.parametrize(
    ("fusion", "megabytes"), [("eager", 476.9), ("fused", 358.7), ("minimal", 171.5)]
)
def test_traffic_per_image_is_what_the_model_says(fusion, megabytes):
    bound = resnet50_bound(H200, "bf16", fusion)

    assert bound.bytes_per_image / 1e6 == pytest.approx(megabytes, rel=0.002)


@pytest.mark.parametrize(
    ("gpu", "precision", "fusion", "images_per_second"),
    [
        (H200, "bf16", "eager", 9_293),
        (H200, "bf16", "fused", 12_050),
        (H200, "bf16", "minimal", 22_700),
        (H100, "bf16", "eager", 6_740),
        (H100, "bf16", "fused", 8_843),
        (A100, "fp16", "eager", 3_733),
        (A100, "fp16", "fused", 4_763),
        (V100, "fp16", "eager", 1_611),
    ],
)
def test_bound_is_the_sum_over_kernels_of_the_slower_limit(
    gpu, precision, fusion, images_per_second
):
    bound = resnet50_bound(gpu, precision, fusion)

    assert bound.images_per_second == pytest.approx(images_per_second, rel=0.0015)


def test_most_of_the_time_is_in_kernels_that_memory_bounds():
    bound = resnet50_bound(H200, "bf16", "eager")

    assert 0.83 <= bound.memory_bound_share <= 0.875


def test_wider_numbers_and_smaller_batches_lower_the_bound():
    rates = [
        resnet50_bound(H200, precision).images_per_second
        for precision in ("bf16", "tf32", "fp32")
    ]

    assert rates == sorted(rates, reverse=True)
    assert resnet50_bound(H200, batch_size=8).images_per_second < rates[0]


def test_unknown_gpu_has_no_bound():
    assert resnet50_bound("NVIDIA GeForce GTX 1080") is None
    assert resnet50_bound("NVIDIA H200 MIG 1g.18gb") is None


def test_a_gpu_without_units_for_a_precision_has_no_bound():
    assert resnet50_bound(V100, "bf16") is None
    assert resnet50_bound("Tesla T4", "tf32") is None
    assert resnet50_bound("Tesla T4", "fp16") is not None


def test_bad_precision_and_fusion_are_named_with_what_there_is():
    with pytest.raises(ConfigError, match=r"precision='fp8'.*fp32, tf32, fp16, bf16"):
        resnet50_bound(H200, "fp8")
    with pytest.raises(ConfigError, match=r"fusion='magic'.*eager, fused, minimal"):
        resnet50_bound(H200, "bf16", "magic")


@pytest.mark.parametrize("name", WITH_DATASHEET)
def test_peaks_are_in_the_vocabulary_ordered_and_sourced(name):
    peaks = gpu_peaks(name)

    assert peaks.gpu_name == canonical_gpu_name(name)
    assert "nvidia.com/" in peaks.source
    assert 2e11 < peaks.memory_bandwidth_bytes_per_second < 1e13
    flop = peaks.flop_per_second
    assert flop["fp16"] > flop["fp32"]
    assert flop.get("bf16", flop["fp16"]) == flop["fp16"]
    tf32 = flop.get("tf32")
    assert tf32 is None or tf32 == pytest.approx(flop["fp16"] / 2, rel=0.02)


def test_nobody_has_published_more_than_the_fused_bound():
    compared = 0
    for row in published():
        smaller_images = row.publisher == "ffcv"  # trains mostly at 160 pixels
        if row.model != "resnet50" or row.phase != "train" or smaller_images:
            continue
        if not (row.gpu_name and row.precision and row.images_per_second):
            continue
        bound = resnet50_bound(row.gpu_name, row.precision, "fused")
        if bound is None:
            continue
        compared += 1
        per_gpu = row.images_per_second / row.world_size
        assert per_gpu < bound.images_per_second, row
    assert compared > 150
