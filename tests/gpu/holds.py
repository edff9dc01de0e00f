"""`slot.py holds`: runs here repeat, resume, end and are watched as they should."""

from __future__ import annotations

import os
import shutil
import signal
import textwrap
import time
from collections.abc import Callable
from typing import Any

from checks import (
    NEAR,
    Check,
    Found,
    NotHereError,
    ShortError,
    Slot,
    compare,
    losses,
    require_finished,
)
from nvidia_smi import beside_nvidia_smi
from photographs import photographs
from programs import probed, require_equal_weights

from nbkit import Run
from nbkit.config import LoaderConfig
from nbkit.health import installed
from nbkit.store.record import RunState, read_json

__all__ = ["CHECKS"]

_POLL_SECONDS = 0.05
_FIRST_NEAR = 0.1
"""How far the first losses of two small batches may be apart: they are of different
images, and no update has taken place yet."""
_LEAST_SHARE = 0.4
"""Sizes grow by a half or to twice: less than this, and a larger one would fit."""


def repeats_to_the_bit(slot: Slot) -> Found:
    """Train twice, and once more with a stop on the way."""
    fields = {
        "precision": "fp16",
        "deterministic": True,
        "steps": slot.size.long_steps,
        "checkpoint_period_steps": slot.size.long_steps,
    }
    first, second = slot.train(**fields), slot.train(**fields)
    _require_equal(first, second, "a second run")
    run = slot.start(slot.config(**fields))
    reach(slot, run, 3)
    run.stop()
    if run.state is not RunState.STOPPED:
        message = f"run {run.run_id}, asked to stop at step 3, is {run.state}"
        raise ShortError(message)
    stopped_at = run.metrics()[-1]["step"]
    slot.wait(run.resume(on_owner_exit="stop"))
    require_finished(run)
    _require_equal(first, losses(run), f"the run resumed after step {stopped_at}")
    said = f"{len(first)} losses, twice and resumed after step {stopped_at}, bit-equal"
    return Found(said, {"losses": first, "stopped_at": stopped_at})


def shares_a_gpu(slot: Slot) -> Found:
    """Train two ranks on one GPU; they talk through gloo."""
    alone = _alone(slot)
    config = slot.config(
        precision="fp16",
        gpus=2,
        devices=(slot.gpus[0]["uuid"],),
        oversubscribe=True,
        batch_size_per_gpu=slot.size.half_batch_size,
    )
    run, seen = probed(slot, config, ranks=2, gpus=1)
    found = losses(run)
    used = {device["uuid"] for device in run.worker["devices"]}
    if len(used) != 1 or run.worker["world_size"] != 2:
        message = f"{run.worker['world_size']} ranks on {len(used)} GPUs, not 2 on 1"
        raise ShortError(message)
    hashes = require_equal_weights(seen)
    apart = compare(found[:1], alone[:1], _FIRST_NEAR, "a lone rank")
    said = (
        f"{len(found)} losses finite, equal weights {hashes[0][:12]}, the first loss "
        f"{apart:.2%} from a lone rank's"
    )
    return Found(said, {"losses": found, "weights_sha256": hashes})


def exchanges_over_nccl(slot: Slot) -> Found:
    """Train one rank that exchanges its gradients with itself, over NCCL."""
    alone = _alone(slot)
    config = slot.config(precision="fp16", batch_size_per_gpu=slot.size.half_batch_size)
    run, [seen] = probed(slot, config, "--alone-over-nccl")
    found = losses(run)
    if seen["backend"] != "nccl":
        message = f"gradients went through {seen['backend']}"
        raise ShortError(message)
    apart = compare(found, alone, NEAR, "the rank without an exchange")
    last = run.metrics()[-1]["communication_exposed_seconds"]
    said = (
        f"{len(found)} losses finite, at most {apart:.2%} from those without an "
        f"exchange; that of the last step took {1e3 * last:.2f} ms"
    )
    return Found(said, {"losses": found, "apart": apart})


def _alone(slot: Slot) -> list[float]:
    """Return the losses of one rank that exchanges nothing, trained once."""
    if "alone" not in slot.kept:
        slot.kept["alone"] = slot.train(
            precision="fp16", batch_size_per_gpu=slot.size.half_batch_size
        )
    return slot.kept["alone"]


def reads_in_forked_workers(slot: Slot) -> Found:
    """Train with image files that loading processes decode, and without them."""
    for package in ("nvidia-nvimgcodec-cu12", "nvidia-nvimgcodec-cu13"):
        if installed(package) and installed("cykooz.resizer"):
            break
    else:
        message = "nvidia-nvimgcodec-cu12 (or cu13) with cykooz.resizer not installed"
        raise NotHereError(message)
    data = photographs(slot.folder / "photographs")
    fields = {"data": str(data), "batch_size_per_gpu": slot.size.half_batch_size}
    run = slot.finish(slot.config(**fields, loader_config=LoaderConfig(num_workers=2)))
    found = losses(run)
    alone = slot.train(**fields, loader_config=LoaderConfig(num_workers=0))
    decoder = run.worker["data"]["decoder"]
    if decoder != "nvImageCodec" or abs(found[0] - alone[0]) / alone[0] > 0.01:
        message = (
            f"decoded by {decoder}, first loss {found[0]:.4f} in 2 loading processes "
            f"and {alone[0]:.4f} in none"
        )
        raise ShortError(message)
    said = f"{len(found)} losses finite, decoded by {decoder} in 2 loading processes"
    return Found(said, {"losses": found, "losses_without_processes": alone})


def runs_out_of_memory(slot: Slot) -> Found:
    """Train with a batch that no GPU holds."""
    config = slot.config(
        precision="fp32", batch_size_per_gpu=slot.size.too_large_batch_size
    )
    run = slot.wait(slot.start(config))
    cause = _cause(run, RunState.FAILED, "out_of_memory")
    said = textwrap.shorten(cause["message"], 120)
    return Found(f"failed, {cause['kind']}: {said}")


def survives_sigkill(slot: Slot) -> Found:
    """Kill the rank behind a checkpoint, and resume."""
    run = slot.start(_long(slot))
    reach(slot, run, slot.size.checkpoint_period_steps + 1)
    os.kill(_pid(run), signal.SIGKILL)
    slot.wait(run)
    cause = _cause(run, RunState.FAILED, "signal")
    if cause["signal"] != "SIGKILL" or cause["rank"] != 0:
        message = f"rank {cause['rank']} {cause['signal']}: {cause['message']}"
        raise ShortError(message)
    done = run.metrics()[-1]["step"]
    slot.wait(run.resume(on_owner_exit="stop"))
    require_finished(run)
    steps = [line["step"] for line in run.metrics()]
    if steps != list(range(1, slot.size.long_steps + 1)):
        message = f"resumed, its record has steps {steps[0]} to {steps[-1]}, not all"
        raise ShortError(message)
    losses(run)
    return Found(
        f"failed at step {done}: {cause['message']}; resumed to step {steps[-1]}"
    )


def ends_at_sigterm(slot: Slot) -> Found:
    """Ask the supervisor to end, as systemd does, and resume."""
    run = slot.start(_long(slot))
    reach(slot, run, 3)
    os.kill(run.record["supervisor"]["pid"], signal.SIGTERM)
    slot.wait(run)
    cause = _cause(run, RunState.STOPPED, "stopped")
    if "SIGTERM" not in cause["by"] or cause["forced"] or not run.paths.has_checkpoint:
        kept = "a" if run.paths.has_checkpoint else "no"
        message = f"{cause['message']}, {kept} checkpoint"
        raise ShortError(message)
    stopped_at = run.metrics()[-1]["step"]
    slot.wait(run.resume(on_owner_exit="stop"))
    require_finished(run)
    losses(run)
    return Found(f"{cause['message']} (step {stopped_at}); resumed to the end")


def agrees_with_nvidia_smi(slot: Slot) -> Found:
    """Read the GPU under load, beside nvidia-smi."""
    if shutil.which("nvidia-smi") is None:
        message = "nvidia-smi not installed"
        raise NotHereError(message)
    run = slot.start(slot.config(steps=100_000, images_per_epoch=10**9))
    try:
        reach(slot, run, 20)
        said, numbers, wrong = beside_nvidia_smi(slot.gpus[0]["uuid"], _pid(run))
    finally:
        run.stop()
    if wrong:
        raise ShortError("; ".join(wrong))
    return Found(said, numbers)


def probes_the_largest_batch(**fields: Any) -> Callable[[Slot], Found]:
    """Return a check that trains with the largest batch."""

    def work(slot: Slot) -> Found:
        config = slot.config(
            batch_size_per_gpu="max", steps=6, warmup_steps=2, **fields
        )
        run = slot.finish(config)
        losses(run)
        batch, peak = run.summary.batch_size_per_gpu, run.summary.peak_memory_bytes
        total = run.worker["devices"][0]["memory_total_bytes"]
        share = (peak or 0) / total
        said = f"batch {batch}, at most {share:.0%} of {total / 2**30:.1f} GiB in use"
        from nbkit.worker.batch_size import LIMIT  # it needs torch

        if not batch or (batch < LIMIT and share < _LEAST_SHARE):
            raise ShortError(said)
        return Found(said, {"batch_size_per_gpu": batch, "memory_share": share})

    return work


def reach(slot: Slot, run: Run, step: int) -> None:
    """Wait until a run has recorded a step."""
    while not (steps := run.metrics()) or steps[-1]["step"] < step:
        if run.state.is_final:
            cause = (run.cause or {}).get("message")
            message = f"run {run.run_id} is {run.state} before step {step}: {cause}"
            raise ShortError(message)
        if time.monotonic() > slot.until:
            run.stop(grace_seconds=0)
            message = f"run {run.run_id} has not reached step {step} in time"
            raise ShortError(message)
        time.sleep(_POLL_SECONDS)


def _long(slot: Slot) -> Any:
    return slot.config(
        precision="fp16",
        steps=slot.size.long_steps,
        checkpoint_period_steps=slot.size.checkpoint_period_steps,
    )


def _pid(run: Run) -> int:
    """Return the pid of rank 0 of the newest attempt."""
    process = read_json(run.paths.rank(run.attempt, 0).process)
    assert process is not None
    return process["pid"]


def _cause(run: Run, state: RunState, kind: str) -> dict[str, Any]:
    """Return a run's cause; another state or kind falls short."""
    cause = run.cause or {}
    if run.state is not state or cause.get("kind") != kind:
        message = (
            f"run {run.run_id} is {run.state}, {cause.get('kind')}: "
            f"{cause.get('message')}; {state}, {kind} was expected"
        )
        raise ShortError(message)
    return cause


def _require_equal(first: list[float], second: list[float], what: str) -> None:
    if first != second:
        pairs = enumerate(zip(first, second, strict=False), start=1)
        step = next((n for n, (a, b) in pairs if a != b), None)
        where = f"differs at step {step}" if step else f"has {len(second)} steps"
        message = f"{what} {where} (of {len(first)})"
        raise ShortError(message)


_RECORDED = "state and cause in the record, then resumed to the end"
_LARGEST = "finished, every loss finite, 40 % of the memory or more"

CHECKS = (
    Check(
        "deterministic, twice and resumed",
        "a run can be repeated to the bit",
        "every loss equal to the bit",
        repeats_to_the_bit,
        seconds=180,
    ),
    Check(
        "two ranks on one GPU, gloo",
        "ranks can share a GPU",
        "two ranks on one GPU with equal weights, first loss within 10 % of one rank's",
        shares_a_gpu,
    ),
    Check(
        "one rank over NCCL",
        "NCCL works here with DDP and the hook",
        "every loss finite and within 3 % of that without an exchange",
        exchanges_over_nccl,
    ),
    Check(
        "torch loader in forked workers",
        "nvImageCodec decodes beside CUDA",
        "every loss finite, first loss within 1 % of that without workers",
        reads_in_forked_workers,
        images=True,
    ),
    Check(
        "out of memory",
        "what the record says",
        "failed, out_of_memory",
        runs_out_of_memory,
    ),
    Check("SIGKILL", "a killed rank is named", _RECORDED, survives_sigkill),
    Check("SIGTERM", "a stop keeps a checkpoint", _RECORDED, ends_at_sigterm),
    Check(
        "telemetry beside nvidia-smi",
        "what is shown is what the driver says",
        "memory within 2 %, clock and power within 15 %, utilization within 25 points; "
        "the rank among the processes",
        agrees_with_nvidia_smi,
    ),
    Check(
        *("largest batch, eager", "max fits", _LARGEST),
        probes_the_largest_batch(),
        seconds=150,
    ),
    Check(
        *("largest batch, CUDA graphs", "max fits with graphs' pools", _LARGEST),
        probes_the_largest_batch(cuda_graphs=True),
        seconds=150,
    ),
)
