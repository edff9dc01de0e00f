"""Floating-point operations per token, against counts of a small model's products."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from nbkit.worker.model_flops import ModelFlops

WORDS, WIDTH, LAYERS = 11, 6, 3


class Model(torch.nn.Module):
    def __init__(self, *, tied=False, **config):
        super().__init__()
        self.words = torch.nn.Embedding(WORDS, WIDTH)
        self.places = torch.nn.Embedding(5, WIDTH)
        self.layers = torch.nn.ModuleList(
            torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)
        )
        self.output = torch.nn.Linear(WIDTH, WORDS, bias=False)
        if tied:
            self.output.weight = self.words.weight
        size = {"hidden_size": WIDTH, "num_attention_heads": 2}
        size["num_hidden_layers"] = LAYERS
        self.config = SimpleNamespace(**{**size, **config})

    def get_output_embeddings(self):
        return self.output


@pytest.mark.parametrize("tied", [False, True])
def test_model_flops_count_products_and_attention(tied):
    flops = ModelFlops.of(Model(tied=tied))

    weights = LAYERS * WIDTH * WIDTH + WIDTH * WORDS
    # Two products per layer with each position, forward, and twice that backward.
    attention = LAYERS * 3 * 2 * (2 * WIDTH)
    assert flops.per_token(7) == 6 * weights + attention * 7


def test_model_flops_of_frozen_weights_lack_their_gradient():
    model = Model()
    model.layers.requires_grad_(requires_grad=False)

    weights = 4 * LAYERS * WIDTH * WIDTH + 6 * WIDTH * WORDS
    assert ModelFlops.of(model).weights == weights


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"num_experts": 8}, "mixture of experts"),
        ({"is_encoder_decoder": True}, "decoder-only"),
        ({"quantization_config": {"bits": 4}}, "quantized"),
        ({"num_attention_heads": [2, 4]}, "layers differ in their heads"),
    ],
)
def test_model_flops_say_why_they_are_unknown(config, reason):
    with pytest.raises(ValueError, match=reason):
        ModelFlops.of(Model(**config))
    with pytest.raises(ValueError, match="no transformers config"):
        ModelFlops.of(torch.nn.Linear(1, 1))
