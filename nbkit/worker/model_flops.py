"""Floating-point operations that training a language model takes per token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import torch

_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")


@dataclass(frozen=True)
class ModelFlops:
    """FLOPs of forward and backward pass, without recomputation.

    References
    ----------
    torchtitan, ``torchtitan/models/utils.py`` (dense models): 6 per weight of a matrix
    product, and 12 per layer, head, head dimension and position. The causal mask saves
    none, and an embedding has none unless it is the output layer too. A frozen
    weight, of LoRA, has no weight gradient: 4.
    """

    weights: float
    """FLOPs per token of the products with weights."""
    attention_per_position: float
    """FLOPs of attention per token and position of its text."""

    @classmethod
    def of(cls, model: torch.nn.Module) -> Self:
        """Return the FLOPs of a transformers model; ValueError if unknown."""
        config: Any = getattr(model, "config", None)
        if config is None:
            message = "the model has no transformers config"
            raise ValueError(message)
        text = getattr(config, "get_text_config", lambda: config)()
        if getattr(text, "is_encoder_decoder", False):
            message = "the model is not decoder-only"
            raise ValueError(message)
        if any(getattr(text, name, None) for name in _EXPERTS):
            message = "the model is a mixture of experts"
            raise ValueError(message)
        if getattr(config, "quantization_config", None):
            message = "the weights are quantized"
            raise ValueError(message)
        try:
            width, heads = text.hidden_size, text.num_attention_heads
            layers = text.num_hidden_layers
        except AttributeError as error:
            message = f"the model's config has no {error.name}"
            raise ValueError(message) from None
        if not all(isinstance(size, int) for size in (width, heads, layers)):
            message = "the model's layers differ in their heads"
            raise ValueError(message)
        head_size = getattr(text, "head_dim", None) or width // heads
        return cls(_weight_flops(model), 12.0 * layers * heads * head_size)

    def per_token(self, length: float) -> float:
        """Return the FLOPs per token of a text with that many tokens."""
        return self.weights + self.attention_per_position * length


def _weight_flops(model: torch.nn.Module) -> float:
    import torch

    output = getattr(model, "get_output_embeddings", lambda: None)()
    product = None if output is None else output.weight
    looked_up = {
        id(module.weight)
        for module in model.modules()
        if isinstance(module, torch.nn.Embedding) and module.weight is not product
    }
    return sum(
        # DeepSpeed's ZeRO-3 shards weights while they are loaded.
        (6.0 if weight.requires_grad else 4.0)
        * getattr(weight, "ds_numel", weight.numel())
        for weight in model.parameters()
        if id(weight) not in looked_up
    )
