"""Ways in which a script of two ranks ends; each was seen with torchrun."""

from __future__ import annotations

from tests.endings.case import Case

__all__ = ["SEVERAL_RANKS"]

_GROUP = """
import os, sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
dist.all_reduce(torch.ones(1))
def note(text):
    with open(f"rank{rank}", "w") as file:
        file.write(text)
"""

_THROUGH = {"rank0": "through", "rank1": "through"}

SEVERAL_RANKS = [
    Case("none destroys the group", _GROUP + "note('through')", (0, 0), _THROUGH),
    Case(
        "rank 1 leaves, and rank 0 waits for it",
        _GROUP + "if rank == 1: sys.exit(0)\ndist.all_reduce(torch.ones(1))",
        (1, 0),
    ),
    Case(
        "rank 1 raises, and rank 0 saves when it is asked to end",
        "import atexit, os, signal, sys, time\n"
        "rank = os.environ['RANK']\n"
        "def note(text): open(text + rank, 'w').write('x')\n"
        "atexit.register(note, 'atexit')\n"
        "def leave(number, frame):\n"
        "    time.sleep(2); note('saved'); sys.exit(1)\n"
        "signal.signal(signal.SIGTERM, leave)\n"
        "note('ready')\n"
        "while rank == '1':\n"
        "    if os.path.exists('ready0'): raise KeyError('one')\n"
        "time.sleep(99)",
        (None, 1),
        dict.fromkeys(("ready0", "ready1", "atexit0", "atexit1", "saved0"), "x"),
        prints="KeyError: 'one'",
    ),
]
