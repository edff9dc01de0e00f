"""Peak rates of GPUs, with their data sheets.

Dense rates: data sheets of Ampere and later print tensor-core rates with 2:4
sparsity, which is twice what a dense matrix product can reach; the table, in GB/s and
TFLOP/s, has half of those. Peaks assume the boost clock, which a GPU at its power limit
does not hold.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

from nbkit.references.gpu_names import canonical_gpu_name


@dataclass(frozen=True)
class GpuPeaks:
    """Peak rates of one GPU."""

    gpu_name: str
    """GPU name as defined by `nbkit.references.gpu_names`."""
    memory_bandwidth_bytes_per_second: float
    flop_per_second: Mapping[str, float]
    """By precision, dense: ``fp32`` outside the tensor cores, the others on them."""
    source: str
    """Title and URL of the data sheet."""


def gpu_peaks(gpu_name: str) -> GpuPeaks | None:
    """Return the peaks of a GPU by the name that NVML or torch prints."""
    return _peaks().get(canonical_gpu_name(gpu_name) or "")


@functools.cache
def _peaks() -> dict[str, GpuPeaks]:
    text = (resources.files("nbkit.review") / "gpu_peaks.csv").read_text("utf-8")
    names = ("fp16", "bf16", "tf32", "fp32")
    return {
        row["gpu_name"]: GpuPeaks(
            row["gpu_name"],
            float(row["memory_bandwidth_gigabytes_per_second"]) * 1e9,
            {name: float(row[name]) * 1e12 for name in names if row[name]},
            row["source"],
        )
        for row in csv.DictReader(text.splitlines())
    }
