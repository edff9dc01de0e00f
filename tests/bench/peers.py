"""`make bench-peers`: the same loop through nbkit, accelerate and Lightning.

Arms take turns, so that a noisy machine disturbs all of them alike. Writes
``build/bench-peers.json`` and prints medians; it holds nobody to a limit.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import nbkit

ROUNDS = int(os.environ.get("NBKIT_BENCH_ROUNDS", "5"))
SETTINGS = {
    "model": "resnet18",
    "image_size": 64,
    "batch_size_per_gpu": 16,
    "steps": 30,
    "warmup_steps": 5,
}
RANKS = 2
BUILD = Path(__file__).parents[2] / "build"


def main() -> None:
    """Measure every arm in turn and print the medians."""
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
            print(f"round {turn + 1} of {ROUNDS} done", flush=True)
    BUILD.mkdir(exist_ok=True)
    (BUILD / "bench-peers.json").write_text(json.dumps(arms, indent=1) + "\n")
    _print_table(arms)


def _nbkit() -> dict[str, float]:
    began = time.time()
    fixed: dict[str, Any] = {"gpus": RANKS, "device": "cpu", "oversubscribe": True}
    run = nbkit.launch(**SETTINGS, **fixed, decay_norm_and_bias=True).wait()
    cpu_ms = run.summary.cpu_ms_per_image
    assert cpu_ms is not None
    return {
        "cpu_ms_per_image": cpu_ms,
        "first_step_seconds": run.metrics()[0]["t"] - began,
    }


def _script(name: str) -> dict[str, float]:
    began = time.time()
    torchrun = [str(Path(sys.executable).with_name("torchrun")), "--standalone"]
    torchrun.append(f"--nproc-per-node={RANKS}")
    starter = torchrun if name == "plain_ddp.py" else [sys.executable]
    done = subprocess.run(
        [
            *starter,
            str(Path(__file__).with_name(name)),
            json.dumps({**SETTINGS, "ranks": RANKS}),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    line = json.loads(done.stdout.splitlines()[-1])
    return {
        "cpu_ms_per_image": line["cpu_ms_per_image"],
        "first_step_seconds": line["first_step_at"] - began,
    }


def _print_table(arms: dict[str, list[dict[str, float]]]) -> None:
    print(f"\n{'':<32}{'CPU ms/image':>22}{'s to first step':>22}   n")
    for name, rows in arms.items():
        cells = [
            _cell([row[key] for row in rows])
            for key in ("cpu_ms_per_image", "first_step_seconds")
        ]
        print(f"{name:<32}{cells[0]:>22}{cells[1]:>22}   {len(rows)}")


def _cell(values: list[float]) -> str:
    middle = statistics.median(values)
    return f"{middle:.2f} ({min(values):.2f}..{max(values):.2f})"


if __name__ == "__main__":
    main()
