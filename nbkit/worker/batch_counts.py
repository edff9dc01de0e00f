"""Counts of the inputs of a model in training: samples, tokens, padding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_COUNTS = ("samples", "tokens", "padding")


class BatchCounts:
    """Counts of the inputs to the models of all ranks."""

    def __init__(self) -> None:
        self.seen = dict.fromkeys(_COUNTS, 0)
        """Of all ranks, as far as they were gathered; a resumed run continues them."""
        self._since_line = dict.fromkeys(_COUNTS, 0)
        self._mine = dict.fromkeys(_COUNTS, 0)
        self._late: dict[str, torch.Tensor] = {}
        """On the model's device: to read one at every step would make it wait."""

    def add(self, given: Iterable[Any], by_name: Mapping[str, Any]) -> None:
        """Count a batch: tensors, and those among them that have a name.

        A packed row, which has positions and no mask, is as many samples as texts.
        """
        tensors = (value for value in given if hasattr(value, "shape") and value.ndim)
        first = next(tensors, None)
        names = ("input_ids", "attention_mask", "position_ids")
        tokens, mask, positions = (
            value if hasattr(value := by_name.get(name), "shape") else None
            for name in names
        )
        if mask is None and positions is not None and tokens is not None:
            self._add_late("samples", (positions == 0).sum())
        elif first is not None:
            self._mine["samples"] += int(first.shape[0])
        if tokens is None:
            return
        self._mine["tokens"] += tokens.numel()
        # Of another shape, it is no mask of padding.
        if mask is not None and mask.shape == tokens.shape:
            self._add_late("padding", mask.numel() - mask.detach().count_nonzero())

    def gather(self, world_size: int, device: torch.device | None) -> None:
        """Add up the counts of all ranks; every rank calls it."""
        import torch

        mine = [
            count + int(self._late.get(name, 0)) for name, count in self._mine.items()
        ]
        self._mine, self._late = dict.fromkeys(_COUNTS, 0), {}
        dist = torch.distributed
        if world_size > 1 and dist.is_available() and dist.is_initialized():
            total = torch.tensor(mine, dtype=torch.int64, device=device)
            dist.all_reduce(total)
            mine = total.tolist()
        for name, count in zip(_COUNTS, mine, strict=True):
            self.seen[name] += count
            self._since_line[name] += count

    def take_rates(self, seconds: float) -> dict[str, float]:
        """Return rates since the last call, and totals; empty without a sample.

        Tokens are without padding, whose share of all tokens is `padding_share`.
        """
        counts, self._since_line = self._since_line, dict.fromkeys(_COUNTS, 0)
        if not counts["samples"]:
            return {}
        rates: dict[str, float] = {
            "samples_per_second": counts["samples"] / seconds,
            "samples_seen": self.seen["samples"],
        }
        if counts["tokens"]:
            real = counts["tokens"] - counts["padding"]
            rates["tokens_per_second"] = real / seconds
            rates["tokens_seen"] = self.seen["tokens"] - self.seen["padding"]
            rates["padding_share"] = counts["padding"] / counts["tokens"]
        return rates

    def _add_late(self, name: str, count: torch.Tensor) -> None:
        before = self._late.get(name)
        self._late[name] = count if before is None else before + count
