"""`slot.py node`: what takes two GPUs of one machine or more."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from checks import (
    Check,
    Found,
    NotHereError,
    ShortError,
    Slot,
    losses,
    require_finished,
)
from holds import reach
from programs import probed, require_equal_weights

from nbkit.config import AllReduceConfig
from nbkit.statistics import allreduce_timing
from nbkit.store.record import RunState, read_json

__all__ = ["CHECKS"]

_ROOT = Path(__file__).parents[2]
_SWITCHES = {"NCCL_NVLS_ENABLE": "1", "NCCL_ALGO": "Ring,NVLS"}
"""Sums in switches are allowed; nbkit would ask for rings alone."""


def reduces(slot: Slot) -> Found:
    """Measure all-reduces over all GPUs, by the size of the message."""
    largest = 2**30 if slot.size.counts else 2**20
    config = slot.config(
        task="allreduce",
        gpus=len(slot.gpus),
        allreduce=AllReduceConfig(bytes_max=largest),
    )
    run = slot.finish(config)
    timings = [allreduce_timing(row) for row in run.metrics("allreduce")]
    if not timings:
        message = f"run {run.run_id} measured no all-reduce"
        raise ShortError(message)
    rows = [
        {
            "message_bytes": one.message_bytes,
            "seconds": one.time_seconds,
            "bus_bytes_per_second": one.bus_bandwidth_bytes_per_second,
        }
        for one in timings
    ]
    words = [
        f"{_bytes(row['message_bytes'])} {row['bus_bytes_per_second'] / 1e9:.1f} GB/s"
        for row in rows
        if row["message_bytes"] >= 2**20
    ]
    return Found(f"bus bandwidth: {', '.join(words)}", {"by_size": rows})


def weights_stay_equal(precision: str) -> Callable[[Slot], Found]:
    """Return a check that every rank has the same weights at the end."""

    def work(slot: Slot) -> Found:
        if precision == "bf16":
            slot.require_bf16()
        ranks = len(slot.gpus)
        config = slot.config(
            precision=precision, gpus=ranks, steps=slot.size.fp16_steps
        )
        run, seen = probed(slot, config, ranks=ranks)
        losses(run)
        hashes = require_equal_weights(seen)
        skipped = run.summary.updates_skipped
        said = f"{ranks} ranks with weights {hashes[0][:12]} after {config.steps} steps"
        if skipped is not None:
            said += f", {skipped} updates skipped"
        return Found(said, {"weights_sha256": hashes, "updates_skipped": skipped})

    return work


def repeats_without_switches(slot: Slot) -> Found:
    """Train twice over all GPUs; nbkit keeps NVLink SHARP out."""
    config = _deterministic(slot)
    first = losses(slot.finish(config))
    second = losses(slot.finish(config))
    if first != second:
        message = "two runs with deterministic=True have different losses"
        raise ShortError(message)
    return Found(f"{len(first)} losses bit-equal with NVLS off", {"losses": first})


def repeats_with_switches(slot: Slot) -> Found:
    """Train twice with NVLink SHARP, which nbkit refuses: does it matter here?"""
    config = _deterministic(slot)
    found = [
        probed(
            *(slot, config, "--with-switches"),
            ranks=len(slot.gpus),
            environment=_SWITCHES,
        )
        for _ in range(2)
    ]
    first, second = (losses(run) for run, _ in found)
    hashes = {seen[0]["weights_sha256"] for _, seen in found}
    equal = first == second and len(hashes) == 1
    word = "bit-equal here too" if equal else "NOT bit-equal, as nbkit expects"
    return Found(f"with NVLS allowed, two runs are {word}", {"equal": equal})


def survives_a_lost_rank(slot: Slot) -> Found:
    """Kill the last rank behind a checkpoint, and resume all of them."""
    last = len(slot.gpus) - 1
    run = slot.start(
        slot.config(
            gpus=len(slot.gpus),
            steps=slot.size.long_steps,
            checkpoint_period_steps=slot.size.checkpoint_period_steps,
        )
    )
    reach(slot, run, slot.size.checkpoint_period_steps + 1)
    process = read_json(run.paths.rank(run.attempt, last).process)
    assert process is not None
    os.kill(process["pid"], signal.SIGKILL)
    slot.wait(run)
    cause = run.cause or {}
    if run.state is not RunState.FAILED or cause.get("rank") != last:
        message = f"run {run.run_id} is {run.state}: {cause.get('message')}"
        raise ShortError(message)
    slot.wait(run.resume(on_owner_exit="stop"))
    require_finished(run)
    steps = [line["step"] for line in run.metrics()]
    losses(run)
    if steps != list(range(1, slot.size.long_steps + 1)):
        message = f"resumed, its record has steps {steps[0]} to {steps[-1]}, not all"
        raise ShortError(message)
    return Found(f"rank {last}: {cause['message']}; resumed to step {steps[-1]}")


def makes_a_run(slot: Slot) -> Found:
    """Call `make run` in the checkout, and read its answer."""
    if not (_ROOT / "Makefile").exists():
        message = "no checkout here, so no make run"
        raise NotHereError(message)
    if not slot.size.counts:
        message = "make run has a size of its own: only with --size full"
        raise NotHereError(message)
    try:
        done = subprocess.run(
            ["make", "run"],
            cwd=_ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=slot.seconds_left,
        )
    except subprocess.TimeoutExpired as error:
        message = f"make run not over after {error.timeout:.0f} s"
        raise ShortError(message) from None
    said = [line for line in done.stdout.splitlines() if line.strip()]
    if done.returncode:
        last = (done.stderr.strip().splitlines() or said or ["no word"])[-1]
        message = f"make run: exit code {done.returncode}: {last}"
        raise ShortError(message)
    return Found("; ".join(said[-2:]), {"said": said[-20:]})


def _deterministic(slot: Slot) -> Any:
    return slot.config(
        precision="fp16",
        deterministic=True,
        gpus=len(slot.gpus),
        steps=slot.size.fp16_steps,
    )


def _bytes(count: int) -> str:
    return f"{count / 2**20:.0f} MiB"


CHECKS = (
    Check(
        *("all-reduce", "the bandwidth between the GPUs", "finished, by size"),
        reduces,
        gpus=2,
    ),
    *(
        Check(
            f"{precision} on all ranks",
            "replicas stay equal, whatever is skipped",
            "every loss finite, equal hashes of weights",
            weights_stay_equal(precision),
            gpus=2,
        )
        for precision in ("bf16", "fp16")
    ),
    Check(
        "deterministic, NVLS off",
        "a run of all ranks can be repeated",
        "every loss equal to the bit",
        repeats_without_switches,
        gpus=2,
    ),
    Check(
        "deterministic, NVLS on",
        "whether switches add in one order",
        "finished; equal or not is the finding",
        repeats_with_switches,
        gpus=2,
    ),
    Check(
        "a killed rank",
        "the rank is named, and all resume",
        "failed by that rank, then resumed to the end",
        survives_a_lost_rank,
        gpus=2,
    ),
    Check(
        *("make run", "the main job", "exit code 0 and an answer"),
        makes_a_run,
        gpus=2,
        seconds=300,
    ),
)
