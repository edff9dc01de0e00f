"""Latency of the forward pass by batch size, and accuracy of its outputs.

1. Device, seeds, images, the model with its weights.
2. The model in the configured number format: cast, or quantized.
3. Each batch size: warm-up, then passes that are timed one by one; every one is kept.
   They end by count or by time, by the same rule for every format.
4. The evaluation images once, with the model that was timed; where it is compiled, a
   batch of another size is another graph of it, compiled again.

A latency runs from images that are on the device to outputs that are ready, with
nothing else under way. On a GPU that leaves it idle while the next pass is issued, so
that throughput is measured by further passes without a wait in between; on a CPU
it is the batch over the mean latency.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from nbkit import clock
from nbkit.config import ExperimentConfig
from nbkit.datasets.manifest import Manifest
from nbkit.store.heartbeat import Phase
from nbkit.worker import data, models, weights
from nbkit.worker.data import Data, Placement, source
from nbkit.worker.distributed import choose_device
from nbkit.worker.evaluation import evaluate
from nbkit.worker.facts import write_facts
from nbkit.worker.metrics_log import MetricsLog
from nbkit.worker.precision import Precision
from nbkit.worker.quantize import quantize
from nbkit.worker.rank import Rank
from nbkit.worker.seeding import seed
from nbkit.worker.usage import peak_memory

TIMES_PER_EVENT = 10_000
"""Latencies in one line of the metrics, which is read as a whole."""

_LEAST_PASSES = 3
"""However slow they are."""

_ROW_SECONDS = 6.0
"""Of passes in a row, at least: the energy counter is read once a second, and a window
of less than five readings tells nothing."""

_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


def infer(rank: Rank, config: ExperimentConfig) -> None:
    """Time the configured model's forward pass on one device, and score it."""
    # 1. Device, seeds, images, model
    device = choose_device(rank, config)
    seed(config, device)
    manifest = source.prepare(config, rank)
    # Loaders and models may log as soon as they are made.
    log = MetricsLog(rank, config, 0)
    batches = _load_data(config, manifest, device)
    outputs = batches.num_classes if batches else 1000
    precision = _precision(config, device)
    model = models.build(config, config.num_classes or outputs)
    origin = weights.load(model, config, rank, classes=manifest and manifest.classes)
    model = precision.to_layout(model.to(device)).eval()

    # 2. The number format; what is logged before passes are timed does not count
    log.is_muted = True
    model, numbers = _convert_model(model, config, device, manifest, rank)
    numbers |= precision.kernels(model, max(config.inference.batch_sizes))
    dtype = _DTYPES.get(numbers["elsewhere"], torch.float32)
    facts: dict[str, Any] = {
        "source": source.describe(config, manifest),
        "weights": origin,
        "numbers": numbers,
    }
    whose = rank, config, device, None, batches, None
    write_facts(*whose, completed=False, **facts)

    # 3. Each batch size
    timed: Any = model
    stopped = False
    for number, size in enumerate(config.inference.batch_sizes, start=1):
        if config.compile:
            # Else it would give up specialising after a few sizes, without a word.
            torch.compiler.reset()
            timed = torch.compile(model, dynamic=False)
        images = _images(size, config, device).to(dtype)
        images = images.contiguous(memory_format=precision.memory_format)
        timing = _time(Passes(timed, images, rank), config, rank, log)
        if timing is None:
            stopped = True
            break
        _write(log, number, size, config, {**timing, **peak_memory(device)})

    # 4. The evaluation images
    if batches is not None and batches.evaluation_images and not stopped:

        def is_over() -> bool:
            rank.beat(len(config.inference.batch_sizes), Phase.EVALUATION)
            return rank.stop_requested

        rank.beat(len(config.inference.batch_sizes), Phase.EVALUATION)
        served = _Served(timed, dtype, device)
        result = evaluate(served, batches, precision, rank, manifest, is_over)
        stopped = result is None
        if result is not None:
            log.event("evaluation", len(config.inference.batch_sizes), **result)

    write_facts(*whose, completed=not stopped, window=log.window, **facts)
    rank.beat(len(config.inference.batch_sizes), Phase.DONE)
    log.close()
    if batches is not None:
        batches.close()


class _Served(nn.Module):
    """A model that takes images of float32, as loaders give them."""

    def __init__(
        self, model: nn.Module, dtype: torch.dtype, device: torch.device
    ) -> None:
        super().__init__()
        self.model = model
        self._dtype = dtype
        # A quantized model may have no parameter to say where it is.
        self.place = nn.Parameter(torch.zeros((), device=device), requires_grad=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.model(images.to(self._dtype))


def _precision(config: ExperimentConfig, device: torch.device) -> Precision:
    """Return the format, checked; weights that are cast need no autocast beside it."""
    checked = Precision(config, device)
    if config.precision == "tf32":
        return checked
    return Precision(config.replace(precision="fp32"), device)


def _load_data(
    config: ExperimentConfig, manifest: Manifest | None, device: torch.device
) -> Data | None:
    """Return the images; None for synthetic ones, of which none is needed."""
    if manifest is None:
        return None
    batch_size = config.batch_size_per_gpu
    assert isinstance(batch_size, int)
    return data.load(config, manifest, Placement(device, 0, 1), batch_size)


def _convert_model(
    model: nn.Module,
    config: ExperimentConfig,
    device: torch.device,
    manifest: Manifest | None,
    rank: Rank,
) -> tuple[nn.Module, dict[str, Any]]:
    """Return the model in its number format, and what the record says of that."""
    if config.precision == "int8":
        rank.beat(0, Phase.DATA)
        calibration = _calibration(config, manifest, device, rank)
        return quantize(model, config, device, calibration)
    dtype = _DTYPES.get(config.precision)
    if dtype is None:
        return model, {"weights": "fp32", "elsewhere": config.precision}
    name = config.precision
    return model.to(dtype), {"weights": f"cast to {name}", "elsewhere": name}


def _calibration(
    config: ExperimentConfig,
    manifest: Manifest | None,
    device: torch.device,
    rank: Rank,
) -> Iterator[torch.Tensor]:
    """Yield as many training images as configured; random ones if synthetic."""
    remaining = config.inference.calibration_images
    batches = _load_data(config, manifest, device)
    stream = (
        (_images(8, config, device) for _ in itertools.count())
        if batches is None
        else (images for images, _ in batches.train_batches(0))
    )
    try:
        for images in stream:
            yield images[:remaining]
            remaining -= len(images)
            rank.beat(0, Phase.DATA)
            if remaining <= 0 or rank.stop_requested:
                return
    finally:
        if batches is not None:
            batches.close()


def _images(count: int, config: ExperimentConfig, device: torch.device) -> torch.Tensor:
    size = config.image_size
    return torch.randn(count, 3, size, size, device=device)


class Passes:
    """Forward passes of one batch, until enough are done or the run is stopped."""

    def __init__(self, model: nn.Module, images: torch.Tensor, rank: Rank) -> None:
        self._model = model
        self._images = images
        self._rank = rank
        self._done = 0
        self.batch_size = len(images)
        self.on_gpu = images.device.type == "cuda"

    def time_each(self, count: int, limit_seconds: float) -> list[float]:
        """Return the time of every pass in seconds, from images to ready outputs."""
        # After three, time ends them too. It does not count the first, which may
        # compile.
        seconds: list[float] = []
        until = 0.0
        while len(seconds) < count and not self._rank.stop_requested:
            began = time.perf_counter()
            if len(seconds) >= _LEAST_PASSES and began >= until:
                break
            self._run_pass()
            self._wait()
            ended = time.perf_counter()
            seconds.append(ended - began)
            if len(seconds) == 1:
                until = ended + limit_seconds
        return seconds

    def in_a_row(self, count: int, seconds: float) -> tuple[int, float]:
        """Pass until there are so many, and so many seconds are over."""
        # There is no wait in between. Returns the passes, and their time in seconds.
        self._wait()
        began = time.perf_counter()
        done = 0
        while done < count or time.perf_counter() - began < seconds:
            self._run_pass()
            done += 1
            if self._rank.stop_requested:
                break
        self._wait()
        return done, time.perf_counter() - began

    def _run_pass(self) -> None:
        self._done += 1
        self._rank.beat(self._done, Phase.COMPUTE)
        self._model(self._images)

    def _wait(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize(self._images.device)


def _time(
    passes: Passes, config: ExperimentConfig, rank: Rank, log: MetricsLog
) -> dict[str, Any] | None:
    """Return latencies and throughput of one batch size; None if stopped."""
    plan, window = config.inference, log.window
    with torch.inference_mode():
        log.is_muted = True
        passes.time_each(plan.warmup_batches, plan.limit_seconds)
        log.is_muted = False
        # The warm-up tries algorithms whose workspaces are not needed later.
        if passes.on_gpu:
            torch.cuda.reset_peak_memory_stats()
        window.open()
        began = clock.now()
        latencies = passes.time_each(plan.batches, plan.limit_seconds)
        count = in_a_row = len(latencies)
        seconds = sum(latencies)
        if passes.on_gpu:
            began = clock.now()
            in_a_row, seconds = passes.in_a_row(count, _ROW_SECONDS)
        ended = clock.now()
        window.close()
    if rank.stop_requested:
        return None
    done = count + in_a_row if passes.on_gpu else count
    window.steps += done
    window.images += done * passes.batch_size
    timed = sum(latencies) + seconds if passes.on_gpu else seconds
    window.step_time_seconds += timed
    window.compute_seconds += timed
    return {
        "times_seconds": latencies,
        "throughput_seconds": seconds,
        "throughput_batches": in_a_row,
        "throughput": "passes in a row" if passes.on_gpu else "batch / mean latency",
        "began": began,
        "ended": ended,
    }


def _write(
    log: MetricsLog,
    number: int,
    size: int,
    config: ExperimentConfig,
    timing: dict[str, Any],
) -> None:
    """Write one batch size: every latency, a line for each ten thousand."""
    seconds = timing["times_seconds"]
    for start in range(0, len(seconds), TIMES_PER_EVENT):
        values = {
            "batch_size": size,
            "warmup_batches": config.inference.warmup_batches,
            **timing,
            "times_seconds": seconds[start : start + TIMES_PER_EVENT],
        }
        log.event("inference", number, **values)
