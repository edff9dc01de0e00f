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
            "precision='tf32' requires an NVIDIA GPU, but this run uses "
            f"{device_type}. Use 'fp32' or 'bf16'."
        )
    if os.environ.get(_OVERRIDE) == "0":
        return (
            f"{_OVERRIDE}=0 disables precision='tf32'. Unset the variable, or use "
            "'fp32'."
        )
    return None
