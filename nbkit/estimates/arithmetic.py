"""Projected time of a whole training.

The rate is measured in a short run, or one that others published; the epochs are those
of a training recipe. Nothing here was measured as a whole, and nothing stands beside
measured times without the word projected.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median, median_low
from typing import Any, Literal

from nbkit.errors import ConfigError
from nbkit.references.gpu_names import canonical_gpu_name
from nbkit.references.rows import PublishedRow, PublishedRows, lookup
from nbkit.statistics import Summary

_COMPARABLE = {"fp16": ("fp16", "bf16"), "bf16": ("bf16", "fp16")}
"""Formats with the same peak."""

_16_BITS = _COMPARABLE["fp16"]


@dataclass(frozen=True)
class Workload:
    """A whole training."""

    recipe: str
    model: str
    image_size: int
    train_images: int
    evaluation_images: int
    epochs: int
    """Expected number of epochs; the recipe's maximum if none is published."""
    epochs_low: int
    epochs_high: int
    """Minimum and maximum of the published numbers, over seeds."""
    evaluation_period_epochs: int
    evaluation_offset_epochs: int = 0

    def evaluations(self, epochs: int) -> int:
        """Return the number of evaluations in a number of epochs, the last included."""
        period = self.evaluation_period_epochs
        since_offset = epochs - self.evaluation_offset_epochs
        at_end = since_offset <= 0 or since_offset % period != 0
        return max(since_offset, 0) // period + at_end


@dataclass(frozen=True)
class Estimate:
    """A projected training; None is unknown."""

    where: str
    """Devices, such as ``8 x H100-SXM-80GB``."""
    origin: Literal["measured rate, projected", "published rate, projected"]
    images_per_second: float
    rate_low: float | None
    rate_high: float | None
    """Interval of measured rates, or slowest and fastest published rate."""
    rate_n: int
    """Number of runs or published rows."""
    epochs: int
    training_seconds: float
    evaluation_seconds: float | None
    """Time of all evaluations."""
    startup_seconds: float | None
    """Time from process start to the first image; not part of `seconds`."""
    seconds: float
    """Time of training and, if known, of evaluations: the time to target."""
    seconds_low: float | None
    seconds_high: float | None
    """Fewest epochs at the highest rate, and most epochs at the lowest."""
    joules: float | None
    """Energy of the GPUs during training."""
    published_minutes: tuple[float, ...] = ()
    """Times to the target that the same rows report."""
    rows: tuple[PublishedRow, ...] = ()
    """Published rows with these rates."""
    precision: str | None = None
    """Number format of the runs, or of the rows."""

    @property
    def seconds_per_epoch(self) -> float:
        """Training time per epoch, without evaluations."""
        return self.training_seconds / self.epochs


def project(
    workload: Workload,
    rates: Summary,
    *,
    where: str,
    evaluation_images_per_second: float | None = None,
    startup_seconds: float | None = None,
    joules_per_image: float | None = None,
    precision: str | None = None,
) -> Estimate:
    """Project a whole training from the measured rates of short runs."""
    images = workload.train_images * workload.epochs
    return _estimate(
        workload,
        (rates.ci_low, rates.median, rates.ci_high),
        evaluation_images_per_second,
        where=where,
        origin="measured rate, projected",
        rate_n=rates.n,
        startup_seconds=startup_seconds,
        joules=None if joules_per_image is None else joules_per_image * images,
        precision=precision,
    )


def _estimate(
    workload: Workload,
    rates: tuple[float | None, float, float | None],
    evaluation_rate: float | None,
    **facts: Any,
) -> Estimate:
    """Return the estimate of a rate between its low and high one."""
    low, rate, high = rates

    def evaluation(epochs: int) -> float | None:
        shown = workload.evaluation_images * workload.evaluations(epochs)
        return shown / evaluation_rate if evaluation_rate else None

    def total(epochs: int, rate: float) -> float:
        training = workload.train_images * epochs / rate
        return training + (evaluation(epochs) or 0.0)

    return Estimate(
        images_per_second=rate,
        rate_low=low,
        rate_high=high,
        epochs=workload.epochs,
        training_seconds=workload.train_images * workload.epochs / rate,
        evaluation_seconds=evaluation(workload.epochs),
        seconds=total(workload.epochs, rate),
        seconds_low=None if high is None else total(workload.epochs_low, high),
        seconds_high=None if low is None else total(workload.epochs_high, low),
        **facts,
    )


def from_published(
    workload: Workload, gpus: Iterable[str], *, precision: str, world_size: int = 8
) -> list[Estimate]:
    """Project a whole training on GPUs with a published training rate."""
    estimates: dict[str, Estimate] = {}
    for gpu_name in gpus:
        if canonical_gpu_name(gpu_name) is None:
            message = (
                f"GPU {gpu_name!r} is not in the published results. Use a name such as "
                "A100, H100-SXM-80GB or V100-SXM2-16GB."
            )
            raise ConfigError(message)
        for name, rows in _rows(workload, gpu_name, precision, world_size).items():
            estimates.setdefault(name, _of_rows(workload, name, rows))
    return list(estimates.values())


def _rows(
    workload: Workload, gpu_name: str, precision: str, world_size: int
) -> dict[str, list[PublishedRow]]:
    """Return the rows of one size by product."""
    formats = _COMPARABLE.get(precision, (precision,))
    rows: PublishedRows = lookup(model=workload.model, gpu_name=gpu_name, data="real")
    by_product: dict[str, list[PublishedRow]] = {}
    for row in rows:
        if row.images_per_second and not row.own_image_size:
            by_product.setdefault(row.gpu_name or "", []).append(row)
    by_product = {
        name: usable
        for name, product_rows in by_product.items()
        if (
            usable := _of_formats(product_rows, formats)
            or _of_formats(product_rows, _16_BITS)
        )
    }
    exact = canonical_gpu_name(gpu_name) or ""
    is_family = any(name.startswith(f"{exact}-") for name in by_product)
    if exact in by_product and not is_family:
        # A report's A100-80GB may be the product, but rows that name it say more.
        by_product = {exact: by_product[exact]}
    return {
        name: _of_size(product_rows, world_size)
        for name, product_rows in by_product.items()
    }


def _of_formats(
    rows: Sequence[PublishedRow], formats: Sequence[str]
) -> list[PublishedRow]:
    return [row for row in rows if row.precision in formats]


def _of_size(rows: Sequence[PublishedRow], world_size: int) -> list[PublishedRow]:
    """Return the rows of that many GPUs; of the fewest where there are none."""
    sizes = {row.world_size for row in rows}
    size = world_size if world_size in sizes else min(sizes)
    return [row for row in rows if row.world_size == size]


def _of_rows(workload: Workload, name: str, rows: Sequence[PublishedRow]) -> Estimate:
    rates = [row.images_per_second or 0.0 for row in rows]
    return _estimate(
        workload,
        (min(rates), median_low(rates), max(rates)),
        None,
        where=f"{rows[0].world_size} x {name}",
        origin="published rate, projected",
        rate_n=len(rows),
        startup_seconds=None,
        joules=None,
        published_minutes=tuple(
            sorted(
                row.time_to_target_minutes for row in rows if row.time_to_target_minutes
            )
        ),
        rows=tuple(rows),
        precision=" or ".join(sorted({row.precision or "unknown" for row in rows})),
    )


def expected_epochs(counts: Sequence[int], most: int) -> tuple[int, int, int]:
    """Return expected, fewest and most published epochs; ``most`` without any."""
    if not counts:
        return most, most, most
    return round(median(counts)), min(counts), max(counts)
