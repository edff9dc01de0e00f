"""First step with NaN or Inf: one definition for its writer and readers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self


@dataclass(frozen=True)
class NonFinite:
    """The first step at which loss, gradients or weights were not finite.

    Running statistics of batch normalization count as weights.

    A loss scale that is being lowered is not that: GradScaler skips such a step, and
    the weights stay as they were.
    """

    what: Literal["loss", "gradients", "weights", "evaluation loss"]
    step: int
    """Step at which it was seen, counted from 1. A loss may follow from weights that
    the update of the step before has broken."""
    after_step: int | None = None
    """Last step at which everything was seen to be finite, where that is not the one
    before ``step``; None if ``step`` is exact."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any] | None) -> Self | None:
        """Return what ``worker.json`` or a line of ``metrics.jsonl`` says, if any."""
        if not values:
            return None
        return cls(values["what"], values["step"], values.get("after_step"))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        if self.after_step is None:
            return f"{self.what} not finite at step {self.step}"
        return (
            f"{self.what} not finite between step {self.after_step + 1} and step "
            f"{self.step}"
        )
