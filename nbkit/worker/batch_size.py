"""`batch_size_per_gpu="max"`: the largest batch that fits, probed in a subprocess.

Running out of memory leaves a process with fragmented memory and a full cache; so the
search runs in a separate process, beside the rank that has not allocated yet.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from nbkit.config import ExperimentConfig
from nbkit.datasets.manifest import Manifest
from nbkit.errors import ConfigError, DeviceError
from nbkit.reading import read_file
from nbkit.store.paths import RunPaths
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import write_json
from nbkit.telemetry.cuda_errors import is_out_of_memory
from nbkit.worker import graphs, models, optimizers
from nbkit.worker import rank_context as context
from nbkit.worker.data import Placement, synthetic
from nbkit.worker.distributed import gather
from nbkit.worker.precision import Precision
from nbkit.worker.rank import Rank
from nbkit.worker.seeding import choose_search

LIMIT = 8192
"""No search goes further: a larger global batch does not train well."""

# Batch normalisation refuses a single value per channel, as one small image gives, so
# that sizes below this are tried only when it does not fit.
_FIRST_SIZE = 16

# What a probe may use of the free memory. The rest is for what it does not have: NCCL's
# buffers, and fragmentation over thousands of steps.
_USABLE_SHARE = 0.95

# Left for what no probe has: DALI decodes into separate memory.
_DALI_SHARE = 0.10


def resolve(
    config: ExperimentConfig,
    rank: Rank,
    device: torch.device,
    group: dist.ProcessGroup | None,
    manifest: Manifest | None,
) -> int:
    """Return the batch size of every rank; called by all."""
    # With ``max`` each rank probes its own GPU, and the smallest answer holds for all:
    # on a shared machine one GPU may have less free memory than the others.
    if config.batch_size_per_gpu != "max":
        return config.batch_size_per_gpu
    if device.type != "cuda" or config.oversubscribe:
        on_gpu = device.type == "cuda"
        reason = "oversubscribe is True" if on_gpu else "this run is on CPUs"
        message = (
            f"batch_size_per_gpu='max' requires a GPU per rank, but {reason}. Set a "
            "number."
        )
        raise ConfigError(message)
    size = _probe(
        rank,
        config.num_classes
        or (synthetic.NUM_CLASSES if manifest is None else len(manifest.classes)),
    )
    answers = gather({"batch_size": size}, rank, group)
    size = min(answer["batch_size"] for answer in answers)
    if not size:
        message = (
            f"batch_size_per_gpu='max': a batch of 1 image of {config.image_size} px "
            f"does not fit in GPU memory with {config.model}. Use a smaller image_size "
            "or another model."
        )
        raise DeviceError(message)
    return size


def largest(fits: Callable[[int], bool], limit: int = LIMIT) -> int:
    """Return the largest size that fits; 0 if 1 does not."""
    # Powers of two are tried first, then the step half-way to the next one: 64, 96,
    # 128, 192 ... are sizes that kernels like.
    size = _FIRST_SIZE
    while size > limit or not fits(size):
        size //= 2
        if not size:
            return 0
    while size >= _FIRST_SIZE and size * 2 <= limit and fits(size * 2):
        size *= 2
    half_step = size + size // 2
    if half_step > size and half_step <= limit and fits(half_step):
        return half_step
    return size


def fits(config: ExperimentConfig, device: torch.device, size: int) -> bool:
    """Return whether two training steps at a batch size stay within memory."""
    # The second step counts: the optimizer's state is made in the first.
    try:
        _train_two_steps(config, device, size)
    except RuntimeError as error:
        if not _is_out_of_memory(error):
            raise
        return False
    finally:
        gc.collect()
        torch.cuda.empty_cache()
    return True


def _is_out_of_memory(error: BaseException | None) -> bool:
    """Return whether an error, or the one that it hides, says that memory ran out."""
    # A capture of CUDA graphs that ends by one says only that it ended.
    if error is None:
        return False
    return (
        isinstance(error, torch.OutOfMemoryError)
        or is_out_of_memory(str(error))
        or _is_out_of_memory(error.__context__)
    )


def _train_two_steps(config: ExperimentConfig, device: torch.device, size: int) -> None:
    images_only = config.replace(
        data="synthetic",
        images_per_epoch=2 * size * config.gradient_accumulation_steps,
        evaluation_period_epochs=None,
        target_accuracy=None,
    )
    data = synthetic.Synthetic(images_only, Placement(device, 0, 1), size)
    precision = Precision(config, device)
    model = precision.to_layout(models.build(config, data.num_classes).to(device))
    optimizer = optimizers.build(config, model)
    if config.cuda_graphs:
        # They keep what they compute in a pool that nothing else uses.
        graphs.capture(model, config, precision, device, size)
    criterion = nn.CrossEntropyLoss(label_smoothing=config.label_smoothing)
    batches = data.train_batches(0)
    for _ in range(2):
        images, labels = next(batches)
        with precision.autocast():
            loss = criterion(model(images), labels)
        precision.scaler.scale(loss).backward()
        precision.scaler.step(optimizer)
        precision.scaler.update()
        # Gradients stay, as they do in the buckets of distributed training.
        optimizer.zero_grad(set_to_none=False)


def _probe(rank: Rank, num_classes: int) -> int:
    # Not its standard output, to which models may print.
    reading, writing = os.pipe()
    arguments = map(str, (rank.paths.root, num_classes, writing))
    with (
        os.fdopen(reading) as answer,
        subprocess.Popen(
            [sys.executable, "-P", "-m", "nbkit.worker.batch_size", *arguments],
            pass_fds=[writing],
            env={**os.environ, "LOCAL_RANK": str(rank.local_rank)},
        ) as probe,
    ):
        os.close(writing)
        # On the GPU it is one of the run's own processes, not another's.
        own = rank.paths.rank(rank.attempt, rank.rank).probe
        write_json(own, ProcessIdentity.of(probe.pid).to_dict())
        size = answer.read()
    if probe.returncode:
        message = (
            f"batch_size_per_gpu='max': the probe exited with code {probe.returncode}. "
            "See the rank's log, or set batch_size_per_gpu to a number."
        )
        raise DeviceError(message)
    return int(size)


def main() -> None:
    """Write the largest batch size of a run: its folder, classes, and where to."""
    root, num_classes, answer = sys.argv[1:]
    config = ExperimentConfig.from_json(read_file(RunPaths(Path(root)).config))
    # A single label counts as two: the images of a probe have classes.
    config = config.replace(num_classes=max(2, int(num_classes)))
    # Nothing of a probe belongs to the run.
    context.log_with(lambda values, step: None)
    size = largest_on_gpu(config)
    with os.fdopen(int(answer), "w") as file:
        file.write(str(size))


def largest_on_gpu(config: ExperimentConfig) -> int:
    """Return the largest batch size for the GPU of this rank."""
    index = int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count()
    device = torch.device("cuda", index)
    torch.cuda.set_device(device)
    free_bytes, total_bytes = torch.cuda.mem_get_info(device)
    share = usable_share(config) * free_bytes / total_bytes
    torch.cuda.set_per_process_memory_fraction(share, device)
    choose_search(config)
    return largest(lambda size: fits(config, device, size))


def usable_share(config: ExperimentConfig) -> float:
    """Return the share of the free memory that a probe may use."""
    decodes_on_gpu = config.loader == "dali" and config.data != "synthetic"
    return _USABLE_SHARE - (_DALI_SHARE if decodes_on_gpu else 0)


if __name__ == "__main__":
    main()
