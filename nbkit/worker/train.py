"""The training loop of one rank, top to bottom.

1. Device, process group, seeds.
2. Images, batch size, model, optimizer.
3. Gradient exchange (DDP), compiled or replayed as configured.
4. The state of an earlier attempt, if this is a resumed one.
5. The loop: batch, forward, backward, update; no synchronisation with the device.
6. Evaluation and checkpoints between steps.
7. Facts for the record that only a torch process knows.
"""

from __future__ import annotations

import contextlib
import time

import torch
import torch.distributed as dist

from nbkit.config import ExperimentConfig
from nbkit.errors import RunError
from nbkit.store.heartbeat import Phase
from nbkit.worker import (
    batch_size,
    checkpoint,
    data,
    graphs,
    losses,
    models,
    optimizers,
    schedule,
    weights,
)
from nbkit.worker.data import source
from nbkit.worker.ddp import ddp_of, no_sync, warm_up_ddp, wrap_ddp
from nbkit.worker.distributed import (
    StopAgreement,
    choose_device,
    create_process_group,
    final_barrier,
)
from nbkit.worker.duration import Duration
from nbkit.worker.evaluation import evaluate
from nbkit.worker.facts import write_facts
from nbkit.worker.finiteness import FiniteWatch
from nbkit.worker.generators import random_state, restore_random_state
from nbkit.worker.metrics_log import MetricsLog
from nbkit.worker.precision import Precision
from nbkit.worker.profile import StepProfile
from nbkit.worker.rank import Rank
from nbkit.worker.seeding import seed, seed_rank
from nbkit.worker.step_clock import StepClock, StepTimes


def train(rank: Rank, config: ExperimentConfig) -> None:  # noqa: C901, PLR0915
    """Train the configured model as one of ``world_size`` ranks."""
    # 1. Device, process group, seeds
    device = choose_device(rank, config)
    host_group = create_process_group(rank, config, device)
    seed(config, device)

    def barrier() -> None:
        if host_group is not None:
            dist.barrier(host_group)

    # 2. Images, batch size, model, optimizer; or where an earlier attempt left off
    manifest = source.prepare(config, rank)
    saved, own = {}, {}
    if rank.attempt:
        # Ranks that see it wait in a collective for those that do not yet.
        patience = min(checkpoint.SHOWN_SECONDS, config.collective_timeout_seconds / 2)
        newest = checkpoint.agreed(rank, host_group, patience)
        if newest is not None:
            saved, own = checkpoint.load(newest, rank.rank, rank.world_size)
        elif not (config.max_restarts or config.engine == "slurm"):
            # A person starts it again, and means the checkpoint: to begin again in
            # silence would replace what was measured.
            message = (
                f"No complete checkpoint in {rank.paths.checkpoints}; cannot resume. "
                "Launch the same configuration as a new run."
            )
            raise RunError(message)
    per_rank = saved.get("batch_size_per_gpu") or batch_size.resolve(
        config, rank, device, host_group, manifest
    )
    accumulation = config.gradient_accumulation_steps
    images_per_step = per_rank * rank.world_size * accumulation
    profile = StepProfile(rank, config, device)
    # Loaders and models may log as soon as they are made. A resumed attempt makes them
    # again, and what they log then belongs to no step of it.
    log = MetricsLog(rank, config, images_per_step, profile.steps)
    log.is_muted = bool(saved)
    placement = data.Placement(device, rank.rank, rank.world_size, rank.cpus_shared_by)
    batches = data.load(config, manifest, placement, per_rank)
    steps_per_epoch = batches.steps_per_epoch
    batches_per_epoch = steps_per_epoch * accumulation
    precision = Precision(config, device)
    raw_model = models.build(config, config.num_classes or batches.num_classes)
    origin = weights.load(
        raw_model,
        config,
        rank,
        classes=manifest and manifest.classes,
        resumed=bool(saved),
        barrier=barrier,
    )
    seed_rank(config, rank)
    raw_model = precision.to_layout(raw_model.to(device))
    optimizer = optimizers.build(config, raw_model)
    criterion = losses.training_loss(config, manifest, rank).to(device)

    # 3. Gradient exchange; its passes before the first step are thrown away
    log.is_muted = True
    clock = StepClock(device)
    if config.cuda_graphs:
        graphs.capture(raw_model, config, precision, device, per_rank)
    model = wrap_ddp(raw_model, config, rank, device, clock)
    exchanging = ddp_of(model)
    agreement = StopAgreement(rank, host_group)
    watch = FiniteWatch(raw_model)
    facts = rank, config, device, host_group, batches, per_rank
    described = {
        "source": source.describe(config, manifest),
        "weights": origin,
        "numbers": precision.kernels(raw_model, per_rank),
    }
    write_facts(*facts, completed=False, **described)

    # 4. The state of an earlier attempt, after everything that draws random numbers
    step = epoch = first_batch = 0
    if saved:
        step, epoch, first_batch = saved["step"], saved["epoch"], saved["batch"]
        warm_up_ddp(model, config, precision, device, per_rank, passes=min(step, 2))
        raw_model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        precision.scaler.load_state_dict(saved["scaler"])
        watch.resume(step, saved.get("nonfinite"))
        rank.finished_step = step
        restore_random_state(own)
        # A copy of the model is not kept for as long as the training takes.
        saved, own = {}, {}
    length = Duration(config, steps_per_epoch, step, profile.steps)
    first_step = step

    def read(*, wait: bool = False) -> list[StepTimes]:
        finished = clock.finished(wait=wait)
        rank.finished_step = finished[-1].step if finished else rank.finished_step
        watch.read(finished)
        length.take(finished)
        return finished

    def log_nonfinite() -> None:
        nonlocal is_nonfinite_logged
        # Nothing is measured any more that a wait for the device could disturb.
        log.steps(read(wait=True))
        nonfinite = watch.agree(host_group)
        if nonfinite is not None and not is_nonfinite_logged:
            log.event("nonfinite", **nonfinite.to_dict())
            is_nonfinite_logged = True

    def save() -> None:
        rank.beat(step, Phase.CHECKPOINT)
        log.steps(read(wait=True))
        began = time.perf_counter()
        with log.window.without_this_thread():
            finite = watch.look_now(step)
            log_nonfinite()
            if is_nonfinite_logged and config.stop_on_nonfinite:
                return  # the last finite one stays the newest
            path = checkpoint.save(
                rank.paths.checkpoints,
                step,
                {
                    "model": raw_model.state_dict(),
                    "classes": manifest and list(manifest.classes),
                    "optimizer": optimizer.state_dict(),
                    "scaler": precision.scaler.state_dict(),
                    "step": step,
                    "epoch": epoch,
                    "batch": first_batch,
                    "batch_size_per_gpu": per_rank,
                    "nonfinite": watch.nonfinite and watch.nonfinite.to_dict(),
                },
                random_state(),
                rank.rank,
                rank.world_size,
                barrier,
                config.checkpoints_kept,
                finite=finite,
            )
        # Another node may see the new name later than rank 0, which writes this.
        files = path.iterdir() if rank.rank == 0 else ()
        log.event(
            "checkpoint",
            step,
            path=str(path.relative_to(rank.paths.root)),
            bytes=sum(file.stat().st_size for file in files) or None,
            duration_seconds=time.perf_counter() - began,
        )
        clock.restart()

    def evaluation_is_over() -> bool:
        rank.beat(step, Phase.EVALUATION)
        return agreement.reached(alarm=watch.nonfinite is not None)

    # 5. The loop
    done = stopped = False
    ended_by = length.ended_by
    is_nonfinite_logged = watch.nonfinite is not None
    if length.opens_window(step, 0):
        log.open_window(0)
    log.is_muted = False
    profile.between_steps()
    clock.restart()
    while not (done or stopped):
        model.train()
        left = batches_per_epoch - first_batch
        stream = iter(batches.train_batches(epoch, first_batch)) if left else iter(())
        while step < length.total_steps and first_batch < batches_per_epoch:
            clock.begin(step + 1, epoch)
            rate = schedule.learning_rate(
                config, step, steps_per_epoch, length.scheduled_steps
            )
            optimizers.set_learning_rate(optimizer, rate)
            optimizer.zero_grad(set_to_none=True)
            step_loss = torch.zeros((), device=device)
            for part in range(accumulation):
                rank.beat(step + 1, Phase.DATA)
                clock.ask_for_batch()
                images, labels = data.next_batch(stream, config, step + 1)
                clock.got_batch()
                rank.beat(step + 1, Phase.COMPUTE)
                last = part == accumulation - 1
                with contextlib.nullcontext() if last else no_sync(exchanging):
                    with precision.autocast():
                        loss = criterion(model(images), labels) / accumulation
                    rank.beat(step + 1, Phase.COLLECTIVE)
                    precision.scaler.scale(loss).backward()
                step_loss += loss.detach()
            clock.backward_done()
            scales = precision.update(optimizer)
            step += 1
            clock.end(step_loss, rate, scales, watch.look(step))
            first_batch += accumulation
            finished = read()
            profile.between_steps()

            # 6. Between steps
            period = config.checkpoint_period_steps
            stopped = agreement.reached(
                alarm=watch.nonfinite is not None, window_steps=length.window_steps
            )
            opens = length.opens_window(step, agreement.window_steps)
            log.total_steps = length.agreed_steps
            log.steps(finished)
            if opens:
                log.open_window(step - first_step)
            if agreement.alarm and not is_nonfinite_logged:
                log_nonfinite()
            if is_nonfinite_logged and config.stop_on_nonfinite:
                stopped = True
                break
            if stopped or (period and step % period == 0 and step < length.total_steps):
                save()
            if stopped:
                break
        done = step >= length.total_steps
        epoch_is_over = first_batch >= batches_per_epoch
        if not stopped and evaluation_is_due(config, epoch + epoch_is_over, done):
            log.steps(read(wait=True))
            rank.beat(step, Phase.EVALUATION)
            with log.window.paused():
                evaluation = evaluate(
                    raw_model,
                    batches,
                    precision,
                    rank,
                    manifest,
                    evaluation_is_over,
                )
            if evaluation is None:
                # The checkpoint still stands before the evaluation: resuming begins
                # with it.
                stopped = True
                save()
            else:
                watch.note_evaluation(step, evaluation["loss"])
                log.event("evaluation", step, epoch=epoch + epoch_is_over, **evaluation)
                target = config.target_accuracy
                if target is not None and evaluation["top1_accuracy"] >= target:
                    done, ended_by = True, "target_accuracy"
            barrier()  # rank 0 writes predictions: others would wait in their next step
            clock.restart()
        if epoch_is_over:
            epoch, first_batch = epoch + 1, 0

    # 7. The end
    log.steps(read(wait=True))
    log.window.close()
    profile.close()
    agreement.close()
    if config.checkpoint_at_end and not stopped:
        save()
    finite = watch.look_now(step)
    log_nonfinite()
    failed = config.stop_on_nonfinite and watch.nonfinite is not None
    write_facts(
        *facts,
        completed=not (stopped or failed),
        ended_by=None if stopped or failed else ended_by,
        window=log.window,
        weights_finite=finite,
        nonfinite=watch.nonfinite,
        **described,
    )
    rank.beat(step, Phase.DONE)
    log.close()
    batches.close()
    final_barrier(host_group)
    if failed:
        raise watch.error(config)


def evaluation_is_due(config: ExperimentConfig, epoch: int, at_end: bool) -> bool:
    """Tell whether an evaluation follows this epoch."""
    period = config.evaluation_period_epochs
    if period is None:
        return False
    since = epoch - config.evaluation_offset_epochs
    return at_end or (since > 0 and since % period == 0)
