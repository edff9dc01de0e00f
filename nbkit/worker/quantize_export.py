"""INT8 on CPUs where torch has no quantization: torchao, on an exported graph.

The graph computes in fp32 with what 8-bit integers stand for. torch.compile makes INT8
kernels of oneDNN out of it, so that without it nothing is faster.

References
----------
https://docs.pytorch.org/ao/stable/pt2e_quantization/index.html
"""

from __future__ import annotations

import importlib.metadata
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn

from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError
from nbkit.packages import pip_install

_LAYERS = ("Conv2d", "Linear")


def quantize_exported(
    model: nn.Module,
    config: ExperimentConfig,
    calibration: Iterable[torch.Tensor],
    why: str,
) -> tuple[nn.Module, list[str], dict[str, Any]]:
    """Return the model, the names of its INT8 layers, and what the record says."""
    without = f"torch {torch.__version__} has no torch.ao.quantization"
    try:
        from torchao.quantization.pt2e import (  # pyright: ignore[reportMissingImports]
            allow_exported_model_train_eval,
        )
        from torchao.quantization.pt2e.quantize_pt2e import (  # pyright: ignore[reportMissingImports]
            convert_pt2e,
            prepare_pt2e,
        )
        from torchao.quantization.pt2e.quantizer.x86_inductor_quantizer import (  # pyright: ignore[reportMissingImports]
            X86InductorQuantizer,
            get_default_x86_inductor_quantization_config,
        )
    except ImportError as error:
        message = (
            f"precision='int8' on a CPU: {without} ({why}), and torchao cannot "
            f"replace it ({error}). Run {pip_install('torchao')}, or use 'bf16'."
        )
        raise ConfigError(message) from error
    if not config.compile:
        message = (
            f"precision='int8' with compile=False on a CPU: {without}, and torchao's "
            "INT8 kernels need compilation. Set compile=True."
        )
        raise ConfigError(message)
    # As in torch's own: without VNNI, sums of products of 8 bits overflow 16.
    ranges = get_default_x86_inductor_quantization_config(reduce_range=True)
    images = 0
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # of what is deprecated inside
        try:
            graph = _exported(model, config.image_size)
            prepared = prepare_pt2e(graph, X86InductorQuantizer().set_global(ranges))
        except Exception as error:  # whatever the model's own code raises
            message = (
                f"precision='int8': {config.model} cannot be exported by torch.export "
                f"({error}). Use 'fp16' or 'bf16'."
            )
            raise ConfigError(message) from error
        for batch in calibration:
            prepared(batch)
            images += len(batch)
        quantized = convert_pt2e(prepared)
    # `eval()` of an exported model raises by itself.
    allow_exported_model_train_eval(quantized)
    import torch._inductor.config as inductor

    inductor.freezing = True  # weights in the layout of INT8 kernels
    facts = {
        "weights": "int8",
        "library": "torchao.quantization.pt2e",
        "library_version": importlib.metadata.version("torchao"),
        "backend": "X86InductorQuantizer",
        "activations": "static ranges, from calibration images",
        "elsewhere": "fp32",
        "calibration_images": images,
    }
    return quantized, list(_int8_layers(quantized.graph)), facts


def _exported(model: nn.Module, image_size: int) -> Any:
    # Of a batch of one, export would make a constant.
    images = torch.zeros(2, 3, image_size, image_size)
    any_batch = ({0: torch.export.Dim.DYNAMIC},)
    # The quantizer looks for patterns in what only a strict export notes.
    exported = torch.export.export(
        model, (images,), dynamic_shapes=any_batch, strict=True
    )
    return exported.module()


def _int8_layers(graph: torch.fx.Graph) -> Iterator[str]:
    """Yield the names of layers whose input and weight are both integers."""
    products = torch.ops.aten.conv2d.default, torch.ops.aten.linear.default
    for node in graph.nodes:
        if node.target not in products:
            continue
        made_by = [str(getattr(argument, "target", "")) for argument in node.args[:2]]
        *_, (name, kind) = node.meta["nn_module_stack"].values()
        # What attention multiplies inside itself is a part of it only.
        is_layer = getattr(kind, "__name__", str(kind)).endswith(_LAYERS)
        if is_layer and all("dequantize" in operator for operator in made_by):
            yield name
