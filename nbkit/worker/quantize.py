"""INT8 for inference: the library depends on the device.

On CPUs torch.ao quantizes statically: weights and activations are 8-bit integers, and
convolutions and matrix products are computed in them, without compilation. The ranges
of the activations are taken from calibration images. On GPUs torch has no INT8
convolution; there torchao quantizes the linear layers, computes the range of their
input in every pass, and is fast once compiled. In both cases, a model is refused if
most of its multiply-adds are not INT8.

References
----------
B. Jacob et al., Quantization and training of neural networks for efficient
integer-arithmetic-only inference (2018), https://arxiv.org/abs/1712.05877
"""

from __future__ import annotations

import importlib.metadata
import warnings
from collections.abc import Collection, Iterable
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError
from nbkit.packages import pip_install

_LEAST_SHARE = 0.5
"""Of the multiply-adds. With less it would be named after what it mostly is not."""

_AMPERE = (8, 0)


def quantize(
    model: nn.Module,
    config: ExperimentConfig,
    device: torch.device,
    calibration: Iterable[torch.Tensor],
) -> tuple[nn.Module, dict[str, Any]]:
    """Return the model in INT8, and its facts for the record."""
    counts, total = multiply_adds(model, config.image_size, device)
    if device.type == "cuda":
        names = _linear_layers(model)
        share = sum(counts.get(name, 0) for name in names) / max(1, total)
        # Users are not asked to install what would not help.
        _check_share(share, config, device)
        if not config.compile:
            # Finding the range of an input, rounding it and the product are then
            # separate kernels, which take longer than the product in 16 bits.
            message = (
                "precision='int8' with compile=False is slower than fp16 on a GPU "
                "(torchao). Set compile=True."
            )
            raise ConfigError(message)
        quantized, facts = _dynamic(model, names, device)
    else:
        quantized, names, facts = _static(model, config, calibration)
        share = sum(counts.get(name, 0) for name in names) / max(1, total)
        _check_share(share, config, device)
    return quantized, {**facts, "int8_multiply_add_share": share}


def _check_share(share: float, config: ExperimentConfig, device: torch.device) -> None:
    if share >= _LEAST_SHARE:
        return
    on_gpu = device.type == "cuda"
    library = "torchao" if on_gpu else "torch.ao"
    elsewhere = ", or device='cpu'" if on_gpu else ""
    message = (
        f"precision='int8': only {share * 100:.1f}% of the multiply-adds of "
        f"{config.model} can be INT8 on {device.type} with {library} (minimum "
        f"{_LEAST_SHARE * 100:.0f}%). Use 'fp16' or "
        f"'bf16'{elsewhere}."
    )
    raise ConfigError(message)


def multiply_adds(
    model: nn.Module, image_size: int, device: torch.device
) -> tuple[dict[str, int], int]:
    """Return the multiply-adds of one image: by the name of a layer, and in all."""
    # Layers that are named are convolutions, linear layers and attention; what torch
    # counts of convolutions and products outside of these is in the sum. What remains
    # (additions, normalisation, activation functions) is a percent or so.
    counts: dict[str, int] = {}

    def count(name: str, module: nn.Module, outputs: Any) -> None:
        if isinstance(module, nn.MultiheadAttention):
            tokens, width = outputs[0].shape[-2], module.embed_dim
            # Query, key, value and output; then the scores, and the weighted sum.
            made = 4 * tokens * width**2 + 2 * tokens**2 * width
        elif isinstance(module, nn.Conv2d):
            made = outputs.numel() * module.weight[0].numel()
        elif isinstance(module, nn.Linear):
            made = outputs.numel() * module.in_features
        else:
            return
        counts[name] = counts.get(name, 0) + int(made)

    hooks = [
        module.register_forward_hook(
            lambda module, _, outputs, name=name: count(name, module, outputs)
        )
        for name, module in model.named_modules()
    ]
    counter = FlopCounterMode(display=False)
    try:
        with torch.no_grad(), counter:
            model(torch.zeros(1, 3, image_size, image_size, device=device))
    finally:
        for hook in hooks:
            hook.remove()
    # It counts an addition and a multiplication as two; attention in one piece not.
    return counts, max(counter.get_total_flops() // 2, sum(counts.values()))


def _static(
    model: nn.Module, config: ExperimentConfig, calibration: Iterable[torch.Tensor]
) -> tuple[nn.Module, list[str], dict[str, Any]]:
    """Return the model, the names of its INT8 layers, and what the record says."""
    try:
        from torch.ao.quantization import get_default_qconfig_mapping
        from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx
    except ImportError as error:
        message = (
            f"precision='int8' on a CPU: torch {torch.__version__} has no "
            f"torch.ao.quantization ({error}). Use 'bf16', or an earlier torch."
        )
        raise ConfigError(message) from error
    if config.compile:
        message = (
            "compile=True with precision='int8' on a CPU: torch.compile cannot trace "
            "the kernels of torch.ao. Set compile=False."
        )
        raise ConfigError(message)
    engine = torch.backends.quantized.engine
    images = 0
    with warnings.catch_warnings():
        # It says at every layer that it will move to torchao one day.
        warnings.simplefilter("ignore")
        size = config.image_size
        example = (torch.zeros(1, 3, size, size),)
        try:
            prepared = prepare_fx(model, get_default_qconfig_mapping(engine), example)
        except Exception as error:  # whatever the model's own code raises
            message = (
                f"precision='int8': {config.model} cannot be traced by torch.fx "
                f"({error}). Use 'fp16' or 'bf16'."
            )
            raise ConfigError(message) from error
        with torch.inference_mode():
            for batch in calibration:
                prepared(batch)
                images += len(batch)
        quantized = convert_fx(prepared)
    names = [
        name
        for name, module in quantized.named_modules()
        if type(module).__module__.startswith("torch.ao.nn")
        and "quantized" in type(module).__module__
    ]
    facts = {
        "weights": "int8",
        "library": "torch.ao.quantization (FX graph mode)",
        "library_version": torch.__version__,
        "backend": engine,
        "activations": "static ranges, from calibration images",
        "elsewhere": "fp32",
        "calibration_images": images,
    }
    return quantized, names, facts


def _dynamic(
    model: nn.Module, names: Collection[str], device: torch.device
) -> tuple[nn.Module, dict[str, Any]]:
    try:
        from torchao.quantization import (  # pyright: ignore[reportMissingImports]
            Int8DynamicActivationInt8WeightConfig,
            quantize_,
        )
    except ImportError as error:
        message = (
            f"precision='int8' on a GPU requires torchao ({error}). Run "
            f"{pip_install('torchao')}, or use 'fp16'."
        )
        raise ConfigError(message) from error
    newer = torch.cuda.get_device_capability(device) >= _AMPERE
    dtype = torch.bfloat16 if newer else torch.float16
    model = model.to(dtype)
    quantize_(
        model,
        Int8DynamicActivationInt8WeightConfig(),
        filter_fn=lambda _, name: name in names,
    )
    facts = {
        "weights": "int8",
        "library": "torchao.quantization",
        "library_version": importlib.metadata.version("torchao"),
        "backend": "Int8DynamicActivationInt8WeightConfig",
        "activations": "dynamic ranges, computed in every pass",
        "elsewhere": "bf16" if newer else "fp16",
        "calibration_images": 0,
    }
    return model, facts


def _linear_layers(model: nn.Module) -> list[str]:
    """Return the names of the layers that torchao can quantize."""
    # Attention reads the weights of its output layer without calling it: that is of
    # another type. The last layer has too few rows a batch for INT8 kernels.
    names = [n for n, module in model.named_modules() if type(module) is nn.Linear]
    return names[:-1]
