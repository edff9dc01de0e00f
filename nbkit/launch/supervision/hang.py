"""Diagnosis of a hang: the rank that the others wait for, if it is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nbkit.launch.supervision.cause import make_cause
from nbkit.store.heartbeat import Beat, Phase
from nbkit.store.paths import RunPaths

_TELLING_STEPS = 2
"""A rank looks at its GPU once a step: GPUs that finished the same step seem one apart
where one rank has looked before that and another after it."""

_WHAT = {
    Phase.STARTING: "starting",
    Phase.DATA: "waiting for data",
    Phase.COMPUTE: "computing",
    Phase.COLLECTIVE: "in a collective operation",
    Phase.EVALUATION: "evaluating",
    Phase.CHECKPOINT: "writing a checkpoint",
    Phase.DONE: "done",
}


def hang_cause(
    beats: Sequence[Beat],
    timeout_seconds: float,
    paths: RunPaths,
    attempt: int,
    *,
    trains_on_gpus: bool = False,
) -> dict[str, Any]:
    """Return the cause of an attempt in which no rank gets anywhere.

    The ranks that are furthest behind keep the others waiting. Where hosts wait for
    GPUs their own places say little: a host continues until its GPU's queue is full.
    """
    places = [(beat.step, beat.phase) for beat in beats]
    # One that is done keeps no other rank waiting.
    last = min([place for place in places if place[1] != Phase.DONE] or places)
    if trains_on_gpus and last[1] in (Phase.COMPUTE, Phase.COLLECTIVE):
        return _gpu_hang_cause(beats, timeout_seconds, paths, attempt)
    behind = [rank for rank, place in enumerate(places) if place == last]
    where = f"{_WHAT[last[1]]} at step {last[0]}"
    if len(behind) == len(beats):
        message = f"no rank made progress for {timeout_seconds:.0f} s; each is {where}"
    else:
        other = next(rank for rank, place in enumerate(places) if place != last)
        step, phase = places[other]
        names = ", ".join(map(str, behind))
        who = f"rank {names} is" if len(behind) == 1 else f"ranks {names} are"
        message = (
            f"no rank made progress for {timeout_seconds:.0f} s: {who} {where}; rank "
            f"{other} is {_WHAT[phase]} at step {step}"
        )
    log = paths.rank(attempt, behind[0]).stderr
    message += "; see the stacks of every rank in run.cause['stacks']"
    return make_cause("hang", message, behind[0], log)


def _gpu_hang_cause(
    beats: Sequence[Beat], timeout_seconds: float, paths: RunPaths, attempt: int
) -> dict[str, Any]:
    """Return the cause of a hang in which hosts wait for their GPUs."""
    finished = [beat.finished_step for beat in beats]
    behind = [rank for rank, step in enumerate(finished) if step == min(finished)]
    message = f"no rank made progress for {timeout_seconds:.0f} s: "
    is_conclusive = max(finished) - min(finished) >= _TELLING_STEPS
    if not is_conclusive:
        behind = list(range(len(beats)))
        message += f"the last step that any GPU finished is {max(finished)}"
    else:
        names = ", ".join(map(str, behind))
        message += (
            f"the last step that the GPU finished is {min(finished)} on rank {names} "
            f"and up to {max(finished)} on other ranks"
        )
    message += "; see the stacks of every rank in run.cause['stacks']"
    if len(beats) > 1:
        name = paths.rank(attempt, 0).collectives.name
        message += (
            f". If NCCL's flight recorder wrote {name} beside the logs, compare the "
            "last operation of each rank: the rank furthest behind blocks the others"
        )
    only = behind[0] if len(behind) == 1 else None
    log = None if only is None else paths.rank(attempt, only).stderr
    return make_cause("hang", message, only, log)
