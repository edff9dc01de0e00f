"""It is said where formats that are compared have batch normalisation of others."""

from __future__ import annotations

import pytest

from nbkit.reports.batch_norms import batch_norm_of, batch_norm_sentence


def test_formats_with_other_kernels_are_named():
    found = {"fp32": "cudnn", "fp16": "cudnn", "bf16": "native", "old": None}

    assert batch_norm_sentence(found) == (
        "Batch-norm kernels differ between arms: cuDNN in fp32; fp16, native PyTorch "
        "in bf16."
    )


@pytest.mark.parametrize(
    "found",
    [
        {},
        {"fp32": "cudnn", "fp16": "cudnn"},
        {"fp32": "cudnn", "old": None},
        {"fp32": "cudnn", "fp32, compiled": "inductor"},
    ],
)
def test_formats_with_the_same_kernels_are_not(found):
    assert batch_norm_sentence(found) is None


@pytest.mark.parametrize("worker", [{}, {"numbers": None}, {"numbers": {}}])
def test_a_run_of_before_says_nothing(worker):
    assert batch_norm_of(worker) is None
    assert batch_norm_of({"numbers": {"batch_norm": "cudnn"}}) == "cudnn"
