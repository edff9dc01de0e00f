"""Ways in which a script ends, and what plain Python or torchrun make of each."""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass, field

__all__ = ["CASES", "Case"]


@dataclass(frozen=True)
class Case:
    """One way to end, and what is there afterwards."""

    name: str
    script: str
    ends: tuple[int | str | None, ...] = (0,)
    """Exit code of each rank, or the name of the signal; None of one that torchrun and
    nbkit end because of another."""
    files: dict[str, str] = field(default_factory=dict)
    """Content of the files left behind in the working folder, as Latin-1, by name."""
    prints: str = ""
    """Part of what the last line on standard error of the failing rank says."""

    @property
    def ranks(self) -> int:
        """How many there are."""
        return len(self.ends)

    @property
    def failing(self) -> int | None:
        """The rank that ends by itself with a failure."""
        bad = [rank for rank, end in enumerate(self.ends) if end not in (0, None)]
        return bad[0] if bad else None


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


def _zipped() -> str:
    with io.BytesIO() as file:
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr(zipfile.ZipInfo("one"), "x")
        return file.getvalue().decode("latin-1")


_ROWS = "".join(f"row {number}\n" for number in range(50))

CASES = [
    # How code ends
    Case("falls off its end", "open('a', 'w').write('x')", files={"a": "x"}),
    Case("raises", "raise KeyError('here')", (1,), prints="KeyError: 'here'"),
    Case("sys.exit()", "import sys; sys.exit()"),
    Case("sys.exit(0)", "import sys; sys.exit(0)"),
    Case("sys.exit(3)", "import sys; sys.exit(3)", (3,)),
    Case("sys.exit(text)", "import sys; sys.exit('why')", (1,), prints="why"),
    Case("os._exit(0)", "import os; os._exit(0)"),
    Case("os._exit(3)", "import os; os._exit(3)", (3,)),
    Case("os.abort", "import os; os.abort()", ("SIGABRT",)),
    Case("SIGKILL", "import os; os.kill(os.getpid(), 9)", ("SIGKILL",)),
    Case("SIGTERM", "import os; os.kill(os.getpid(), 15)", ("SIGTERM",)),
    Case(
        "a segmentation fault",
        "import ctypes; ctypes.string_at(0)",
        ("SIGSEGV",),
        prints="",
    ),
    Case(
        "KeyboardInterrupt",
        "raise KeyboardInterrupt",
        ("SIGINT",),
        prints="KeyboardInterrupt",
    ),
    Case(
        "asyncio.CancelledError",
        "import asyncio; raise asyncio.CancelledError('here')",
        (1,),
        prints="CancelledError: here",
    ),
    Case(
        "a BaseException",
        "class Own(BaseException): pass\nraise Own('here')",
        (1,),
        prints="Own: here",
    ),
    Case(
        "an exception whose text cannot be made",
        "class Own(Exception):\n    def __str__(self): return 1 / 0\nraise Own",
        (1,),
        prints="Own: <exception str() failed>",
    ),
    Case(
        "its own excepthook",
        "import sys\n"
        "sys.excepthook = lambda *error: open('hook', 'w').write(repr(error[1]))\n"
        "raise KeyError(1)",
        (1,),
        {"hook": "KeyError(1)"},
    ),
    Case(
        "an exception in a thread",
        "import threading\n"
        "def fail(): raise KeyError\n"
        "one = threading.Thread(target=fail); one.start(); one.join()",
    ),
    Case(
        "sys.exit in a thread",
        "import sys, threading\n"
        "one = threading.Thread(target=sys.exit, args=(3,)); one.start(); one.join()",
    ),
    # Files and objects that are left open
    Case(
        "an open file",
        "log = open('a.csv', 'w')\nfor n in range(50): print('row', n, file=log)",
        files={"a.csv": _ROWS},
    ),
    Case(
        "an open file, and an exception",
        "log = open('a.csv', 'w')\n"
        "for n in range(50): print('row', n, file=log)\n"
        "raise KeyError",
        (1,),
        {"a.csv": _ROWS},
    ),
    Case(
        "an open file of a function that raises",
        "def work():\n"
        "    log = open('a.csv', 'w')\n"
        "    for n in range(50): print('row', n, file=log)\n"
        "    raise KeyError\n"
        "work()",
        (1,),
        {"a.csv": _ROWS},
    ),
    Case(
        "an open file in a cycle, which Python loses",
        "class Log:\n"
        "    def __init__(self): self.me, self.file = self, open('a', 'wb')\n"
        "Log().file.write(b'x')",
        files={"a": ""},
    ),
    Case(
        "an open file of a module",
        "import sys; sys.dont_write_bytecode = True\n"
        "open('own.py', 'w').write('log = open(\"a\", \"w\")')\n"
        "import own; own.log.write('x')\n"
        "import os; os.remove('own.py')",
        files={"a": "x"},
    ),
    Case(
        "an object that writes as it goes",
        "class Writer:\n"
        "    def __del__(self):\n"
        "        with open('a', 'w') as file: file.write('gone')\n"
        "writer = Writer()",
        files={"a": "gone"},
    ),
    Case(
        "a zip archive that was not closed",
        "import zipfile\n"
        "archive = zipfile.ZipFile('a.zip', 'w')\n"
        "archive.writestr(zipfile.ZipInfo('one'), 'x')",
        files={"a.zip": _zipped()},
    ),
    Case(
        "weakref.finalize",
        "import weakref\n"
        "class One: pass\n"
        "one = One()\n"
        "weakref.finalize(one, lambda: open('a', 'w').write('x'))",
        files={"a": "x"},
    ),
    Case(
        "a temporary folder",
        "import tempfile\nfolder = tempfile.TemporaryDirectory(dir='.')",
    ),
    Case(
        "a buffering log handler",
        "import logging, logging.handlers\n"
        "file = logging.FileHandler('log')\n"
        "logging.getLogger().addHandler(logging.handlers.MemoryHandler(9, 99, file))\n"
        "logging.warning('x')",
        files={"log": "x\n"},
    ),
    # What is registered at exit
    Case(
        "atexit",
        "import atexit\natexit.register(lambda: open('a', 'w').write('x'))",
        files={"a": "x"},
    ),
    Case(
        "atexit after an exception",
        "import atexit\n"
        "atexit.register(lambda: open('a', 'w').write('x'))\n"
        "raise KeyError",
        (1,),
        {"a": "x"},
    ),
    Case(
        "atexit after sys.exit(3)",
        "import atexit, sys\n"
        "atexit.register(lambda: open('a', 'w').write('x'))\n"
        "sys.exit(3)",
        (3,),
        {"a": "x"},
    ),
    Case(
        "atexit in order, and one that raises",
        "import atexit\n"
        "def add(text): open('a', 'a').write(text)\n"
        "atexit.register(add, '1')\n"
        "atexit.register(lambda: 1 / 0)\n"
        "atexit.register(add, '2')",
        files={"a": "21"},
    ),
    # Threads, executors and processes
    Case(
        "a thread that works on",
        "import threading, time\n"
        "def work():\n"
        "    time.sleep(0.5)\n"
        "    open('a', 'w').write('x')\n"
        "threading.Thread(target=work).start()",
        files={"a": "x"},
    ),
    Case(
        "a thread that works on after an exception",
        "import threading, time\n"
        "def work():\n"
        "    time.sleep(0.5)\n"
        "    open('a', 'w').write('x')\n"
        "threading.Thread(target=work).start()\n"
        "raise KeyError",
        (1,),
        {"a": "x"},
    ),
    Case(
        "a daemon thread",
        "import threading\n"
        "threading.Thread(target=threading.Event().wait, daemon=True).start()",
    ),
    Case(
        "an executor with work left",
        "import time\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "def work(n):\n"
        "    time.sleep(0.1)\n"
        "    open('a', 'a').write(str(n))\n"
        "pool = ThreadPoolExecutor(1)\n"
        "for n in range(4): pool.submit(work, n)",
        files={"a": "0123"},
    ),
    Case(
        "a child process",
        "import multiprocessing, time\n"
        "def work():\n"
        "    time.sleep(0.3)\n"
        "    open('a', 'w').write('x')\n"
        "multiprocessing.get_context('fork').Process(target=work).start()",
        files={"a": "x"},
    ),
    Case(
        "a daemon child process, and a pool",
        "import multiprocessing, time\n"
        "fork = multiprocessing.get_context('fork')\n"
        "fork.Process(target=time.sleep, args=(99,), daemon=True).start()\n"
        "pool = fork.Pool(1)\n"
        "open('a', 'w').write(str(pool.apply(abs, (-1,))))",
        files={"a": "1"},
    ),
    Case(
        "a forked child that leaves by sys.exit",
        "import os, sys\n"
        "if os.fork() == 0:\n"
        "    open('a', 'w').write('x')\n"
        "    sys.exit(5)\n"
        "code = os.waitstatus_to_exitcode(os.wait()[1])\n"
        "open('b', 'w').write(str(code))",
        files={"a": "x", "b": "5"},
    ),
    Case(
        "a forked child that falls off the end",
        "import os\n"
        "child = os.fork()\n"
        "if child:\n"
        "    code = os.waitstatus_to_exitcode(os.wait()[1])\n"
        "    open('b', 'w').write(str(code))",
        files={"b": "0"},
    ),
    Case(
        "a forked child that raises",
        "import os\n"
        "if os.fork() == 0:\n"
        "    raise KeyError\n"
        "code = os.waitstatus_to_exitcode(os.wait()[1])\n"
        "open('b', 'w').write(str(code))",
        files={"b": "1"},
    ),
    # Standard output
    Case("a closed standard output", "import sys; sys.stdout.close()"),
    Case("no standard output", "import sys; sys.stdout = None"),
    Case(
        "another standard output",
        "import io, sys\nsys.stdout = io.StringIO(); print('x')",
    ),
    Case(
        "a full standard output",
        "import sys\nsys.stdout = open('/dev/full', 'w'); print('x')",
        (120,),
    ),
    Case(
        "a closed standard error, and an exception",
        "import sys; sys.stderr.close(); raise KeyError",
        (1,),
    ),
    # Several ranks
    Case(
        "all destroy the group",
        _GROUP + "dist.destroy_process_group(); note('through')",
        (0, 0),
        {"rank0": "through", "rank1": "through"},
    ),
    Case(
        "none destroys the group",
        _GROUP + "note('through')",
        (0, 0),
        {"rank0": "through", "rank1": "through"},
    ),
    Case(
        "rank 0 alone destroys the group",
        _GROUP + "if rank == 0: dist.destroy_process_group()\nnote('through')",
        (0, 0),
        {"rank0": "through", "rank1": "through"},
    ),
    Case(
        "rank 1 works on after rank 0",
        _GROUP + "if rank == 1: time.sleep(3)\nnote('through')",
        (0, 0),
        {"rank0": "through", "rank1": "through"},
    ),
    Case(
        "rank 1 leaves by os._exit, and rank 0 works on",
        _GROUP + "if rank == 1: os._exit(0)\ntime.sleep(1); note('through')",
        (0, 0),
        {"rank0": "through"},
    ),
    Case(
        "a child of rank 1 leaves, and rank 1 uses the store after rank 0",
        "import os, sys, time, torch.distributed as dist\n"
        "rank = int(os.environ['RANK'])\n"
        "if rank == 1:\n"
        "    if os.fork() == 0: sys.exit(0)\n"
        "    os.wait()\n"
        "    time.sleep(3)\n"
        "    place = os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])\n"
        "    dist.TCPStore(*place, is_master=False).add('key', 1)\n"
        "open(f'rank{rank}', 'w').write('through')",
        (0, 0),
        {"rank0": "through", "rank1": "through"},
    ),
    Case(
        "rank 0 leaves, and rank 1 waits for it",
        _GROUP + "if rank == 0: sys.exit(0)\ndist.all_reduce(torch.ones(1))",
        (0, 1),
    ),
    Case(
        "rank 1 leaves, and rank 0 waits for it",
        _GROUP + "if rank == 1: sys.exit(0)\ndist.all_reduce(torch.ones(1))",
        (1, 0),
    ),
    Case(
        "rank 1 raises, and rank 0 waits for it",
        _GROUP + "if rank == 1: raise KeyError('one')\ndist.all_reduce(torch.ones(1))",
        (None, 1),
        prints="KeyError: 'one'",
    ),
    Case(
        "rank 1 is killed, and rank 0 waits for it",
        _GROUP + "if rank == 1: os.kill(os.getpid(), 9)\n"
        "dist.all_reduce(torch.ones(1))",
        (None, "SIGKILL"),
    ),
]
