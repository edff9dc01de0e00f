"""Configurations inside `ExperimentConfig`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator

from nbkit.config.model import Model
from nbkit.config.pipeline import pipeline_steps

SECONDS_PER_PASS = 0.05
LEAST_SECONDS = 5.0
"""Time for the timed passes of a batch size, whatever the format: else one that is slow
would be measured for longer, or a slow machine would take hours."""


class DaliConfig(Model):
    """Settings of ``loader="dali"``."""

    prefetch_queue_depth: Annotated[int, Field(ge=1, le=64)] = 2
    """Batches that the pipeline prepares ahead."""
    roi_decode: bool = True
    """Decode only the part of an image that the crop keeps."""
    hw_decoder_load: Annotated[float, Field(ge=0, le=1)] = 0.65
    """Share of images decoded by the GPU's hardware JPEG decoder, if present; CUDA
    kernels decode the rest."""
    preallocate_width_hint: Annotated[int, Field(ge=0, le=65_536)] = 0
    """Image width in pixels for which the decoder allocates memory before the first
    batch; 0 disables preallocation."""
    preallocate_height_hint: Annotated[int, Field(ge=0, le=65_536)] = 0
    """Image height in pixels for which the decoder allocates memory before the first
    batch; 0 disables preallocation."""


class LoaderConfig(Model):
    """Settings of the loaders; each field names the loaders that use it."""

    num_workers: Annotated[int, Field(ge=0, le=256)] | None = None
    """Loading processes per rank (``dali`` and ``tfrecord``: threads); None uses the
    rank's share of the usable CPUs minus one for training, from 1 to 32. ``naive`` uses
    none."""
    prefetch_factor: Annotated[int, Field(ge=1, le=64)] = 2
    """Batches prefetched by each loading process of ``torch``, or by each ``prefetch``
    step of ``tfrecord`` after batching."""
    pin_memory: bool | None = None
    """Copy through page-locked host memory (``torch``); None enables this on GPUs
    only."""
    pipeline: str = "chexnet_new"
    """Pipeline of ``tfrecord``: ``chexnet_old`` or ``chexnet_new`` (the original and
    the optimized pipeline of Dell's CheXNet report), or steps such as
    ``list,shard,interleave,shuffle,map_and_batch,prefetch``."""
    dali: DaliConfig = DaliConfig()
    """Settings of ``dali`` only."""

    @field_validator("pipeline")
    @classmethod
    def _is_a_pipeline(cls, value: str) -> str:
        pipeline_steps(value)
        return value


class AllReduceConfig(Model):
    """Message sizes of the all-reduce measurement (``task="allreduce"``)."""

    bytes_min: Annotated[int, Field(ge=4, le=2**34)] = 2**10
    """Smallest message, in bytes."""
    bytes_max: Annotated[int, Field(ge=4, le=2**34)] = 2**28
    """Largest message, in bytes; sizes grow from ``bytes_min`` by a factor of 4."""
    iterations: Annotated[int, Field(ge=1, le=10_000)] = 20
    """Timed all-reduces of each size."""
    warmup_iterations: Annotated[int, Field(ge=0, le=10_000)] = 5
    """Untimed warm-up all-reduces of each size."""

    @field_validator("bytes_max")
    @classmethod
    def _not_below_min(cls, value: int, info: ValidationInfo) -> int:
        low = info.data.get("bytes_min")
        if low is not None and value < low:
            message = f"is below bytes_min={low}. Use {low} or more"
            raise ValueError(message)
        return value


class InferenceConfig(Model):
    """Batch sizes and passes of the inference measurement (``task="inference"``)."""

    batch_sizes: tuple[Annotated[int, Field(ge=1, le=65_536)], ...] = (1, 8, 32)
    """Images per forward pass; each batch size is one measurement."""
    batches: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    """Timed forward passes of each batch size. Slow passes end at a time limit: 50 ms
    per requested pass, but at least 5 s and three passes. On a GPU, at least as many
    back-to-back passes follow, for at least 6 s, which determine rate and energy."""
    warmup_batches: Annotated[int, Field(ge=0, le=1_000_000)] = 10
    """Untimed warm-up passes of each batch size (allocation, autotuning,
    compilation)."""
    calibration_images: Annotated[int, Field(ge=1, le=1_000_000)] = 256
    """Training images for the calibration of ``precision="int8"``."""

    @property
    def limit_seconds(self) -> float:
        """Time limit of the timed passes of a batch size, and of its warm-up passes."""
        return max(LEAST_SECONDS, SECONDS_PER_PASS * self.batches)

    @field_validator("batch_sizes")
    @classmethod
    def _different_sizes(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not value:
            message = "is empty. List at least one batch size"
            raise ValueError(message)
        if len(set(value)) != len(value):
            message = "lists a batch size twice. List each batch size once"
            raise ValueError(message)
        return value
