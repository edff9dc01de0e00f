"""Peak rates of GPUs, each with the data sheet that prints them.

Dense rates: data sheets of Ampere and later print tensor-core rates with 2:4
sparsity, which is twice what a dense matrix product can reach; the table has half of
those. Peaks assume the boost clock, which a GPU at its power limit does not hold.
"""

from __future__ import annotations

from dataclasses import dataclass

from nbkit.references.gpu_names import canonical_gpu_name


@dataclass(frozen=True)
class GpuPeaks:
    """What one GPU can do at most. ``None``: it has no units for that precision."""

    gpu_name: str
    """In the vocabulary of `nbkit.references.gpu_names`."""
    memory_bandwidth_bytes_per_second: float
    fp16_flop_per_second: float
    """Tensor cores, fp32 accumulation."""
    bf16_flop_per_second: float | None
    """Tensor cores, fp32 accumulation."""
    tf32_flop_per_second: float | None
    """Tensor cores."""
    fp32_flop_per_second: float
    """Outside the tensor cores."""
    source: str
    """Title and address of the data sheet."""

    def flop_per_second(self, precision: str) -> float | None:
        """Return the dense peak in one of ``fp32``, ``tf32``, ``fp16``, ``bf16``."""
        return {
            "fp32": self.fp32_flop_per_second,
            "tf32": self.tf32_flop_per_second,
            "fp16": self.fp16_flop_per_second,
            "bf16": self.bf16_flop_per_second,
        }[precision]


_V100 = (
    "NVIDIA V100 datasheet, https://images.nvidia.com/content/technologies/volta/pdf/"
    "volta-v100-datasheet-update-us-1165301-r5.pdf"
)
_A100 = (
    "NVIDIA A100 datasheet, https://www.nvidia.com/content/dam/en-zz/Solutions/"
    "Data-Center/a100/pdf/nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf"
)
_H100 = (
    "NVIDIA H100 architecture whitepaper (dense rates) and datasheet, "
    "https://resources.nvidia.com/en-us-tensor-core"
)
_H200 = "NVIDIA H200 datasheet, https://www.nvidia.com/en-us/data-center/h200/"
_B200 = "NVIDIA HGX platform (HGX B200), https://www.nvidia.com/en-us/data-center/hgx/"
_L4 = "NVIDIA L4 datasheet, https://www.nvidia.com/en-us/data-center/l4/"
_L40S = "NVIDIA L40S datasheet, https://www.nvidia.com/en-us/data-center/l40s/"
_T4 = "NVIDIA T4 datasheet, https://www.nvidia.com/en-us/data-center/tesla-t4/"
_GA102 = (
    "NVIDIA Ampere GA102 whitepaper, https://www.nvidia.com/content/PDF/"
    "nvidia-ampere-ga-102-gpu-architecture-whitepaper-v2.1.pdf"
)
_AD102 = (
    "NVIDIA Ada whitepaper, https://images.nvidia.com/aem-dam/Solutions/geforce/ada/"
    "nvidia-ada-gpu-architecture.pdf"
)

# name, memory GB/s, then dense TFLOP/s in fp16, bf16, tf32, fp32, and the source
_TABLE: tuple[tuple[str, float, float, float | None, float | None, float, str], ...] = (
    ("V100-SXM2-16GB", 900, 125, None, None, 15.7, _V100),
    ("V100-SXM2-32GB", 900, 125, None, None, 15.7, _V100),
    ("V100-PCIe-16GB", 900, 112, None, None, 14.0, _V100),
    ("V100-PCIe-32GB", 900, 112, None, None, 14.0, _V100),
    ("A100-SXM4-40GB", 1_555, 312, 312, 156, 19.5, _A100),
    ("A100-PCIe-40GB", 1_555, 312, 312, 156, 19.5, _A100),
    ("A100-SXM4-80GB", 2_039, 312, 312, 156, 19.5, _A100),
    ("A100-PCIe-80GB", 1_935, 312, 312, 156, 19.5, _A100),
    ("H100-SXM-80GB", 3_350, 989.4, 989.4, 494.7, 66.9, _H100),
    ("H100-PCIe-80GB", 2_000, 756, 756, 378, 51.2, _H100),
    ("H200-SXM-141GB", 4_800, 989.4, 989.4, 494.7, 66.9, _H200),
    ("B200-SXM", 8_000, 2_250, 2_250, 1_125, 75.0, _B200),
    ("L4", 300, 121, 121, 60, 30.3, _L4),
    ("L40S", 864, 362.05, 362.05, 183, 91.6, _L40S),
    ("T4", 320, 65, None, None, 8.1, _T4),
    ("RTX 3090", 936, 71.2, 71.2, 35.6, 35.6, _GA102),
    ("RTX 4090", 1_008, 165.2, 165.2, 82.6, 82.6, _AD102),
)


def gpu_peaks(gpu_name: str) -> GpuPeaks | None:
    """Return the peaks of a GPU by the name that NVML or torch prints."""
    return _PEAKS.get(canonical_gpu_name(gpu_name) or "")


def _in_units(tera: float | None) -> float | None:
    return None if tera is None else tera * 1e12


_PEAKS = {
    name: GpuPeaks(
        gpu_name=name,
        memory_bandwidth_bytes_per_second=memory * 1e9,
        fp16_flop_per_second=fp16 * 1e12,
        bf16_flop_per_second=_in_units(bf16),
        tf32_flop_per_second=_in_units(tf32),
        fp32_flop_per_second=fp32 * 1e12,
        source=source,
    )
    for name, memory, fp16, bf16, tf32, fp32, source in _TABLE
}
