"""Effect of the memory layout on 16-bit training.

Tensor cores take channels_last (NHWC). In channels_first (NCHW) the library has to turn
images and gradients around, or falls back to slower kernels, and much of what 16 bits
gain is lost. Several published tables of "FP16 against FP32" were measured so.

References
----------
https://docs.nvidia.com/deeplearning/performance/dl-performance-convolutional/index.html
(section "Tensor Layouts In Memory: NCHW vs NHWC")
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from nbkit.config import ExperimentConfig
from nbkit.config.fields import SIXTEEN_BIT
from nbkit.references.rows import PublishedRow, lookup
from nbkit.statistics import NoiseFloor, Ratio, ratio


@dataclass(frozen=True)
class Format:
    """What distinguishes arms: number format, memory layout and compilation."""

    precision: str
    memory_format: str
    compile: bool = False
    """A compiled ``channels_first`` stays so: see `nbkit.worker.precision`."""

    @property
    def name(self) -> str:
        """Such as ``bf16, channels_first, compiled``."""
        compiled = ", compiled" if self.compile else ""
        return f"{self.precision}, {self.memory_format}{compiled}"


def format_of(config: ExperimentConfig) -> Format:
    """Return the format of a configuration."""
    return Format(config.precision, config.memory_format, config.compile)


@dataclass(frozen=True)
class LayoutEffect:
    """Effect of the memory layout on one precision, all else equal."""

    precision: str
    compile: bool
    last: Ratio | None
    """``channels_last`` / baseline; None if it is the baseline."""
    first: Ratio
    """``channels_first`` over the baseline."""
    effect: Ratio
    """``channels_last`` over ``channels_first``."""


def layout_effects(
    rates: Mapping[Format, Sequence[float]],
    baseline: Format,
    noise_floor: NoiseFloor | None = None,
    suspect: Collection[Format] = (),
    comparisons: int = 1,
) -> list[LayoutEffect]:
    """Return the layout effect on every precision measured in both layouts."""
    against = functools.partial(ratio, noise_floor=noise_floor, comparisons=comparisons)
    effects = []
    for last, first in _in_both(rates):
        if not {last, first, baseline}.isdisjoint(suspect):
            continue
        runs = rates[last]
        base = rates[baseline]
        gain = functools.partial(against, b_runs=base, b_name=baseline.name)
        effect = against(
            runs,
            rates[first],
            a_name=f"{last.precision} in channels_last",
            b_name="in channels_first",
        )
        effects.append(
            LayoutEffect(
                precision=last.precision,
                compile=last.compile,
                last=None if last == baseline else gain(runs, a_name=last.name),
                first=gain(rates[first], a_name=first.name),
                effect=effect,
            )
        )
    return effects


def left_out_sentences(
    formats: Collection[Format],
    baseline: Format,
    suspect: Collection[Format],
    unjudged: Collection[Format] = (),
) -> list[str]:
    """Return which layout effects are omitted because a loss is suspect."""
    pairs = _in_both(formats)
    if pairs and baseline in suspect:
        return [
            "Layout effects are omitted, because the loss of the baseline "
            f"{baseline.name} is suspect."
        ]
    return [
        f"The layout effect on {format_.name} is omitted, because its loss is "
        f"{'suspect' if format_ in suspect else 'inconclusive'}."
        for pair in pairs
        for format_ in pair
        if format_ in suspect or format_ in unjudged
    ]


def _in_both(formats: Collection[Format]) -> list[tuple[Format, Format]]:
    """Return the pairs ``channels_last``, ``channels_first`` of one precision."""
    pairs = [
        (format_, Format(format_.precision, "channels_first", format_.compile))
        for format_ in formats
        if format_.memory_format == "channels_last"
    ]
    return [(last, first) for last, first in pairs if first in formats]


def layout_sentence(effects: Sequence[LayoutEffect]) -> str | None:
    """Return the layout effect on a 16-bit format; None if not measured.

    Uncompiled if there is such a pair, like most published pairs.
    """
    pairs = [effect for effect in effects if effect.precision in SIXTEEN_BIT]
    if not pairs:
        return None
    pair = min(pairs, key=lambda pair: pair.compile)
    return pair.effect.sentence


def like_for_like(
    arm: Format, *, model: str, gpu_name: str | None
) -> list[PublishedRow]:
    """Return published results of one GPU in the same format, the best first.

    Rows that do not state their layout are omitted; rows that do not state whether the
    model was compiled count as not compiled.
    """
    if gpu_name is None:
        return []
    rows = lookup(
        model=model,
        gpu_name=gpu_name,
        precision=arm.precision,
        memory_format=arm.memory_format,
        world_size=1,
    )
    matches = [
        row
        for row in rows
        if bool(row.compile) == arm.compile
        and row.framework == "pytorch"
        and row.origin == "published"
        and row.images_per_second
    ]
    return sorted(matches, key=lambda row: -(row.images_per_second or 0))
