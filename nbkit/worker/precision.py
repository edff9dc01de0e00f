"""Number formats of a run: TF32 switches, autocast, loss scaling, image layout."""

from __future__ import annotations

import contextlib
from typing import TypeVar

import torch
from torch import nn

from nbkit.config import ExperimentConfig

__all__ = ["Precision"]

_Module = TypeVar("_Module", bound=nn.Module)
_AUTOCAST = {"fp16": torch.float16, "bf16": torch.bfloat16}


class Precision:
    """What ``precision`` and ``memory_format`` mean on a device.

    Parameters
    ----------
    config
        ``precision`` and ``memory_format`` matter.
    device
        Where the model runs.

    Notes
    -----
    ``fp32`` turns TF32 off for matrix products and convolutions alike; torch leaves it
    on for convolutions, which makes an "FP32" baseline faster than it says.
    https://docs.pytorch.org/docs/stable/notes/cuda.html#tensorfloat-32-tf32-on-ampere-and-later-devices
    """

    def __init__(self, config: ExperimentConfig, device: torch.device) -> None:
        self._device_type = device.type
        self._dtype = _AUTOCAST.get(config.precision)
        tf32 = config.precision == "tf32"
        torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.backends.cudnn.allow_tf32 = tf32
        self.memory_format = getattr(torch, _LAYOUTS[config.memory_format])
        self.scaler = torch.amp.GradScaler(
            device.type, enabled=config.precision == "fp16"
        )
        """Scales the loss of fp16; it does nothing for every other precision."""

    def autocast(self) -> contextlib.AbstractContextManager[object]:
        """Return the context of a forward pass."""
        if self._dtype is None:
            return contextlib.nullcontext()
        return torch.autocast(self._device_type, dtype=self._dtype)

    def to_layout(self, module: _Module) -> _Module:
        """Return the module with its weights in the configured layout."""
        return module.to(memory_format=self.memory_format)  # type: ignore[call-overload]


_LAYOUTS = {"channels_last": "channels_last", "channels_first": "contiguous_format"}
