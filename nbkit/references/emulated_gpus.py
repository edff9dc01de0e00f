"""Step time of emulated GPUs, from published results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nbkit.errors import NotEnoughDataError
from nbkit.references.rows import PublishedRow, lookup


@dataclass(frozen=True)
class EmulatedStep:
    """Time of one emulated step, and its source."""

    seconds: float
    """Time of one step of one GPU."""
    images_per_second: float
    """Input rate that one such GPU requires."""
    row: PublishedRow
    """Published result that the time is derived from."""

    @property
    def source(self) -> str:
        """Publisher and conditions, in one line."""
        row = self.row
        batch = row.batch_size_per_gpu
        verb = "measured" if row.origin == "measured" else "published"
        how = [row.precision, row.memory_format, f"batch {batch}" if batch else None]
        return (
            f"{row.images_per_second:,.0f} images/s of {row.model} on one "
            f"{row.gpu_name} ({', '.join(part for part in how if part)}), {verb} by "
            f"{row.publisher}, {row.year}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "seconds": self.seconds,
            "images_per_second": self.images_per_second,
            "gpu_name": self.row.gpu_name,
            "source": self.source,
            "title": self.row.source,
            "url": self.row.url,
        }


def emulated_step(
    gpu_name: str, model: str, precision: str, batch_size: int
) -> EmulatedStep:
    """Return how long one GPU computes on a batch, by the fastest published result.

    The fastest of the same GPU, model and precision, in training and on one GPU: an
    input that keeps up with it keeps up with the others. The time is in proportion to
    the batch, which is too short for batches far smaller than the published one, and so
    asks more of the input, not less.
    """
    rates = _rates(model, precision, gpu_name)
    if not rates:
        known = {row.gpu_name for _, row in _rates(model, precision) if row.gpu_name}
        listed = "another model or precision, such as resnet50 in fp16"
        listed = f"one of {', '.join(sorted(known))}" if known else listed
        message = (
            f"{gpu_name!r} cannot be emulated: no published training rate of {model} "
            f"in {precision} on one GPU. Use {listed}."
        )
        raise NotEnoughDataError(message)
    rate, row = max(rates, key=lambda rate: rate[0])
    return EmulatedStep(batch_size / rate, rate, row)


def _rates(
    model: str, precision: str, gpu_name: str | None = None
) -> list[tuple[float, PublishedRow]]:
    rows = lookup(
        model=model, gpu_name=gpu_name, precision=precision, world_size=1, phase="train"
    )
    return [
        (row.images_per_second, row)
        for row in rows
        # channels_first has half the rate: a demand that a slower GPU would exceed.
        if row.images_per_second is not None
        and not row.compile
        and row.memory_format != "channels_first"
    ]
