"""Bottlenecks of GPUs: other processes, clocks, layout, memory bandwidth."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from statistics import fmean

from nbkit.config.fields import SIXTEEN_BIT
from nbkit.plural import plural
from nbkit.references.rows import published_pairs
from nbkit.review.bounds import Fusion, resnet50_bound
from nbkit.review.causes import WORTH_A_WORD, Cause, Gain, at_most
from nbkit.review.facts import Facts
from nbkit.review.row_checks import has_convolutions
from nbkit.review.samples import GpuLoad

_NEAR_BOUND = 0.5
"""Half of what memory allows and more is where well-tuned code is: the best published
reaches two thirds of it and more."""


def gpu_causes(facts: Facts) -> Iterator[Cause]:
    """Yield the bottlenecks that a run's GPUs show; empty for CPU runs."""
    yield from _one_gpu(facts)
    if facts.on_gpus and facts.ranks:
        for check in _OTHERS if facts.is_inference else _CHECKS:
            yield from check(facts)


def _one_gpu(facts: Facts) -> Iterator[Cause]:
    """Find a script or function that has one process on a host of several GPUs."""
    gpus = len((facts.record.get("system") or {}).get("devices") or [])
    is_of_user = facts.config.get("task") in ("script", "function")
    if is_of_user and facts.on_gpus and facts.world_size == 1 and gpus > 1:
        yield Cause.of(
            "one-gpu",
            None,
            f"One process on a host with {gpus} GPUs.",
            f"nbkit.launch(..., gpus={gpus}), one process per GPU: Trainer, Lightning "
            "and accelerate then train on all of them.",
            None,
        )


def _others(facts: Facts) -> Iterator[Cause]:
    """Find others that stay: one that looks in for a moment costs next to nothing.

    How long they stayed is in the samples alone, not in the record.
    """
    shares = (facts.load.strangers if facts.load else None) or ()
    staying = [share for share in shares if share >= WORTH_A_WORD]
    if count := len(staying):
        most = "up to " if count > 1 else ""
        yield Cause.of(
            "other-gpu-processes",
            None,
            f"{plural(count, 'other process', 'other processes')} on the run's GPUs in "
            f"{most}{max(staying) * 100:.0f}% of the samples.",
            "use GPUs without other processes (devices=...; see nvidia-smi).",
            None,
        )


def _throttled(facts: Facts) -> Iterator[Cause]:
    slowed = [gpu for gpu in _gpus(facts) if (gpu.slowed_share or 0) >= WORTH_A_WORD]
    if slowed:
        worst = max(slowed, key=lambda gpu: (gpu.clock_lost or 0, gpu.slowed_share))
        lost, reasons = worst.clock_lost, ", ".join(worst.slowing_reasons)
        most = ", the most affected" if len(slowed) > 1 else ""
        yield Cause.of(
            "throttled",
            None,
            f"{_counted(slowed, facts)} throttled{most} ({reasons}) "
            f"{(worst.slowed_share or 0) * 100:.0f}% of the time{_clock(worst)}.",
            "check cooling and power supply (nvidia-smi -q -d PERFORMANCE shows the "
            "throttle reason).",
            at_most(lost, "at maximum clock") if lost else None,
        )


def _power(facts: Facts) -> Iterator[Cause]:
    capped = [
        gpu
        for gpu in _gpus(facts)
        if (gpu.capped_share or 0) >= WORTH_A_WORD
        and (gpu.clock_lost or 0) >= WORTH_A_WORD
    ]
    if capped:
        worst = max(capped, key=lambda gpu: gpu.clock_lost or 0)
        lost = worst.clock_lost or 0.0
        most = ", the most affected" if len(capped) > 1 else ""
        yield Cause.of(
            "power-limit",
            None,
            f"{_counted(capped, facts)} at the power limit{most} "
            f"{(worst.capped_share or 0) * 100:.0f}% of the time{_clock(worst)}.",
            "increase the power limit (nvidia-smi -q -d POWER shows the maximum).",
            at_most(lost, "at maximum clock"),
        )


def _layout(facts: Facts) -> Iterator[Cause]:
    config = facts.config
    capable = all(
        (device.get("compute_capability") or [0])[0] >= 7 for device in facts.devices
    )
    if not (
        config.get("task", "train") == "train"
        and config.get("precision") in SIXTEEN_BIT
        and config.get("memory_format") == "channels_first"
        and has_convolutions(str(config.get("model")))
        and capable
    ):
        return
    waits = facts.least_data_wait, facts.least_communication
    yield Cause.of(
        "layout",
        None,
        f"{config['precision']} convolutions in channels_first on "
        f"{facts.device_name or 'tensor cores'}.",
        "memory_format='channels_last'.",
        # What it brings to a GPU that waits, or to a compiled model, is not published.
        None
        if config.get("compile") or max(waits) >= WORTH_A_WORD
        else _published_gain(),
    )


@functools.cache
def _published_gain() -> Gain | None:
    """Return what the layout brought to others who changed nothing else."""
    alone = [pair for pair in published_pairs() if pair.differs is None]
    ratios = sorted(pair.ratio for pair in alone)
    if not ratios:
        return None
    where = " and ".join(
        f"{published.first.publisher} on {published.first.gpu_name}"
        for published in alone
    )
    how = f"published: ResNet-50 in fp16 by {where}"
    return Gain(high=ratios[-1], low=ratios[0], how=how)


def _memory(facts: Facts) -> Iterator[Cause]:
    """Compare ResNet-50 with what its GPU's memory bandwidth allows."""
    config, name = facts.config, facts.device_name
    is_modelled = (
        config.get("task", "train") == "train"
        and config.get("model") == "resnet50"
        and config.get("image_size") == 224
    )
    rate, batch = facts.images_per_second, facts.worker.get("batch_size_per_gpu")
    precision = str(config.get("precision"))
    if not (is_modelled and rate and batch and name):
        return
    fusion: Fusion = "fused" if config.get("compile") else "eager"
    bound = resnet50_bound(name, precision, fusion, batch)
    if bound is None or bound.memory_bound_share < 0.5:
        return
    rate_per_gpu = rate / facts.world_size
    reached = rate_per_gpu / bound.images_per_second
    if reached < _NEAR_BOUND:
        return
    change, better = "compile=True, which fuses kernels", ("fused", precision)
    if precision not in SIXTEEN_BIT:
        half = "bf16" if resnet50_bound(name, "bf16") else "fp16"
        change, better = f"precision={half!r}, which halves the bytes", (fusion, half)
    elif fusion == "fused":
        change, better = "no change; kernels are fused and values have 16 bits", None
    above = resnet50_bound(name, better[1], better[0], batch) if better else None
    gain = None
    if above is not None and above.images_per_second > rate_per_gpu:
        how = f"bound: {above.images_per_second:,.0f} images/s"
        gain = Gain(above.images_per_second / rate_per_gpu, None, how)
    yield Cause.of(
        "memory-bandwidth",
        None,
        f"{rate_per_gpu:,.0f} images/s per GPU is {reached * 100:.0f}% of the roofline "
        f"of {name} with {fusion} kernels in {precision} "
        f"({bound.images_per_second:,.0f} images/s); "
        f"at the roofline, {bound.memory_bound_share * 100:.0f}% of the time is "
        "memory-bound.",
        f"{change}.",
        gain,
    )


def _gpus(facts: Facts) -> list[GpuLoad]:
    return list(facts.load.gpus) if facts.load else []


def _counted(gpus: list[GpuLoad], facts: Facts) -> str:
    total = len(_gpus(facts))
    were = "was" if len(gpus) == 1 else "were"
    return f"{len(gpus)} of {total} GPUs {were}" if total > 1 else "The GPU was"


def _clock(gpu: GpuLoad) -> str:
    if not gpu.sm_clock_mhz or not gpu.sm_clock_max_mhz:
        return ""
    mean = fmean(gpu.sm_clock_mhz)
    return f", averaging {mean:,.0f} of {gpu.sm_clock_max_mhz:,} MHz"


_OTHERS: tuple[Callable[[Facts], Iterator[Cause]], ...] = (_others, _throttled)
_CHECKS: tuple[Callable[[Facts], Iterator[Cause]], ...] = (
    *_OTHERS,
    _power,
    _layout,
    _memory,
)
