"""Number formats of a run: TF32 switches, autocast, loss scaling, image layout."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any, TypeVar

import torch
from torch import nn

from nbkit.config import ExperimentConfig
from nbkit.config.tf32 import tf32_problem
from nbkit.errors import ConfigError

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
        # A captured graph must cast its weights again in every replay.
        self._cache_casts = not config.cuda_graphs
        self._is_compiled = config.compile
        allow_tf32(config.precision == "tf32")
        if config.compile and config.memory_format == "channels_first":
            _keep_layouts()
        self.memory_format = _LAYOUTS[config.memory_format]
        self.scaler = torch.amp.GradScaler(
            device.type, enabled=config.precision == "fp16"
        )
        """Scales the loss of fp16; it does nothing for every other precision."""
        self._unit = torch.ones((), device=device)

    def autocast(self) -> contextlib.AbstractContextManager[object]:
        """Return the context of a forward pass."""
        if self._dtype is None:
            return contextlib.nullcontext()
        return torch.autocast(
            self._device_type, dtype=self._dtype, cache_enabled=self._cache_casts
        )

    def update(self, optimizer: torch.optim.Optimizer) -> torch.Tensor | None:
        """Update the weights; not where the gradients of fp16 are not finite."""
        # Nothing waits for the device, and nothing is looked at that the scaler does
        # not look at anyway.
        before = self.scaler.scale(self._unit) if self.scaler.is_enabled() else None
        self.scaler.step(optimizer)
        self.scaler.update()
        if before is None:
            return None
        return torch.stack([before, self.scaler.scale(self._unit)])

    def kernels(self, model: nn.Module, batch_size: int) -> dict[str, str | None]:
        """Return whose kernels compute what torch leaves to others by format alone."""
        # cuDNN normalises fp32, and fp16 with weights in fp32; bf16 torch does itself:
        # ``_select_batch_norm_backend`` in aten/src/ATen/native/Normalization.cpp.
        layers = (
            module for module in model.modules() if isinstance(module, nn.BatchNorm2d)
        )
        layer = next(layers, None)
        select: Any = getattr(torch._C, "_select_batch_norm_backend", None)
        if layer is None or select is None:
            return {"batch_norm": None}
        state = layer.weight, layer.bias, layer.running_mean, layer.running_var
        if any(part is None for part in state):
            return {"batch_norm": None}  # torch asks for all of them
        if self._is_compiled:
            return {"batch_norm": "inductor"}
        images = torch.empty(
            (batch_size, layer.num_features, 1, 1),
            dtype=self._dtype or layer.weight.dtype,
            device=layer.weight.device,
        )
        return {
            "batch_norm": select(images, *state, layer.training, layer.eps).name.lower()
        }

    def to_layout(self, module: _Module) -> _Module:
        """Return the module with its weights in the configured layout."""
        return module.to(memory_format=self.memory_format)  # type: ignore[call-overload]


def allow_tf32(allowed: bool) -> None:
    """Switch TF32 for matrix products and convolutions of this process."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    newer = [getattr(cudnn, name, None) for name in ("conv", "rnn")]
    with warnings.catch_warnings():
        # Some versions of torch say once that these switches are the older ones.
        warnings.filterwarnings("ignore", ".*new API settings to control TF32")
        products = _switch_tf32(matmul, [matmul], allowed)
        convolutions = _switch_tf32(cudnn, newer, allowed)
    if (set(products), set(convolutions)) != ({allowed}, {allowed}):
        message = (
            f"torch {torch.__version__} did not switch TF32 "
            f"{'on' if allowed else 'off'} (matmul {products}, convolutions "
            f"{convolutions}). Use another version."
        )
        raise ConfigError(message)


def _switch_tf32(older: Any, newer: list[Any], allowed: bool) -> list[bool]:
    """Write a library's switches of TF32, and return what all of them say then."""
    # Newer switches exist (``fp32_precision``, from torch 2.9 on), but torch.compile
    # still reads the older ones, which is an error once the newer ones were written:
    # https://github.com/pytorch/pytorch/issues/166387
    # The newer ones are read all the same: an attribute that torch does not know
    # remembers what was written, and switches nothing.
    newer = [switch for switch in newer if hasattr(switch, "fp32_precision")]
    states = []
    try:
        has_older = hasattr(older, "allow_tf32")
    except RuntimeError:  # a user's module has written the newer switch
        has_older = True
    if has_older:
        older.allow_tf32 = allowed
        states.append(older.allow_tf32)
    else:
        for switch in newer:
            switch.fp32_precision = "tf32" if allowed else "ieee"
    return states + [switch.fp32_precision == "tf32" for switch in newer]


def _keep_layouts() -> None:
    """Keep torch.compile from turning convolutions into channels_last."""
    # It does wherever it expects them to be faster, and what is called channels_first
    # would be measured as channels_last (``decide_layout_opt`` in
    # torch/_inductor/graph.py).
    import torch._inductor.config as inductor

    inductor.layout_optimization = False


def _check_device(precision: str, device: torch.device) -> None:
    if precision == "tf32" and (why := tf32_problem(device.type)):
        raise ConfigError(why)
    if precision not in ("tf32", "bf16") or device.type != "cuda":
        return
    major, minor = torch.cuda.get_device_capability(device)
    if (major, minor) < _AMPERE:
        message = (
            f"precision={precision!r} requires compute capability 8.0 or newer, but "
            f"{torch.cuda.get_device_name(device)} has {major}.{minor}. Use 'fp16' or "
            "'fp32'."
        )
        raise ConfigError(message)
