"""The training loop of one rank, top to bottom.

1. Device, process group, seeds.
2. Images, batch size, model, optimizer.
3. Gradient exchange (DDP), compiled or replayed as configured.
4. The state of an earlier attempt, if this is a resumed one.
5. The loop: batch, forward, backward, update; no synchronisation with the device.
6. Evaluation and checkpoints between steps.
7. What only a torch process knows, for the record.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError, RunError
from nbkit.store.heartbeat import Phase
from nbkit.worker import (
    batch_size,
    checkpoint,
    data,
    losses,
    models,
    optimizers,
    schedule,
    weights,
)
from nbkit.worker.data import source
from nbkit.worker.distributed import StopAgreement, choose_device, join, leave
from nbkit.worker.evaluation import evaluate
from nbkit.worker.facts import write_facts
from nbkit.worker.metrics_log import MetricsLog
from nbkit.worker.precision import Precision, all_finite
from nbkit.worker.profile import StepProfile
from nbkit.worker.rank import Rank
from nbkit.worker.seeding import seed
from nbkit.worker.step_clock import StepClock

__all__ = ["train"]


def train(rank: Rank, config: ExperimentConfig) -> None:  # noqa: C901 - one story
    """Train the configured model as one of ``world_size`` ranks.

    Parameters
    ----------
    rank
        This process in its run.
    config
        What to do.
    """
    # 1. Device, process group, seeds
    device = choose_device(rank, config)
    host_group = join(rank, config, device)
    seed(config)

    def barrier() -> None:
        if host_group is not None:
            dist.barrier(host_group)

    # 2. Images, batch size, model, optimizer; or where an earlier attempt left off
    manifest = source.prepare(config, rank)
    saved, own = {}, {}
    if rank.attempt:
        newest = checkpoint.latest(rank.paths.checkpoints)
        if newest is not None:
            saved, own = checkpoint.load(newest, rank.rank, rank.world_size)
        elif not (config.max_restarts or config.engine == "slurm"):
            # A person starts it again, and means the checkpoint: to begin anew in
            # silence would take the place of what was measured.
            message = (
                f"{rank.paths.checkpoints} has 0 complete checkpoints, resuming needs "
                "1; launch the run's config anew."
            )
            raise RunError(message)
    per_rank = saved.get("batch_size_per_gpu") or batch_size.resolve(
        config, rank, device, host_group
    )
    placement = data.Placement(device, rank.rank, rank.world_size, rank.cpus_shared_by)
    batches = data.load(config, manifest, placement, per_rank)
    accumulation = config.gradient_accumulation_steps
    steps_per_epoch = batches.steps_per_epoch
    batches_per_epoch = steps_per_epoch * accumulation
    total_steps = config.steps or (config.epochs or 1) * steps_per_epoch
    precision = Precision(config, device)
    raw_model = models.build(config, config.num_classes or batches.num_classes)
    origin = weights.load(raw_model, config, rank, resumed=bool(saved), barrier=barrier)
    raw_model = precision.to_layout(raw_model.to(device))
    optimizer = optimizers.build(config, raw_model)
    criterion = losses.training_loss(config, manifest, rank).to(device)
    images_per_step = per_rank * rank.world_size * accumulation

    # 3. Gradient exchange
    clock = StepClock(device)
    if config.cuda_graphs:
        _capture(raw_model, config, precision, device, per_rank)
    model = _wrap(raw_model, config, rank, device, clock)
    agreement = StopAgreement(rank, host_group)
    profile = StepProfile(rank, config, device)
    log = MetricsLog(rank, config, images_per_step, profile.steps)
    facts = rank, config, device, host_group, batches, per_rank
    images_from = source.describe(config, manifest)
    write_facts(*facts, completed=False, source=images_from, weights=origin)

    # 4. The state of an earlier attempt, behind everything that draws random numbers
    step = epoch = first_batch = 0
    if saved:
        step, epoch, first_batch = saved["step"], saved["epoch"], saved["batch"]
        _settle(model, config, precision, device, per_rank, passes=min(step, 2))
        raw_model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        precision.scaler.load_state_dict(saved["scaler"])
        checkpoint.restore_random_state(own)
        # A copy of the model is not kept for as long as the training takes.
        saved, own = {}, {}

    def save() -> None:
        rank.beat(step, Phase.CHECKPOINT)
        log.steps(clock.finished(wait=True))
        began = time.perf_counter()
        with log.window.without_this_thread():
            path = checkpoint.save(
                rank.paths.checkpoints,
                step,
                {
                    "model": raw_model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "scaler": precision.scaler.state_dict(),
                    "step": step,
                    "epoch": epoch,
                    "batch": first_batch,
                    "batch_size_per_gpu": per_rank,
                },
                checkpoint.random_state(),
                rank.rank,
                rank.world_size,
                barrier,
                config.checkpoints_kept,
            )
        log.event(
            "checkpoint",
            step,
            path=str(path.relative_to(rank.paths.root)),
            bytes=_size_bytes(path),
            duration_seconds=time.perf_counter() - began,
        )
        clock.restart()

    def evaluation_is_over() -> bool:
        rank.beat(step, Phase.EVALUATION)
        return agreement.reached()

    # 5. The loop
    done = stopped = False
    steps_until_window = config.warmup_steps + profile.steps
    if not steps_until_window:
        log.window.open()
    profile.between_steps()
    clock.restart()
    while not (done or stopped):
        model.train()
        left = batches_per_epoch - first_batch
        stream = iter(batches.train_batches(epoch, first_batch)) if left else iter(())
        while step < total_steps and first_batch < batches_per_epoch:
            clock.begin(step + 1, epoch)
            rate = schedule.learning_rate(config, step, steps_per_epoch, total_steps)
            optimizers.set_learning_rate(optimizer, rate)
            optimizer.zero_grad(set_to_none=True)
            step_loss = torch.zeros((), device=device)
            for part in range(accumulation):
                rank.beat(step + 1, Phase.DATA)
                clock.ask_for_batch()
                images, labels = next(stream)
                clock.got_batch()
                rank.beat(step + 1, Phase.COMPUTE)
                last = part == accumulation - 1
                with contextlib.nullcontext() if last else _no_exchange(model):
                    with precision.autocast():
                        loss = criterion(model(images), labels) / accumulation
                    rank.beat(step + 1, Phase.COLLECTIVE)
                    precision.scaler.scale(loss).backward()
                step_loss += loss.detach()
            clock.backward_done()
            scales = precision.update(optimizer)
            clock.end(step_loss, rate, scales)
            step += 1
            first_batch += accumulation
            steps_until_window -= 1
            if steps_until_window == 0:
                log.window.open()
            log.steps(clock.finished())
            profile.between_steps()

            # 6. Between steps
            period = config.checkpoint_period_steps
            stopped = agreement.reached()
            if stopped or (period and step % period == 0 and step < total_steps):
                save()
            if stopped:
                break
        done = step >= total_steps
        epoch_is_over = first_batch >= batches_per_epoch
        if not stopped and _evaluation_is_due(config, epoch + epoch_is_over, done):
            log.steps(clock.finished(wait=True))
            rank.beat(step, Phase.EVALUATION)
            with log.window.paused():
                found = evaluate(
                    raw_model,
                    batches,
                    precision,
                    rank,
                    manifest,
                    evaluation_is_over,
                )
            if found is None:
                # The checkpoint still stands before the evaluation: resuming begins
                # with it.
                stopped = True
                save()
            else:
                log.event("evaluation", step, epoch=epoch + epoch_is_over, **found)
                if config.target_accuracy is not None:
                    done = done or found["top1_accuracy"] >= config.target_accuracy
            clock.restart()
        if epoch_is_over:
            epoch, first_batch = epoch + 1, 0

    # 7. The end
    log.steps(clock.finished(wait=True))
    log.window.close()
    profile.close()
    agreement.close()
    if config.checkpoint_at_end and not stopped:
        save()
    write_facts(
        *facts,
        completed=not stopped,
        source=images_from,
        window=log.window,
        weights_finite=all_finite(raw_model),
        weights=origin,
    )
    rank.beat(step, Phase.DONE)
    log.close()
    batches.close()
    leave(host_group)


def _wrap(
    raw_model: nn.Module,
    config: ExperimentConfig,
    rank: Rank,
    device: torch.device,
    clock: StepClock,
) -> nn.Module:
    """Return the model with gradient exchange, compiled where configured."""
    model = raw_model
    if rank.world_size > 1:
        model = DistributedDataParallel(
            raw_model,
            device_ids=[device.index] if device.type == "cuda" else None,
            gradient_as_bucket_view=True,
            # A static graph with no_sync is an internal assert of DDP, and
            # torch.compile splits the graph at the buckets itself.
            static_graph=config.gradient_accumulation_steps == 1 and not config.compile,
        )

        # DDP compares annotations with its own types, which names in quotes are not.
        def exchange(group, bucket):  # noqa: ANN001, ANN202
            if bucket.is_last():
                clock.last_bucket_ready()
            return allreduce_hook(group, bucket)

        model.register_comm_hook(None, exchange)
    return torch.compile(model) if config.compile else model  # type: ignore[return-value]


def _settle(
    model: nn.Module,
    config: ExperimentConfig,
    precision: Precision,
    device: torch.device,
    batch: int,
    *,
    passes: int,
) -> None:
    """Bring gradient exchange to where it stood when the checkpoint was written.

    DDP sorts its buckets anew during the first steps, and the order in which gradients
    of three or more ranks are added up depends on the buckets. Passes that are thrown
    away make a resumed attempt add in the order of an uninterrupted one.
    """
    side = config.image_size
    for _ in range(passes):
        images = torch.zeros(batch, 3, side, side, device=device)
        images = images.to(memory_format=precision.memory_format)
        with precision.autocast():
            outputs = model(images)
        outputs.float().sum().backward()
        model.zero_grad(set_to_none=True)


def _capture(
    raw_model: nn.Module,
    config: ExperimentConfig,
    precision: Precision,
    device: torch.device,
    batch: int,
) -> None:
    """Replace the model's training passes by CUDA graphs; evaluation stays eager.

    The graphs are captured before DDP wraps the model, as torch asks for; the gradients
    then arrive all at once, so that their exchange cannot overlap with computing.

    References
    ----------
    https://docs.pytorch.org/docs/stable/generated/torch.cuda.make_graphed_callables.html
    """
    if device.type != "cuda":
        message = "cuda_graphs=True needs a GPU; set cuda_graphs=False."
        raise ConfigError(message)
    side = config.image_size
    images = torch.randn(batch, 3, side, side, device=device)
    images = images.to(memory_format=precision.memory_format)
    state = {name: value.clone() for name, value in raw_model.state_dict().items()}
    raw_model.train()
    with precision.autocast():
        torch.cuda.make_graphed_callables(raw_model, (images,))
    # The warm-up passes moved the running statistics.
    raw_model.load_state_dict(state)


def _no_exchange(model: nn.Module) -> contextlib.AbstractContextManager[None]:
    """Return a context in which gradients stay on their rank."""
    inner = getattr(model, "_orig_mod", model)
    if isinstance(inner, DistributedDataParallel):
        return inner.no_sync()
    return contextlib.nullcontext()


def _evaluation_is_due(config: ExperimentConfig, epoch: int, at_end: bool) -> bool:
    period = config.evaluation_period_epochs
    if period is None:
        return False
    since = epoch - config.evaluation_offset_epochs
    return at_end or (since > 0 and since % period == 0)


def _size_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())
