"""`slot.py fast`: how fast this GPU is, beside its bound and published results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from checks import Check, Found, ShortError, Slot, losses
from photographs import photographs, require_dali

from nbkit import Run
from nbkit.config import ExperimentConfig, InferenceConfig, LoaderConfig
from nbkit.references.rows import lookup
from nbkit.review.bounds import Fusion, resnet50_bound
from nbkit.statistics import latency_timings

__all__ = ["CHECKS", "beside"]

_WAYS: dict[str, dict[str, Any]] = {
    "eager": {},
    "compile": {"compile": True},
    "graphs": {"cuda_graphs": True},
}
_PUBLISHED = 2
"""Rows shown beside a rate."""


def trains_fast(precision: str, way: str) -> Callable[[Slot], Found]:
    """Return a check that measures a training in one precision, in one way."""

    def work(slot: Slot) -> Found:
        if precision == "bf16":
            slot.require_bf16()
        config = slot.config(
            precision=precision,
            steps=slot.size.fast_steps,
            warmup_steps=slot.size.fast_steps // 3,
            **_WAYS[way],
        )
        run = slot.finish(config)
        losses(run)
        return beside(slot, config, _rate(run), run.summary.peak_memory_bytes)

    return work


def beside(
    slot: Slot, config: ExperimentConfig, rate: float, memory_bytes: int | None
) -> Found:
    """Return a rate with its bound and the published rows; above the bound is short."""
    gpu = slot.gpus[0]["name"]
    fusion: Fusion = "fused" if config.compile else "eager"
    is_resnet50 = config.model == "resnet50" and config.image_size == 224
    bound = published = None
    if is_resnet50:
        batch = int(config.batch_size_per_gpu)
        bound = resnet50_bound(gpu, config.precision, fusion, batch)
        asked = {"model": "resnet50", "gpu_name": gpu, "precision": config.precision}
        published = lookup(world_size=1, **asked)  # type: ignore[arg-type]
    share = rate / bound.images_per_second if bound else None
    rows = [
        {
            "images_per_second": row.images_per_second,
            "memory_format": row.memory_format,
            "compile": row.compile,
            "source": row.source,
        }
        for row in published or ()
        if row.images_per_second
    ]
    words = [f"{rate:,.0f} images/s"]
    if bound and share is not None:
        words.append(
            f"{share:.0%} of the {fusion} bound {bound.images_per_second:,.0f}"
        )
    if memory_bytes:
        words.append(f"{memory_bytes / 2**30:.1f} GiB")
    words += [
        f"published {row['images_per_second']:,.0f} ({row['source'][:40]})"
        for row in rows[:_PUBLISHED]
    ]
    if share is not None and share > 1:
        raise ShortError("; ".join(words))
    return Found(
        "; ".join(words),
        {
            "images_per_second": rate,
            "bound_images_per_second": bound and bound.images_per_second,
            "bound_kind": fusion if bound else None,
            "share_of_bound": share,
            "peak_memory_bytes": memory_bytes,
            "published": rows,
        },
    )


def keeps_a_fast_gpu_busy(slot: Slot) -> Found:
    """Measure a smaller batch eager and with CUDA graphs: is the host in the way?"""
    rates: dict[str, float] = {}
    for way in ("eager", "graphs"):
        run = slot.finish(
            slot.config(
                precision="fp16",
                batch_size_per_gpu=slot.size.half_batch_size,
                steps=slot.size.fast_steps,
                warmup_steps=slot.size.fast_steps // 3,
                **_WAYS[way],
            )
        )
        losses(run)
        rates[way] = _rate(run)
    gain = rates["graphs"] / rates["eager"] - 1
    said = (
        f"batch {slot.size.half_batch_size}: {rates['eager']:,.0f} images/s eager, "
        f"{rates['graphs']:,.0f} with graphs ({gain:+.0%})"
    )
    return Found(said, {"images_per_second": rates, "gain": gain})


def answers_fast(slot: Slot) -> Found:
    """Measure the forward pass by batch size."""
    sizes = slot.size.inference_batch_sizes
    config = slot.config(
        task="inference",
        precision="fp16",
        inference=InferenceConfig(batch_sizes=sizes),
    )
    run = slot.finish(config)
    timings = latency_timings(run.metrics("inference"))
    found = {
        size: {
            "images_per_second": timings[size].images_per_second,
            "p50_seconds": timings[size].p50_seconds,
        }
        for size in sizes
    }
    words = [
        f"batch {size}: {one['images_per_second']:,.0f} images/s, "
        f"{1e3 * one['p50_seconds']:.2f} ms"
        for size, one in found.items()
    ]
    return Found("; ".join(words), {"by_batch_size": found})


def reads_with_dali(slot: Slot) -> Found:
    """Read image files with DALI and with the torch loader, as training does."""
    require_dali()
    data = photographs(slot.folder / "photographs")
    rates: dict[str, float] = {}
    decoders: dict[str, str | None] = {}
    for loader in ("torch", "dali"):
        run = slot.finish(
            slot.config(
                data=str(data),
                loader=loader,
                loader_config=LoaderConfig(),
                batch_size_per_gpu=slot.size.half_batch_size,
                steps=slot.size.fast_steps,
                warmup_steps=slot.size.fast_steps // 3,
            )
        )
        losses(run)
        rates[loader] = _rate(run)
        decoders[loader] = run.worker["data"].get("decoder")
    said = (
        f"{rates['dali']:,.0f} images/s with DALI, {rates['torch']:,.0f} with the "
        f"torch loader ({decoders['torch']})"
    )
    return Found(said, {"images_per_second": rates})


def _rate(run: Run) -> float:
    rate = run.summary.images_per_second
    if not rate:
        message = f"run {run.run_id} says no images/s"
        raise ShortError(message)
    return rate


CHECKS = (
    *(
        Check(
            f"{precision} {way}",
            "the rate of a training",
            "finished, every loss finite, not above the bound",
            trains_fast(precision, way),
            seconds=150 if way == "compile" else 90,
        )
        for precision in ("bf16", "fp16")
        for way in _WAYS
    ),
    Check(
        "smaller batch, eager and graphs",
        "whether the host keeps up",
        "finished, every loss finite",
        keeps_a_fast_gpu_busy,
    ),
    Check(
        *("inference", "the rate of the forward pass", "finished"),
        answers_fast,
    ),
    Check(
        "DALI and the torch loader",
        "the rate from image files",
        "finished, every loss finite",
        reads_with_dali,
        seconds=150,
        images=True,
    ),
)
