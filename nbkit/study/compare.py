"""`compare`: two runs, or two arms of runs, side by side."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from nbkit.analysis.compare import Comparison, RunFacts, compare_arms
from nbkit.errors import ConfigError, RunError
from nbkit.launch.run import Run, attach
from nbkit.store.record import RunState

__all__ = ["compare"]


def compare(a: Run | str | Sequence[Run], b: Run | str | Sequence[Run]) -> Comparison:
    """Return how two arms differ: in speed, configuration, code, environment, machine.

    Parameters
    ----------
    a, b
        A run, its id, or the runs of an arm (``study.runs_by_arm()["fp16"]``). A ratio
        gets a verdict with five runs each; with one there is not even an interval.

    Returns
    -------
    Comparison
        ``ratio``, ``sentence``, ``differences``; printed as a table.

    Raises
    ------
    RunError
        If a run has not finished.
    RunNotFoundError
        If there is no run with that id.
    ConfigError
        If an arm has no runs, or one that is in the other too.

    Examples
    --------
    >>> nbkit.compare(nbkit.runs()[0], nbkit.runs()[1])  # doctest: +SKIP
    """
    arms = [_runs("a", a), _runs("b", b)]
    twice = {run.run_id for run in arms[0]} & {run.run_id for run in arms[1]}
    if twice:
        message = f"run {min(twice)} is in both arms; compare it with another."
        raise ConfigError(message)
    names = [_name(arms[0], "A"), _name(arms[1], "B")]
    if names[0] == names[1]:
        names = ["A", "B"]
    of_a, of_b = ([_facts(run) for run in arm] for arm in arms)
    return compare_arms(of_a, of_b, *names)


def _runs(name: str, arm: Run | str | Sequence[Run]) -> list[Run]:
    if isinstance(arm, Run | str):
        arm = [arm] if isinstance(arm, Run) else [attach(arm)]
    runs = list(arm)
    if not runs or not all(isinstance(run, Run) for run in runs):
        message = f"{name}={arm!r} is no run, run id, or list of runs; pass one."
        raise ConfigError(message)
    for run in runs:
        if run.state is not RunState.FINISHED:
            message = (
                f"run {run.run_id} is {run.state}; compare runs that have finished."
            )
            raise RunError(message)
    return runs


def _name(runs: Sequence[Run], otherwise: str) -> str:
    names = {run.record.get("name") for run in runs}
    name = names.pop() if len(names) == 1 else None
    return str(name) if name else otherwise


def _facts(run: Run) -> RunFacts:
    record, worker = run.record, run.worker
    environment: dict[str, Any] = dict(record.get("environment") or {})
    variables = environment.get("variables") or {}
    # What nbkit sets itself is in the configuration already.
    environment["variables"] = {
        name: value
        for name, value in variables.items()
        if not name.startswith("NBKIT_")
    }
    launch = record.get("launch") or {}
    devices = {
        "device_type": launch.get("device_type"),
        "names": ", ".join(
            sorted({str(one.get("name")) for one in worker.get("devices") or []})
        ),
        "world_size": worker.get("world_size"),
        "cpus_per_rank": launch.get("cpus_per_rank"),
        "oversubscribed": launch.get("oversubscribed"),
        **{name: worker.get(name) for name in ("torch", "cuda", "cudnn", "nccl")},
    }
    code = dict(record.get("code") or {})
    diff = run.paths.root / str(code.get("diff"))
    if diff.is_file():
        code["diff_sha256"] = hashlib.sha256(diff.read_bytes()).hexdigest()
    return RunFacts(
        run.run_id,
        run.summary.images_per_second,
        {
            "configuration": run.config.model_dump(mode="json"),
            "code": code,
            "environment": environment,
            "machine": record.get("machine") or {},
            "storage": record.get("storage") or {},
            "devices": devices,
        },
    )
