"""`make bench-peers`: nbkit beside other tools, which get an environment of their own.

First the way to a first collective, then the same loop through nbkit, accelerate and
Lightning, then the monitors of :mod:`tests.bench.monitors`. Arms take turns, so that a
noisy machine disturbs all of them alike. Writes all values to
``build/bench-peers.json`` and prints medians; it holds nobody to a limit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import nbkit
from tests.bench.monitors import monitor_arms, print_monitors
from tests.bench.rows import spread
from tests.bench.settings import BUILD, nbkit_fields, run_loop, share_cpus

ROUNDS = int(os.environ.get("NBKIT_BENCH_ROUNDS", "5"))


def main() -> None:
    """Measure every arm in turn, write the file, print the medians."""
    share_cpus()
    collective = collective_arms()
    # At once: kept even if a later part fails.
    _write({"first_collective": collective})
    _print_collective(collective)
    launch = launch_arms()
    _write({"first_collective": collective, "launch": launch})
    _print_launch(launch)
    monitor = monitor_arms()
    parts = {"first_collective": collective, "launch": launch, "monitor": monitor}
    _write(parts)
    print_monitors(monitor)


def collective_arms() -> dict[str, list[dict[str, float]]]:
    """Return all values by arm: who starts two ranks that meet once."""
    arms: dict[str, list[dict[str, float]]] = {
        "nbkit": [],
        "torchrun": [],
        "accelerate": [],
    }
    with tempfile.TemporaryDirectory() as home:
        for turn in range(ROUNDS):
            # Backward every other time: nobody always comes first.
            for name in list(arms)[:: 1 if turn % 2 == 0 else -1]:
                arms[name].append(_first_collective(name, home))
            print(f"first collective: round {turn + 1} of {ROUNDS} done", flush=True)
    return arms


def launch_arms() -> dict[str, list[dict[str, float]]]:
    """Return all values by arm: who starts the loop."""
    arms: dict[str, list[dict[str, float]]] = {
        "nbkit": [],
        "torchrun, plain DDP": [],
        "accelerate notebook_launcher": [],
        "Lightning ddp_notebook": [],
    }
    scripts = ("plain_ddp.py", "accelerate_loop.py", "lightning_loop.py")
    with tempfile.TemporaryDirectory() as home:
        os.environ["NBKIT_HOME"] = home
        for turn in range(ROUNDS):
            measured = [_nbkit(), *map(_script, scripts)]
            for rows, row in zip(arms.values(), measured, strict=True):
                rows.append(row)
            print(f"launch: round {turn + 1} of {ROUNDS} done", flush=True)
    return arms


def _write(parts: dict[str, Any]) -> None:
    BUILD.mkdir(exist_ok=True)
    (BUILD / "bench-peers.json").write_text(json.dumps(parts, indent=1) + "\n")


def _first_collective(name: str, home: str) -> dict[str, float]:
    script = str(Path(__file__).with_name("first_collective.py"))
    began = time.time()
    done = subprocess.run(
        [sys.executable, script, name],
        env={**os.environ, "NBKIT_HOME": home},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    moments = json.loads(done.stdout.splitlines()[-1])
    return {
        "from_call_seconds": moments["done_at"] - moments["called_at"],
        "from_cold_seconds": moments["done_at"] - began,
    }


def _nbkit() -> dict[str, float]:
    began = time.time()
    run = nbkit.launch(**nbkit_fields()).wait()
    cpu_ms = run.summary.cpu_ms_per_image
    assert cpu_ms is not None
    return {
        "cpu_ms_per_image": cpu_ms,
        "first_step_seconds": run.metrics()[0]["t"] - began,
    }


def _script(name: str) -> dict[str, float]:
    began = time.time()
    line = run_loop(name)
    return {
        "cpu_ms_per_image": line["cpu_ms_per_image"],
        "first_step_seconds": line["first_step_at"] - began,
    }


def _print_collective(arms: dict[str, list[dict[str, float]]]) -> None:
    head = f"{'s from the call':>22}{'s from a new Python':>22}   n"
    print(f"\n{'first collective, 2 ranks':<32}{head}")
    for name, rows in arms.items():
        cells = [
            spread([row[key] for row in rows])
            for key in ("from_call_seconds", "from_cold_seconds")
        ]
        print(f"{name:<32}{cells[0]:>22}{cells[1]:>22}   {len(rows)}")
    print(
        "A new Python imports its launcher first; accelerate's forks with torch in it."
    )


def _print_launch(arms: dict[str, list[dict[str, float]]]) -> None:
    print(f"\n{'launch':<32}{'CPU ms/image':>22}{'s to first step':>22}   n")
    for name, rows in arms.items():
        cells = [
            spread([row[key] for row in rows])
            for key in ("cpu_ms_per_image", "first_step_seconds")
        ]
        print(f"{name:<32}{cells[0]:>22}{cells[1]:>22}   {len(rows)}")


if __name__ == "__main__":
    main()
