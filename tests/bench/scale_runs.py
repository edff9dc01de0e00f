"""A thousand runs of a cluster as files, and Slurm's commands that count their calls.

Nothing is trained: the folders are what a reader finds. Of ten runs three wait in the
queue, two run, four have ended, and of one only Slurm knows that it has: its supervisor
was killed without a last word, and squeue has forgotten the job.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

__all__ = ["RUNS", "WHO_VARIABLE", "calls_a_minute", "put_runs", "put_slurm"]

RUNS = 1_000
WHO_VARIABLE = "BENCH_WHO"
"""Says in the list of calls which process has asked."""

_KINDS = ("queued",) * 3 + ("running",) * 2 + ("finished",) * 4 + ("killed",)
_SINCE = "2020-01-01T00:00:00.000Z"
_ELSEWHERE = {"pid": 1, "start_ticks": 1, "host": "a-node", "boot_id": "another"}
_FIRST_JOB = 4_000_000
_STUB = """#!/bin/sh
echo "$(date +%s.%N) ${{{variable}:-nobody}} ${{0##*/}}" >>{calls}
cat {answer}
"""


def put_runs(store: Path, config: dict[str, Any]) -> list[str]:
    """Write the folders of all runs into a store; return the ids of those that wait.

    Parameters
    ----------
    store
        An empty one.
    config
        Of every run.
    """
    waiting: list[str] = []
    for number in range(RUNS):
        kind = _KINDS[number % len(_KINDS)]
        root = store / "runs" / f"20200101-{number:06d}-scale-aaaa"
        root.mkdir(parents=True)
        files: dict[str, dict[str, Any]] = {
            "config": config,
            "submission": {
                "attempt": 0,
                "name": "scale",
                "engine": "slurm",
                "supervisor": None,
                "job": {"id": str(_FIRST_JOB + number), "cluster": None},
                "owner": _ELSEWHERE,
                "time": _SINCE,
                "devices": [],
            },
        }
        if kind == "queued":
            waiting.append(root.name)
        else:
            files["record"] = _record("finished" if kind == "finished" else "running")
        for name, values in files.items():
            (root / f"{name}.json").write_text(json.dumps(values))
    return waiting


def put_slurm(folder: Path) -> Path:
    """Write commands that stand in for Slurm's; return the list of their calls.

    They know every job that waits or runs, as on a cluster of which this user has all.
    """
    folder.mkdir()
    calls = folder / "calls"
    calls.touch()
    queue, accounts = folder / "queue", folder / "accounts"
    known = {"queued": "PENDING|N/A||Priority", "running": "RUNNING|0|n[1-512]|None"}
    rows = [
        f"{_FIRST_JOB + number}|{known[kind]}\n"
        for number in range(RUNS)
        if (kind := _KINDS[number % len(_KINDS)]) in known
    ]
    queue.write_text("".join(rows))
    accounts.write_text(
        "".join(
            f"{_FIRST_JOB + number}|NODE_FAIL|n[1-512]\n"
            for number in range(RUNS)
            if _KINDS[number % len(_KINDS)] == "killed"
        )
    )
    for name, answer in (("squeue", queue), ("sacct", accounts)):
        command = folder / name
        text = _STUB.format(variable=WHO_VARIABLE, calls=calls, answer=answer)
        command.write_text(text)
        command.chmod(0o755)
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
    return calls


def calls_a_minute(calls: Path, who: Collection[str]) -> tuple[float, dict[str, int]]:
    """Return how often processes ask Slurm, and how often they called which command.

    From the time between their first call and their last, so that no part of an
    interval counts.
    """
    lines = [line.split() for line in calls.read_text().splitlines()]
    own = [(float(t), command) for t, name, command in lines if name in who]
    counts: dict[str, int] = {}
    for _, command in own:
        counts[command] = counts.get(command, 0) + 1
    asked = [t for t, command in own if command == "squeue"]
    passed = asked[-1] - asked[0] if len(asked) > 1 else float("inf")
    return 60 * (len(asked) - 1) / passed, counts


def _record(state: str) -> dict[str, Any]:
    ended = _SINCE if state == "finished" else None
    times = {"submitted": _SINCE, "started": _SINCE, "running": _SINCE, "ended": ended}
    return {
        "attempt": 0,
        "state": state,
        "name": "scale",
        "supervisor": _ELSEWHERE,
        "launch": {"devices": [], "device_type": "cuda"},
        "time": times,
        "cause": None,
        # As long as a record is that has an environment and a machine.
        "environment": {"packages": {f"package-{n}": "1.2.3" for n in range(400)}},
    }
