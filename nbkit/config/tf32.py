"""The effect of ``precision="tf32"`` on a device."""

from __future__ import annotations

import os

# https://developer.nvidia.com/blog/accelerating-ai-training-with-tf32-tensor-cores/
_OVERRIDE = "NVIDIA_TF32_OVERRIDE"


def tf32_problem(device_type: str) -> str | None:
    """Return why TF32 has no effect on a device, ``cuda`` or ``cpu``; None if it has.

    By the environment of this process.
    """
    if device_type != "cuda":
        return (
            "precision='tf32' is a format of NVIDIA GPUs, but this run is on "
            f"{device_type}. Use 'fp32' or 'bf16'."
        )
    if os.environ.get(_OVERRIDE) == "0":
        return (
            f"precision='tf32' has no effect with {_OVERRIDE}=0, which disables TF32. "
            "Unset it, or use 'fp32'."
        )
    return None
