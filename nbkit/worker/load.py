"""Data loading of a training, as one rank, without the computation.

The same loader, batches, order and ranks as in `nbkit.worker.train`; instead of
computing, a rank sleeps as long as a GPU would compute, or not at all. This measures
the input rate for GPUs that are not available, as MLPerf Storage does.

References
----------
https://github.com/mlcommons/storage
"""

from __future__ import annotations

import time

import torch.distributed as dist

from nbkit.config import ExperimentConfig
from nbkit.store.heartbeat import Phase
from nbkit.worker import batch_size, data
from nbkit.worker.data import source
from nbkit.worker.distributed import (
    StopAgreement,
    choose_device,
    create_process_group,
    final_barrier,
)
from nbkit.worker.duration import Duration
from nbkit.worker.facts import write_facts
from nbkit.worker.metrics_log import MetricsLog
from nbkit.worker.rank import Rank
from nbkit.worker.seeding import seed_generators
from nbkit.worker.step_clock import StepClock


def load(rank: Rank, config: ExperimentConfig) -> None:
    """Read the configured images as one of ``world_size`` ranks.

    After every step the ranks wait for each other, as an exchange of gradients makes
    them: the slowest sets the rate.
    """
    device = choose_device(rank, config)
    group = create_process_group(rank, config, device)
    seed_generators(config.seed)
    manifest = source.prepare(config, rank)
    per_rank = batch_size.resolve(config, rank, device, group, manifest)
    accumulation = config.gradient_accumulation_steps
    # A loader may log as soon as it is made.
    log = MetricsLog(rank, config, per_rank * rank.world_size * accumulation)
    placement = data.Placement(device, rank.rank, rank.world_size, rank.cpus_shared_by)
    batches = data.load(config, manifest, placement, per_rank)

    clock = StepClock(device)
    agreement = StopAgreement(rank, group)
    facts = rank, config, device, group, batches, per_rank
    images_from = source.describe(config, manifest)
    write_facts(*facts, completed=False, source=images_from)

    step = epoch = 0
    stopped = False
    length = Duration(config, batches.steps_per_epoch)
    if length.opens_window(step, 0):
        log.open_window(0)
    clock.restart()
    while step < length.total_steps and not stopped:
        stream = iter(batches.train_batches(epoch))
        for _ in range(batches.steps_per_epoch):
            clock.begin(step + 1, epoch)
            for _ in range(accumulation):
                rank.beat(step + 1, Phase.DATA)
                clock.ask_for_batch()
                data.next_batch(stream, config, step + 1)
                clock.got_batch()
            rank.beat(step + 1, Phase.COMPUTE)
            if config.emulated_step_seconds:
                time.sleep(config.emulated_step_seconds)
            rank.beat(step + 1, Phase.COLLECTIVE)
            clock.last_bucket_ready()
            if group is not None:
                dist.barrier(group)
            clock.backward_done()
            clock.end()
            step += 1
            finished = clock.finished()
            length.take(finished)
            stopped = agreement.reached(window_steps=length.window_steps)
            opens = length.opens_window(step, agreement.window_steps)
            log.total_steps = length.agreed_steps
            log.steps(finished)
            if opens:
                log.open_window(step)
            if stopped or step >= length.total_steps:
                break
        epoch += 1

    log.steps(clock.finished(wait=True))
    log.window.close()
    agreement.close()
    write_facts(
        *facts,
        completed=not stopped,
        ended_by=None if stopped else length.ended_by,
        source=images_from,
        window=log.window,
    )
    rank.beat(step, Phase.DONE)
    log.close()
    batches.close()
    final_barrier(group)
