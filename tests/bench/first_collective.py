"""From a launcher's call to the first collective that two ranks have done, cold.

``python first_collective.py nbkit|accelerate|torchrun`` is a new process, as the kernel
of a notebook is: it imports its launcher, calls it with the same function, and prints
one line of JSON with the moments (Unix seconds). torchrun starts as from a shell.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RANKS = 2


def reduce(target: str) -> None:
    """Meet the other rank; rank 0 writes down when both have."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    done_at = time.time()
    assert total.item() == RANKS
    if dist.get_rank() == 0:
        Path(target).write_text(repr(done_at))
    dist.destroy_process_group()


def main(launcher: str) -> None:
    """Launch once, and print when it was called and when the ranks had met."""
    with tempfile.TemporaryDirectory() as folder:
        target = str(Path(folder, "done"))
        if launcher == "nbkit":
            import nbkit

            called_at = time.time()
            run = nbkit.launch(
                reduce,
                args=(target,),
                gpus=RANKS,
                device="cpu",
                oversubscribe=True,
            )
            run.wait()
        elif launcher == "accelerate":
            notebook_launcher = importlib.import_module("accelerate").notebook_launcher
            called_at = time.time()
            notebook_launcher(reduce, (target,), num_processes=RANKS)
        else:
            torchrun = str(Path(sys.executable).with_name("torchrun"))
            argv = [torchrun, "--standalone", f"--nproc-per-node={RANKS}", __file__]
            called_at = time.time()
            subprocess.run([*argv, "rank", target], check=True)
        moments = {"called_at": called_at, "done_at": float(Path(target).read_text())}
    print(json.dumps(moments))


if __name__ == "__main__":
    if sys.argv[1] == "rank":
        reduce(sys.argv[2])
    else:
        main(sys.argv[1])
