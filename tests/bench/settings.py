"""What every arm of the benchmarks trains, and how a loop in a file is started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from nbkit.telemetry.cpus import usable_cpus

BUILD = Path(__file__).parents[2] / "build"
RANKS = 2
THREADS_PER_RANK = max(1, int(usable_cpus()) // RANKS)
SETTINGS = {
    "model": "resnet18",
    "image_size": 64,
    "batch_size_per_gpu": 16,
    "steps": 30,
    "warmup_steps": 5,
}


def share_cpus() -> None:
    """Give every rank of every arm the same threads: all inherit this variable.

    Left alone, each tool has a default of its own.
    """
    os.environ["OMP_NUM_THREADS"] = str(THREADS_PER_RANK)


def nbkit_fields(**changes: Any) -> dict[str, Any]:
    """Return the settings as fields of an experiment."""
    fixed = {"gpus": RANKS, "device": "cpu", "oversubscribe": True}
    # The other loops decay every parameter alike and never change their rate.
    same = {"decay_norm_and_bias": True, "schedule": "constant"}
    return {**SETTINGS, **fixed, **same, **changes}


def run_loop(script: str, **more: Any) -> dict[str, Any]:
    """Run a loop of this folder to its end and return the line that it prints.

    Parameters
    ----------
    script
        Its file.
    more
        What it is told besides the settings.
    """
    starter = [sys.executable]
    if script in ("plain_ddp.py", "bound_loop.py"):
        torchrun = str(Path(sys.executable).with_name("torchrun"))
        starter = [torchrun, "--standalone", f"--nproc-per-node={RANKS}"]
    done = subprocess.run(
        [
            *starter,
            str(Path(__file__).with_name(script)),
            json.dumps({**SETTINGS, "ranks": RANKS, **more}),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])
