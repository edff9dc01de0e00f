"""From the last line of a script to the end of its run, beside torchrun."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import nbkit
from tests.bench.rows import Row, ratio_row, spread
from tests.bench.settings import RANKS

__all__ = ["ending_row"]

SCRIPT = """
import os, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
# Without it gloo aborts some processes at their end.
dist.destroy_process_group()
with open(f"end{os.environ['RANK']}", "w") as file:
    file.write(str(time.time()))
"""


def ending_row(pairs: int) -> Row:
    """Compare how long a script's end takes, in interleaved pairs."""
    seconds: dict[str, list[float]] = {"torchrun": [], "nbkit": []}
    for pair in range(pairs):
        order = ("torchrun", "nbkit") if pair % 2 == 0 else ("nbkit", "torchrun")
        for arm in order:
            with tempfile.TemporaryDirectory() as folder:
                seconds[arm].append(_seconds(arm, Path(folder)))
    conditions = (
        f"{pairs} interleaved pairs, {RANKS} gloo ranks; torchrun "
        f"{spread(seconds['torchrun'])} s, nbkit {spread(seconds['nbkit'])} s; "
    )
    name = "bare torchrun / launch(), last line to the end"
    return ratio_row(name, seconds["torchrun"], seconds["nbkit"], 1.0, conditions)


def _seconds(arm: str, folder: Path) -> float:
    (folder / "script.py").write_text(SCRIPT)
    if arm == "torchrun":
        torchrun = str(Path(sys.executable).with_name("torchrun"))
        argv = [torchrun, "--standalone", f"--nproc-per-node={RANKS}", "script.py"]
        subprocess.run(argv, cwd=folder, check=True, capture_output=True)
        ended = time.time()
    else:
        before = Path.cwd()
        os.chdir(folder)
        try:
            fields = {"gpus": RANKS, "device": "cpu", "oversubscribe": True}
            run = nbkit.launch(folder / "script.py", **fields).wait()
        finally:
            os.chdir(before)
        moment = run.record["time"]["ended"]
        ended = datetime.datetime.fromisoformat(moment).timestamp()
    return ended - max(float(path.read_text()) for path in folder.glob("end*"))
