"""Names that drivers and reports print, in one vocabulary."""

from __future__ import annotations

import pytest

from nbkit.references.gpu_names import canonical_gpu_name, may_be_the_same_gpu


@pytest.mark.parametrize(
    ("printed", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "H100-SXM-80GB"),
        ("NVIDIA H100 PCIe", "H100-PCIe-80GB"),
        ("NVIDIA H100 NVL", "H100-NVL-94GB"),
        ("NVIDIA H200", "H200-SXM-141GB"),
        ("NVIDIA H200 NVL", "H200-NVL-141GB"),
        ("NVIDIA B200", "B200-SXM"),
        ("Tesla V100-SXM2-16GB", "V100-SXM2-16GB"),
        ("Tesla V100-SXM3-32GB", "V100-SXM3-32GB"),
        ("Tesla V100-PCIE-16GB", "V100-PCIe-16GB"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"),
        ("NVIDIA A100-PCIE-40GB", "A100-PCIe-40GB"),
        ("NVIDIA A100 80GB PCIe", "A100-PCIe-80GB"),
        ("A100-SXM-80GB", "A100-SXM4-80GB"),
        ("NVIDIA L40S", "L40S"),
        ("Tesla T4", "T4"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("V100-16GB", "V100-16GB"),
        ("A100", "A100"),
    ],
)
def test_printed_names_become_the_vocabularys(printed, name):
    assert canonical_gpu_name(printed) == name
    assert canonical_gpu_name(name) == name


@pytest.mark.parametrize(
    "printed",
    [
        "NVIDIA A100-SXM4-80GB MIG 1g.10gb",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 3090 Ti",
        "NVIDIA GeForce GTX 1080",
        "NVIDIA A100X",
        "NVIDIA GB200",
        "GRID A100-10C",
        "NVIDIA A100-10C",
        "NVIDIA H100-80C",
        "",
    ],
)
def test_other_products_and_parts_of_a_gpu_have_no_name(printed):
    assert canonical_gpu_name(printed) is None


def test_a_name_that_says_less_may_be_the_same_gpu():
    assert may_be_the_same_gpu("A100-80GB", "A100-SXM4-80GB")
    assert may_be_the_same_gpu("A100-SXM4-80GB", "A100")
    assert may_be_the_same_gpu("RTX 3090", "RTX 3090")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("A100-PCIe-80GB", "A100-SXM4-80GB"),
        ("A100-40GB", "A100-SXM4-80GB"),
        ("V100-SXM2-32GB", "V100-SXM3-32GB"),
        ("H100-80GB", "A100-80GB"),
        ("L40", "L40S"),
        ("RTX 3090", "RTX 4090"),
    ],
)
def test_names_that_contradict_each_other_are_different_gpus(one, other):
    assert not may_be_the_same_gpu(one, other)
    assert not may_be_the_same_gpu(other, one)
