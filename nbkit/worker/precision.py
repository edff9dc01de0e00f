"""Number formats of a run: TF32 switches, autocast, loss scaling, image layout."""

from __future__ import annotations

import contextlib
import warnings
from typing import TypeVar

import torch
from torch import nn

from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError

__all__ = ["Precision", "all_finite"]

_Module = TypeVar("_Module", bound=nn.Module)
_AUTOCAST = {"fp16": torch.float16, "bf16": torch.bfloat16}
_LAYOUTS = {
    "channels_last": torch.channels_last,
    "channels_first": torch.contiguous_format,
}

# TF32 and bf16 came with the Ampere GPUs; torch emulates bf16 on older ones, slowly:
# https://docs.nvidia.com/cuda/cuda-c-programming-guide/#compute-capability-8-x
_AMPERE = (8, 0)


class Precision:
    """What ``precision`` and ``memory_format`` mean on a device.

    Parameters
    ----------
    config
        ``precision`` and ``memory_format`` matter.
    device
        Where the model runs.

    Raises
    ------
    ConfigError
        If the device does not have the format. It is not replaced by another one: no
        result may stand under the name of a format that it was not measured with.

    Notes
    -----
    ``fp32`` turns TF32 off for matrix products and convolutions alike; torch leaves it
    on for convolutions, which makes an "FP32" baseline faster than it says.
    https://docs.pytorch.org/docs/stable/notes/cuda.html#tensorfloat-32-tf32-on-ampere-and-later-devices
    """

    def __init__(self, config: ExperimentConfig, device: torch.device) -> None:
        _check_device(config.precision, device)
        self._device_type = device.type
        self._dtype = _AUTOCAST.get(config.precision)
        # A captured graph must cast its weights anew in every replay.
        self._cache_casts = not config.cuda_graphs
        _allow_tf32(config.precision == "tf32")
        self.memory_format = _LAYOUTS[config.memory_format]
        self.scaler = torch.amp.GradScaler(
            device.type, enabled=config.precision == "fp16"
        )
        """Scales the loss of fp16; it does nothing for every other precision."""
        self._one = torch.ones((), device=device)

    def autocast(self) -> contextlib.AbstractContextManager[object]:
        """Return the context of a forward pass."""
        if self._dtype is None:
            return contextlib.nullcontext()
        return torch.autocast(
            self._device_type, dtype=self._dtype, cache_enabled=self._cache_casts
        )

    def update(self, optimizer: torch.optim.Optimizer) -> torch.Tensor | None:
        """Update the weights; not where the gradients of fp16 are not finite.

        Returns
        -------
        torch.Tensor or None
            Loss scale of this step and of the next one, shape (2,), on the device: the
            scaler lowers it where it found a gradient that is not finite, and leaves
            the weights as they were. None where the loss is not scaled.

        Notes
        -----
        Nobody waits for the device, and nothing is looked at that the scaler does not
        look at anyway.
        """
        before = self.scaler.scale(self._one) if self.scaler.is_enabled() else None
        self.scaler.step(optimizer)
        self.scaler.update()
        if before is None:
            return None
        return torch.stack([before, self.scaler.scale(self._one)])

    def to_layout(self, module: _Module) -> _Module:
        """Return the module with its weights in the configured layout."""
        return module.to(memory_format=self.memory_format)  # type: ignore[call-overload]


def all_finite(module: nn.Module) -> bool:
    """Return whether every weight is a finite number; waits for the device.

    An update by a gradient that is not finite leaves a weight that is not finite, and
    no later one mends it: sums and products with infinity or NaN are never finite, and
    0 times either is NaN (IEEE 754). So a look at the end of a training tells whether
    any update was by such a gradient, at no cost to its steps.
    """
    # A sum is finite only if every term is: ten times as quick as a look at each.
    sums = [weight.detach().sum() for weight in module.parameters()]
    return bool(torch.isfinite(torch.stack(sums)).all()) if sums else True


def _allow_tf32(allowed: bool) -> None:
    """Switch TF32 for matrix products and convolutions of this process.

    There are newer switches (``fp32_precision``, from torch 2.9 on), but torch.compile
    still reads these, which is an error once the newer ones were written:
    https://github.com/pytorch/pytorch/issues/166387
    """
    with warnings.catch_warnings():
        # Some versions of torch say once that these switches are the older ones.
        warnings.filterwarnings("ignore", ".*new API settings to control TF32")
        torch.backends.cuda.matmul.allow_tf32 = allowed
        torch.backends.cudnn.allow_tf32 = allowed


def _check_device(precision: str, device: torch.device) -> None:
    if precision == "tf32" and device.type != "cuda":
        message = (
            "precision='tf32' is a format of NVIDIA GPUs, but this run is on "
            f"{device.type}; use 'fp32' or 'bf16'."
        )
        raise ConfigError(message)
    if precision in ("tf32", "bf16") and device.type == "cuda":
        name = torch.cuda.get_device_name(device)
        _check_capability(precision, torch.cuda.get_device_capability(device), name)


def _check_capability(precision: str, capability: tuple[int, int], name: str) -> None:
    if capability < _AMPERE:
        message = (
            f"precision={precision!r} needs compute capability 8.0 or newer, but "
            f"{name} has {capability[0]}.{capability[1]}; use 'fp16' or 'fp32'."
        )
        raise ConfigError(message)
