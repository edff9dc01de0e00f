"""Rare ways in which a script or a function ends; each was seen with plain Python."""

from __future__ import annotations

import io
import zipfile

from tests.endings.case import Case

__all__ = ["RARE"]


def _zipped() -> str:
    with io.BytesIO() as file:
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr(zipfile.ZipInfo("one"), "x")
        return file.getvalue().decode("latin-1")


_ROWS = "".join(f"row {number}\n" for number in range(50))
_LOG = "log = open('a', 'w')\nfor n in range(50): print('row', n, file=log)\n"
_LOG_OF_FUNCTION = "    for n in range(50): print('row', n, file=log)\n"
_X = {"a": "x"}
_WRITE = "lambda: open('a', 'w').write('x')"
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

RARE = [
    Case("sys.exit()", "import sys; sys.exit()"),
    Case("os._exit(0)", "import os; os._exit(0)"),
    Case(
        "a BaseException whose text cannot be made",
        "class Own(BaseException):\n    def __str__(self): return 1 / 0\nraise Own",
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
        "sys.exit in a thread",
        "import sys, threading\n"
        "one = threading.Thread(target=sys.exit, args=(3,)); one.start(); one.join()",
    ),
    Case("an open file, and an exception", _LOG + "1 / 0", (1,), {"a": _ROWS}),
    Case(
        "an open file in a cycle, which Python loses",
        "class Log:\n"
        "    def __init__(self): self.me, self.file = self, open('a', 'wb')\n"
        "Log().file.write(b'x')",
        files={"a": ""},
    ),
    Case(
        "an open file of an object that refers to itself",
        "class Log:\n"
        "    def __init__(self): self.me, self.file = self, open('a', 'w')\n"
        "log = Log(); log.file.write('x')",
        files=_X,
    ),
    Case(
        "an open file of a module with a function",
        "import sys; sys.dont_write_bytecode = True\n"
        'text = \'log = open("a", "w")\\ndef unused(): pass\'\n'
        "open('own.py', 'w').write(text)\n"
        "import own; own.log.write('x')\n"
        "import os; os.remove('own.py')",
        files=_X,
    ),
    Case(
        "a zip archive that was not closed",
        "import zipfile\n"
        "archive = zipfile.ZipFile('a.zip', 'w')\n"
        "archive.writestr(zipfile.ZipInfo('one'), 'x')",
        files={"a.zip": _zipped()},
    ),
    Case(
        "a temporary folder",
        "import tempfile\nfolder = tempfile.TemporaryDirectory(dir='.')",
    ),
    Case(
        "atexit after an exception",
        f"import atexit\natexit.register({_WRITE})\nraise KeyError",
        (1,),
        _X,
    ),
    Case(
        "a daemon thread",
        "import threading\n"
        "threading.Thread(target=threading.Event().wait, daemon=True).start()",
    ),
    Case(
        "a standard output that only writes",
        "import sys\n"
        "class Tee:\n"
        "    def __init__(self, stream): self.stream = stream\n"
        "    def write(self, text): return self.stream.write(text)\n"
        "    def flush(self): sys.__stdout__.flush()\n"
        "sys.stdout = Tee(sys.stdout); print('x')",
    ),
    Case("a closed standard output", "import sys; sys.stdout.close()"),
    Case(
        "a closed standard error, and an exception",
        "import sys; sys.stderr.close(); raise KeyError",
        (1,),
    ),
    Case(
        "a function returns, and leaves a global file open",
        f"def train():\n    global log\n    log = open('a', 'w')\n{_LOG_OF_FUNCTION}",
        files={"a": _ROWS},
    ),
    Case(
        "a function leaves a global file open beside a class of its own",
        "class Log:\n"
        "    def __init__(self): self.me, self.file = self, open('b', 'w')\n"
        "def train():\n"
        "    global log, other\n"
        "    log, other = Log(), open('a', 'w')\n"
        "    print('x', end='', file=other); print('y', end='', file=log.file)",
        files={"a": "x", "b": "y"},
    ),
    Case("a function: sys.exit(0)", "def train(): import sys; sys.exit(0)"),
    Case(
        "a function: a forked child leaves by sys.exit",
        "import os, sys\n"
        "def train():\n"
        "    if os.fork() == 0: sys.exit(5)\n"
        "    return os.waitstatus_to_exitcode(os.wait()[1])",
        returns=5,
    ),
    Case(
        "a function: a closed standard output",
        "def train(): import sys; sys.stdout.close(); return 1",
        returns=1,
    ),
    Case(
        "a function: an object that writes as it goes, in a cycle",
        "import os\n"
        "class Writer:\n"
        "    def __init__(self): self.me = self\n"
        "    def __del__(self):\n"
        "        os.write(os.open('a', os.O_CREAT | os.O_WRONLY), b'gone')\n"
        "def train(): Writer()",
        files={"a": "gone"},
    ),
    Case(
        "rank 0 alone destroys the group",
        _GROUP + "if rank == 0: dist.destroy_process_group()\nnote('through')",
        (0, 0),
        _THROUGH,
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
        _THROUGH,
    ),
    Case(
        "rank 0 leaves, and rank 1 waits for it",
        _GROUP + "if rank == 0: sys.exit(0)\ndist.all_reduce(torch.ones(1))",
        (0, 1),
    ),
    Case(
        "rank 1 raises, and rank 0 waits for it",
        _GROUP + "if rank == 1: raise KeyError('one')\ndist.all_reduce(torch.ones(1))",
        (None, 1),
        prints="KeyError: 'one'",
    ),
    Case("sys.exit(text)", "import sys; sys.exit('why')", (1,), prints="why"),
    Case("SIGTERM", "import os; os.kill(os.getpid(), 15)", ("SIGTERM",)),
    Case("SIGSEGV", "import ctypes; ctypes.string_at(0)", ("SIGSEGV",)),
    Case(
        "an open file beside a function, and an exception",
        "log = open('a', 'w'); log.write('x')\ndef unused(): pass\nraise KeyError",
        (1,),
        _X,
    ),
    Case(
        "an object that writes as it goes",
        "import os\n"
        "class Writer:\n"
        "    def __del__(self):\n"
        "        os.write(os.open('a', os.O_CREAT | os.O_WRONLY), b'gone')\n"
        "writer = Writer()",
        files={"a": "gone"},
    ),
    Case(
        "a buffering log handler",
        "import logging, logging.handlers\n"
        "file = logging.FileHandler('log')\n"
        "logging.getLogger().addHandler(logging.handlers.MemoryHandler(9, 99, file))\n"
        "logging.warning('x')",
        files={"log": "x\n"},
    ),
    Case("no standard output", "import sys; sys.stdout = None"),
    Case(
        "a function: KeyboardInterrupt",
        "def train(): raise KeyboardInterrupt",
        ("SIGINT",),
        prints="KeyboardInterrupt",
    ),
    Case(
        "rank 1 works on after rank 0",
        _GROUP + "if rank == 1: time.sleep(3)\nnote('through')",
        (0, 0),
        _THROUGH,
    ),
    Case(
        "rank 0 leaves by os._exit, and rank 1 works on",
        _GROUP + "if rank == 0: os._exit(0)\ntime.sleep(2); note('through')",
        (0, 0),
        {"rank1": "through"},
    ),
    Case(
        "rank 1 is killed, and rank 0 waits for it",
        _GROUP + "if rank == 1: os.kill(os.getpid(), 9)\n"
        "dist.all_reduce(torch.ones(1))",
        (None, "SIGKILL"),
    ),
]
