"""`slot.py right`: trainings on this GPU compute what they should."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable
from typing import Any

from checks import NEAR, Check, Found, NotHereError, ShortError, Slot, compare, losses
from photographs import photographs, require_dali
from programs import plain_loops, probed

from nbkit import Run
from nbkit.cli.doctor import doctor
from nbkit.config import ExperimentConfig

__all__ = ["CHECKS"]

FORMATS_NEAR = 0.05
"""How far losses of two number formats may be apart."""
CLOCKS_NEAR = 0.02

_ASKED = ("This machine", "Training")
"""What the slot needs of `nbkit doctor`; its store and its runs show themselves."""
_UNUSED = ("TensorBoard",)
_FEW = 8
"""Images of a batch, so that the steps of a check are within an epoch."""


def ask_doctor(slot: Slot) -> Found:
    """Ask nbkit what works on this machine."""
    told = [one for part, one in doctor(slot.seconds_left) if part in _ASKED]
    found = [one for one in told if one.subject not in _UNUSED]
    failed = [one for one in found if one.severity == "error"]
    if failed:
        raise ShortError("; ".join(f"{one.subject}: {one.evidence}" for one in failed))
    warned = [
        f"{one.subject}: {one.evidence}" for one in found if one.severity == "warning"
    ]
    said = f"{len(found)} findings, {len(warned)} warnings"
    return Found("; ".join([said, *warned]), {"warnings": warned})


def fp16_skips_updates(slot: Slot) -> Found:
    """Train in fp16 with overflowing gradients, in memory that holds NaN."""
    config = slot.config(precision="fp16", steps=slot.size.fp16_steps)
    plain = plain_loops(slot, {"fp16": config})["fp16"]
    scale = plain["first_scale"]
    if not plain["skipped"]:
        message = f"no loss scale up to {scale:g} makes a gradient overflow"
        raise ShortError(message)
    run, [seen] = probed(slot, config, "--poison", f"--start-scale={scale}")
    steps = run.metrics()
    skipped = _skipped(run)
    numbers = {
        "first_scale": scale,
        "skipped": skipped,
        "plain_skipped": plain["skipped"],
        "losses": [line["loss"] for line in steps],
        "plain_losses": plain["losses"],
    }
    if seen["state_not_zero"]:
        names = ", ".join(seen["state_not_zero"])
        lost = next((one["step"] for one in steps if one["loss"] is None), None)
        message = (
            f"the fused optimizer's {names} is not zero after a skipped first update: "
            "it was never initialised (nbkit/worker/optimizers.py)"
        )
        if lost:
            message += f"; loss not finite at step {lost}"
        raise ShortError(message)
    if not skipped:
        message = f"no update skipped, the plain loop skipped steps {plain['skipped']}"
        raise ShortError(message)
    apart = compare_with_plain(losses(run), skipped, plain)
    said = (
        f"{len(steps)} losses finite, updates skipped at steps "
        f"{', '.join(map(str, skipped))} (plain loop: "
        f"{', '.join(map(str, plain['skipped']))}) from scale {scale:g}; at most "
        f"{apart:.2%} apart"
    )
    return Found(said, {**numbers, "apart": apart})


def trains_in_fp32(slot: Slot) -> Found:
    """Train in fp32, with which other formats are compared."""
    found = _kept(slot, "fp32", precision="fp32")
    return Found(_range(found), {"losses": found})


def trains_in_tf32(slot: Slot) -> Found:
    """Train in TF32, where the GPU has it."""
    try:
        found = slot.train(precision="tf32")
    except ShortError as error:
        if "compute capability 8.0" in str(error):
            raise NotHereError(str(error)) from None
        raise
    return _near_fp32(slot, found)


def trains_in_bf16(slot: Slot) -> Found:
    """Train in bf16, where the GPU has it."""
    slot.require_bf16()
    return trains_like_a_plain_loop("bf16")(slot)


def trains_like_eager(slot: Slot, **fields: Any) -> Found:
    """Train in another way of the same computation."""
    wanted = _eager(slot)
    found = slot.train(**fields)
    apart = compare(found, wanted, NEAR, "the eager run")
    said = f"{_range(found)}; at most {apart:.2%} from the eager run's"
    return Found(said, {"losses": found, "apart": apart})


def replays_graphs(slot: Slot) -> Found:
    """Train with CUDA graphs."""
    return trains_like_eager(slot, cuda_graphs=True)


def compiles(slot: Slot) -> Found:
    """Train with torch.compile; its losses have to be near those of eager."""
    _eager(slot)
    began = time.monotonic()
    found = trains_like_eager(slot, compile=True)
    seconds = time.monotonic() - began
    return Found(f"{found.text}; {seconds:.0f} s with compiling", found.numbers)


def trains_like_a_plain_loop(name: str) -> Callable[[Slot], Found]:
    """Return a check that compares a training with that loop, by its name."""

    def work(slot: Slot) -> Found:
        configs = _beside_plain_loops(slot)
        if "plain" not in slot.kept:
            slot.kept["plain"] = plain_loops(slot, configs)
        config, plain = configs[name], slot.kept["plain"][name]
        scaled = config.precision == "fp16"
        start = [f"--start-scale={plain['first_scale']}"] if scaled else []
        run, _ = probed(slot, config, *start)
        found = losses(run)
        apart = compare_with_plain(found, _skipped(run), plain)
        said = f"{_range(found)}; at most {apart:.2%} from the plain loop's"
        return Found(said, {"losses": found, "plain": plain, "apart": apart})

    return work


def _beside_plain_loops(slot: Slot) -> dict[str, ExperimentConfig]:
    half = slot.size.batch_size // 2
    configs = {
        "lars": slot.config(precision="fp16", optimizer="lars"),
        # What is divided by its own size shows every rounding: in 16 bits too much.
        "adamw": slot.config(
            precision="fp32",
            optimizer="adamw",
            learning_rate=1e-4,
            batch_size_per_gpu=half,
        ),
        "accumulation": slot.config(
            batch_size_per_gpu=half, gradient_accumulation_steps=2
        ),
        "bf16": slot.config(precision="bf16"),
    }
    if slot.machine["precision"] != "bf16":
        del configs["bf16"]
    return configs


def _kept(slot: Slot, name: str, **fields: Any) -> list[float]:
    """Return the losses of a training that several checks need, trained once."""
    if name not in slot.kept:
        slot.kept[name] = slot.train(**fields)
    return slot.kept[name]


def _eager(slot: Slot) -> list[float]:
    return _kept(slot, "eager")


def _near_fp32(slot: Slot, found: list[float]) -> Found:
    wanted = _kept(slot, "fp32", precision="fp32")
    apart = compare(found, wanted, FORMATS_NEAR, "fp32")
    said = f"{_range(found)}; at most {apart:.2%} from fp32's"
    return Found(said, {"losses": found, "apart": apart})


def profiles(slot: Slot) -> Found:
    """Trace three steps; the GPU's kernels have to be in the trace."""
    run = slot.finish(slot.config(profile=True, warmup_steps=3))
    losses(run)
    if run.profile is None or not run.paths.operators.exists():
        message = f"run {run.run_id} kept no trace"
        raise ShortError(message)
    with gzip.open(run.profile, "rb") as file:
        events = json.load(file)["traceEvents"]
    kernels = sum(event.get("cat") == "kernel" for event in events)
    if not kernels:
        message = f"{len(events)} events traced, no kernel: CUPTI shows none here"
        # Every GPU has them; what stands in for one in small may not.
        raise ShortError(message) if slot.size.counts else NotHereError(message)
    return Found(f"{kernels} kernels traced in 3 steps", {"kernels": kernels})


def evaluates(slot: Slot) -> Found:
    """Train one epoch of 12 steps with checkpoints on the way, and evaluate it."""
    config = slot.config(
        epochs=1,
        images_per_epoch=12 * slot.size.batch_size,
        evaluation_period_epochs=1,
        checkpoint_period_steps=6,
        checkpoint_at_end=True,
    )
    run = slot.finish(config)
    losses(run)
    kept = sorted(file.parent.name for file in run.paths.checkpoints.glob("*/*.json"))
    wanted = ["step_00000006", "step_00000012"]
    accuracy = run.summary.top1_accuracy
    if kept != wanted or accuracy is None:
        message = f"checkpoints {kept}, not {wanted}; accuracy {accuracy}"
        raise ShortError(message)
    return Found(f"accuracy {accuracy:.1%}, checkpoints at steps 6 and 12")


def waits_for_nothing(**fields: Any) -> Callable[[Slot], Found]:
    """Return a check that makes every wait for the device an error."""

    def work(slot: Slot) -> Found:
        config = _unwatched(slot, **fields)
        run, _ = probed(slot, config, "--no-waits")
        losses(run)
        return Found(f"steps 5 to {config.steps} never waited for the device")

    return work


def feeds_without_waiting(slot: Slot) -> Found:
    """Train with images that DALI decodes; one epoch has them all."""
    require_dali()
    data = str(photographs(slot.folder / "photographs"))
    fields = {"data": data, "loader": "dali", "batch_size_per_gpu": _FEW}
    return waits_for_nothing(**fields)(slot)


def times_what_passes(slot: Slot) -> Found:
    """Compare the sum of the steps' times with the clock on the wall."""
    config = _unwatched(slot, precision="fp16")
    run, [seen] = probed(slot, config, "--no-waits", "--wall-clock")
    losses(run)
    warmup_steps = config.num_warmup_steps
    measured = [line for line in run.metrics() if line["step"] > warmup_steps]
    steps = sum(line["step_time_seconds"] for line in measured)
    wall = seen["wall_seconds"]
    apart = abs(steps - wall) / wall
    numbers = {"steps_seconds": steps, "wall_seconds": wall, "apart": apart}
    said = (
        f"steps 5 to {config.steps} never waited for the device; they take "
        f"{steps:.3f} s, the clock says {wall:.3f} s ({apart:.2%} apart)"
    )
    if apart > CLOCKS_NEAR:
        raise ShortError(said)
    return Found(said, numbers)


def _unwatched(slot: Slot, **fields: Any) -> ExperimentConfig:
    from nbkit.worker.finiteness import PERIOD_STEPS  # it needs torch

    # One look at the weights is among these steps.
    return slot.config(steps=PERIOD_STEPS + 3, **fields)


def _skipped(run: Run) -> list[int]:
    return [line["step"] for line in run.metrics() if line.get("update_skipped")]


def compare_with_plain(
    found: list[float], skipped: list[int], plain: dict[str, Any]
) -> float:
    """Return how far losses are from those of the plain loop; too far falls short.

    A largest gradient at the limit of fp16 overflows in one of them alone, by rounding.
    One skipped update more or less moves the others by a step: losses are then compared
    after as many updates.
    """
    wanted, others = plain["losses"], plain["skipped"]
    if skipped == others:
        return compare(found, wanted, NEAR, "the plain loop")
    if abs(len(skipped) - len(others)) > 1:
        message = f"updates skipped at steps {skipped}, the plain loop's at {others}"
        raise ShortError(message)
    found, wanted = _by_updates(found, skipped), _by_updates(wanted, others)
    count = min(len(found), len(wanted))
    what = "the plain loop after as many updates"
    return compare(found[:count], wanted[:count], NEAR, what)


def _by_updates(found: list[float], skipped: list[int]) -> list[float]:
    """Return the first loss after 0, 1, 2 ... updates."""
    return [loss for step, loss in enumerate(found, start=1) if step - 1 not in skipped]


def _range(found: list[float]) -> str:
    return f"{len(found)} losses finite, {found[0]:.4f} to {found[-1]:.4f}"


_NEAR_FP32 = "finished, every loss finite and within 5 % of fp32's"
_LIKE_EAGER = "every loss within 3 % of the eager run's"
_LIKE_PLAIN = "every loss finite and within 3 % of a plain loop's"
_NO_WAIT = "no wait in any measured step"

CHECKS = (
    Check("doctor", "the machine is ready", "no error", ask_doctor),
    Check(
        "fp16 against an unfused loop",
        "fused SGD bears skipped updates, whatever its memory held",
        "an update skipped, state then zero, every loss finite and within 3 %",
        fp16_skips_updates,
        seconds=150,
    ),
    Check("fp32", "trains in fp32", "finished, every loss finite", trains_in_fp32),
    # Nobody knows how long compiling takes; what comes after it is short.
    Check(
        *("compile", "trains with torch.compile", _LIKE_EAGER),
        compiles,
        seconds=180,
    ),
    Check("tf32", "trains in TF32", _NEAR_FP32, trains_in_tf32),
    Check("bf16", "trains in bf16", _LIKE_PLAIN, trains_in_bf16, seconds=180),
    Check(
        *("fp16 with LARS", "trains with LARS", _LIKE_PLAIN),
        trains_like_a_plain_loop("lars"),
    ),
    Check(
        *("AdamW", "trains with fused AdamW", _LIKE_PLAIN),
        trains_like_a_plain_loop("adamw"),
    ),
    Check(
        *("accumulation", "adds gradients up", _LIKE_PLAIN),
        trains_like_a_plain_loop("accumulation"),
    ),
    Check("profile", "traces steps", "a trace with kernels", profiles),
    Check(
        *("evaluation with checkpoint", "evaluates and saves"),
        "accuracy, checkpoints at steps 6 and 12",
        evaluates,
    ),
    Check(
        *("CUDA graphs", "replays what was captured", _LIKE_EAGER),
        replays_graphs,
    ),
    Check(
        "no host wait, step times",
        "steps are only issued, and CUDA events tell the time that passes",
        f"{_NO_WAIT}, their sum within 2 % of the wall clock",
        times_what_passes,
    ),
    Check(
        *("no host wait, fp16 with LARS", "so too with LARS, accumulating", _NO_WAIT),
        waits_for_nothing(
            precision="fp16", optimizer="lars", gradient_accumulation_steps=2
        ),
    ),
    Check(
        *("no host wait, DALI", "so too with images that DALI decodes", _NO_WAIT),
        feeds_without_waiting,
        images=True,
    ),
)
