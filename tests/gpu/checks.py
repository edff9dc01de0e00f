"""The checks of a slot on a GPU machine: what one is, and how they are run.

A check falls short, cannot run, or needs what the machine does not have; each is told
apart, and none hides the others. What is known is written after every check.
"""

from __future__ import annotations

import textwrap
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from nbkit import ExperimentConfig, Run, launch
from nbkit.store.record import RunState, utc_now, write_json

__all__ = [
    "NEAR",
    "SIZES",
    "Check",
    "Found",
    "NotHereError",
    "ShortError",
    "Size",
    "Slot",
    "State",
    "compare",
    "losses",
    "run_checks",
]


NEAR = 0.03
"""How far two losses of the same step may be apart: they add in another order."""


class ShortError(Exception):
    """What was found is not what has to be."""


class NotHereError(Exception):
    """The machine does not have what a check needs, such as a second GPU."""


class State(StrEnum):
    """What became of a check."""

    PASSED = "passed"
    SHORT = "fell short"
    NOT_RUN = "not run"
    NOT_HERE = "not on this machine"


@dataclass(frozen=True)
class Size:
    """How large the trainings of the checks are."""

    name: str
    model: str
    image_size: int
    batch_size: int
    half_batch_size: int
    """At which the host has to keep up with a fast GPU."""
    fp16_steps: int
    long_steps: int
    """Of a run that is stopped or killed on its way."""
    checkpoint_period_steps: int
    """Of the same run."""
    fast_steps: int
    inference_batch_sizes: tuple[int, ...]
    too_large_batch_size: int
    """More than any GPU holds in fp32. At full size no tensor has 2**31 elements:
    beyond that some kernels end otherwise than by memory."""
    seconds: float
    """For all checks of one command."""

    @property
    def counts(self) -> bool:
        """Whether what is found at this size is a result."""
        return self.name == "full"

    @property
    def words(self) -> str:
        """The size in a few words."""
        return (
            f"{self.name} size: {self.model}, {self.image_size} px, batch "
            f"{self.batch_size}"
        )


SIZES = {
    "full": Size(
        name="full",
        model="resnet50",
        image_size=224,
        batch_size=256,
        half_batch_size=64,
        fp16_steps=30,
        long_steps=60,
        checkpoint_period_steps=10,
        fast_steps=120,
        inference_batch_sizes=(1, 32, 256),
        too_large_batch_size=2048,
        seconds=480,
    ),
    "small": Size(
        name="small",
        model="resnet18",
        image_size=64,
        batch_size=8,
        half_batch_size=4,
        fp16_steps=12,
        long_steps=24,
        checkpoint_period_steps=4,
        fast_steps=12,
        inference_batch_sizes=(1, 4, 8),
        too_large_batch_size=65_536,
        seconds=900,
    ),
}


@dataclass(frozen=True)
class Found:
    """What a check found where it did not fall short."""

    text: str
    numbers: dict[str, Any] = field(default_factory=dict)


class Slot:
    """What every check needs: the size, the machine, and runs.

    Parameters
    ----------
    size
        Of the trainings.
    folder
        Where everything is written.
    machine
        GPUs, driver, Python, torch: what `environment.require` returned.
    """

    def __init__(self, size: Size, folder: Path, machine: dict[str, Any]) -> None:
        self.size = size
        self.folder = folder
        self.machine = machine
        self.kept: dict[str, Any] = {}
        """What a check leaves for the ones after it."""
        self.until = time.monotonic() + size.seconds
        """When the check that is under way has to be over."""

    @property
    def gpus(self) -> list[dict[str, Any]]:
        """Name and UUID of every GPU."""
        return self.machine["gpus"]

    @property
    def seconds_left(self) -> float:
        """For the check that is under way."""
        return max(1.0, self.until - time.monotonic())

    def config(self, **changes: Any) -> ExperimentConfig:
        """Return a training of 12 steps on one GPU, with some fields changed.

        It is in bf16, or in fp16 on a GPU without it. The learning rate is low: two
        trainings that round differently stay together.
        """
        fields: dict[str, Any] = {
            "model": self.size.model,
            "image_size": self.size.image_size,
            "batch_size_per_gpu": self.size.batch_size,
            "device": "cuda",
            "precision": self.machine["precision"],
            "learning_rate": 0.01,
            "steps": 12,
            "warmup_steps": 4,
            "tensorboard": False,
        }
        if "epochs" in changes:
            del fields["steps"]
        return ExperimentConfig(**{**fields, **changes})

    def start(self, config: ExperimentConfig) -> Run:
        """Launch a run that ends with this process."""
        return launch(config, on_owner_exit="stop", tags={"slot": self.size.name})

    def wait(self, run: Run) -> Run:
        """Wait for a run's end, for as long as the check has time."""
        try:
            return run.wait(self.seconds_left, raise_on_failure=False)
        except TimeoutError as error:
            run.stop(grace_seconds=0)
            raise ShortError(str(error)) from None

    def finish(self, config: ExperimentConfig) -> Run:
        """Run to the end; a run that does not finish falls short."""
        run = self.wait(self.start(config))
        require_finished(run)
        return run

    def require_bf16(self) -> None:
        """Raise where the GPU has no bf16."""
        if self.machine["precision"] != "bf16":
            message = f"{self.gpus[0]['name']} has no bf16 (compute capability below 8)"
            raise NotHereError(message)

    def train(self, **changes: Any) -> list[float]:
        """Train to the end, as `config` says; return the loss of every step."""
        return losses(self.finish(self.config(**changes)))


def require_finished(run: Run) -> None:
    """Raise unless a run has finished."""
    if run.state is not RunState.FINISHED:
        said = textwrap.shorten(str((run.cause or {}).get("message")), 300)
        message = f"run {run.run_id} is {run.state}: {said}"
        raise ShortError(message)


def losses(run: Run) -> list[float]:
    """Return the loss of every step; one that is not finite falls short."""
    found = [(line["step"], line["loss"]) for line in run.metrics()]
    bad = next((step for step, loss in found if loss is None), None)
    if bad is not None or not found:
        where = f"loss not finite at step {bad} of {len(found)}" if bad else "no step"
        message = f"{where}; run {run.run_id}"
        raise ShortError(message)
    if run.worker.get("weights_finite") is False:
        message = f"a weight is not finite at the end of run {run.run_id}"
        raise ShortError(message)
    return [loss for _, loss in found]


def compare(found: list[float], wanted: list[float], near: float, what: str) -> float:
    """Return how far losses are apart, as a part; too far falls short.

    Of a loss below 1 it is the part of 1: what is nearly learnt has hardly a loss, and
    rounding stays as it was.
    """
    if len(found) != len(wanted):
        message = f"{len(found)} losses, {len(wanted)} of {what}"
        raise ShortError(message)
    apart = [
        abs(one - other) / max(1.0, abs(other))
        for one, other in zip(found, wanted, strict=True)
    ]
    worst = max(range(len(apart)), key=apart.__getitem__)
    if not apart[worst] <= near:
        message = (
            f"loss of step {worst + 1} is {found[worst]:.4f}, that of {what} "
            f"{wanted[worst]:.4f}: {apart[worst]:.1%} apart, allowed {near:.0%}"
        )
        raise ShortError(message)
    return apart[worst]


@dataclass(frozen=True)
class Check:
    """One thing that has to hold on a GPU."""

    name: str
    proves: str
    """What is known once it has passed."""
    limit: str
    """By what it is judged."""
    work: Callable[[Slot], Found]
    """Returns what it found, or raises `ShortError` or `NotHereError`."""
    gpus: int = 1
    """How many it needs."""
    seconds: float = 120
    """It may take so long at full size, and three times as long at another."""
    images: bool = False
    """Whether it reads photographs, which are drawn before the clock starts."""


def run_checks(
    command: str,
    checks: Sequence[Check],
    slot: Slot,
    say: Callable[[dict[str, Any]], object] = lambda row: None,
    draw: Callable[[], object] = lambda: None,
) -> list[dict[str, Any]]:
    """Run every check; return what became of each.

    After each of them ``<folder>/<command>.json`` is written anew. Whatever a check
    raises, the next one runs; those for which no time is left are not run.

    Parameters
    ----------
    say
        Called with each row as soon as it is there.
    draw
        Draws the images, if a check reads any.
    """
    if any(check.images for check in checks):
        draw()
    end = time.monotonic() + slot.size.seconds
    rows: list[dict[str, Any]] = []
    for check in checks:
        rows.append(_row(check, slot, end))
        say(rows[-1])
        write_json(
            slot.folder / f"{command}.json",
            {
                "command": command,
                "size": slot.size.name,
                "counts_as_result": slot.size.counts,
                "written": utc_now(),
                "machine": slot.machine,
                "complete": len(rows) == len(checks),
                "checks": rows,
            },
        )
    return rows


def _row(check: Check, slot: Slot, end: float) -> dict[str, Any]:
    began = time.monotonic()
    factor = 1 if slot.size.counts else 3
    slot.until = min(end, began + factor * check.seconds)
    state, found = _outcome(check, slot, left=end - began)
    return {
        "name": check.name,
        "state": state,
        "found": found.text,
        "numbers": found.numbers,
        "proves": check.proves,
        "limit": check.limit,
        "seconds": round(time.monotonic() - began, 1),
    }


def _outcome(check: Check, slot: Slot, left: float) -> tuple[State, Found]:
    if len(slot.gpus) < check.gpus:
        found = f"needs {check.gpus} GPUs, {len(slot.gpus)} here"
        return State.NOT_HERE, Found(found)
    if left <= 0:
        found = f"the {slot.size.seconds:.0f} s of this command are over"
        return State.NOT_RUN, Found(found)
    try:
        return State.PASSED, check.work(slot)
    except NotHereError as error:
        return State.NOT_HERE, Found(str(error))
    except ShortError as error:
        return State.SHORT, Found(str(error))
    except Exception as error:  # noqa: BLE001 - one failure never hides the others
        where = {"traceback": traceback.format_exc()}
        return State.SHORT, Found(f"{type(error).__name__}: {error}", where)
