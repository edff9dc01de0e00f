"""What the layout of images in memory does to 16-bit training.

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nbkit.analysis.published import PublishedRow, lookup
from nbkit.statistics import NoiseFloor, Ratio, ratio

__all__ = [
    "Format",
    "LayoutEffect",
    "PublishedPair",
    "layout_effects",
    "layout_sentence",
    "like_for_like",
    "published_pairs",
]

_SIXTEEN_BITS = ("fp16", "bf16")


@dataclass(frozen=True)
class Format:
    """What tells one arm from another: how numbers are held and kernels are made."""

    precision: str
    memory_format: str
    compile: bool = False

    @property
    def name(self) -> str:
        """Such as ``bf16, channels_first, compiled``."""
        compiled = ", compiled" if self.compile else ""
        return f"{self.precision}, {self.memory_format}{compiled}"


@dataclass(frozen=True)
class LayoutEffect:
    """What the layout does to one precision; all else is the same."""

    precision: str
    compile: bool
    last: Ratio | None
    """``channels_last`` over the baseline; None where it is the baseline."""
    first: Ratio
    """``channels_first`` over the baseline."""
    effect: Ratio
    """``channels_last`` over ``channels_first``."""


@dataclass(frozen=True)
class PublishedPair:
    """The same model in 16 bits in both layouts, as others have published it."""

    first: PublishedRow
    """In ``channels_first``."""
    last: PublishedRow
    """In ``channels_last``."""

    @property
    def ratio(self) -> float:
        """``channels_last`` over ``channels_first``, of one number each."""
        assert self.first.images_per_second
        assert self.last.images_per_second
        return self.last.images_per_second / self.first.images_per_second


def layout_effects(
    rates: Mapping[Format, Sequence[float]],
    baseline: Format,
    noise_floor: NoiseFloor | None = None,
) -> list[LayoutEffect]:
    """Return what the layout does to every precision that was measured in both.

    Parameters
    ----------
    rates
        Run medians in images per second by format.
    baseline
        What gains are counted from.
    noise_floor
        Of the study's control; a verdict is withheld where that shows a difference.
    """
    effects = []
    for last, runs in rates.items():
        first = Format(last.precision, "channels_first", last.compile)
        if last.memory_format != "channels_last" or first not in rates:
            continue
        base = rates[baseline]
        gain = functools.partial(
            ratio, b_runs=base, b_name=baseline.name, noise_floor=noise_floor
        )
        effect = ratio(
            runs,
            rates[first],
            a_name=f"{last.precision} in channels_last",
            b_name="in channels_first",
            noise_floor=noise_floor,
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


def layout_sentence(effects: Sequence[LayoutEffect], baseline: Format) -> str | None:
    """Return what the layout does to 16 bits, in words; None if that was not measured.

    Without compilation, if there is such a pair: torch.compile chooses layouts itself.
    """
    pairs = [one for one in effects if one.precision in _SIXTEEN_BITS and one.last]
    if not pairs:
        return None
    pair = min(pairs, key=lambda one: one.compile)
    assert pair.last is not None
    gains = (
        f"In channels_last {pair.precision} trains {pair.last.estimate:.2f} times as "
        f"fast as {baseline.precision}, in channels_first "
        f"{pair.first.estimate:.2f} times. "
    )
    return gains + f"The layout alone: {pair.effect.sentence}"


# Who measured which GPU, channels_first and then channels_last. Paddle ran NVIDIA's own
# code with the layout that its main.py takes if nobody asks for another; the other two
# pairs are of one publisher each, with nothing but the layout changed.
_PAIRS = (
    (("Paddle", "V100-SXM2-32GB"), ("NVIDIA", "V100-SXM2-32GB")),
    (("Paddle", "A100-SXM4-40GB"), ("NVIDIA", "A100-SXM4-80GB")),
    (("apex", "A100"), ("apex", "A100")),
    (("timm", "RTX 3090"), ("timm", "RTX 3090")),
)


def published_pairs() -> list[PublishedPair]:
    """Return ResNet-50 in fp16 on one GPU, in both layouts, as others published it."""
    pairs = []
    for first, last in _PAIRS:
        before, after = (
            _published(*first, "channels_first"),
            _published(*last, "channels_last"),
        )
        if before and after:
            pairs.append(PublishedPair(before, after))
    return pairs


def _published(
    publisher: str, gpu_name: str, memory_format: str
) -> PublishedRow | None:
    rows = lookup(
        model="resnet50",
        gpu_name=gpu_name,
        precision="fp16",
        memory_format=memory_format,
        world_size=1,
    )
    return next(
        (
            row
            for row in rows
            if (row.publisher, row.gpu_name) == (publisher, gpu_name)
            and row.origin == "published"
            and not row.compile
            and row.images_per_second
        ),
        None,
    )


def like_for_like(
    arm: Format, *, model: str, gpu_name: str | None
) -> list[PublishedRow]:
    """Return what others published of one GPU in the same format, the best first.

    Rows that do not say their layout are left out; of those that do not say whether
    they were compiled, nobody compiled.
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
    found = [
        row
        for row in rows
        if bool(row.compile) == arm.compile
        and row.framework == "pytorch"
        and row.origin == "published"
        and row.images_per_second
    ]
    return sorted(found, key=lambda row: -(row.images_per_second or 0))
