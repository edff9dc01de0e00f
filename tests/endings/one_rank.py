"""Ways in which a script of one rank ends; each was seen with plain Python."""

from __future__ import annotations

import io
import zipfile

from tests.endings.case import Case

__all__ = ["ONE_RANK"]


def _zipped() -> str:
    with io.BytesIO() as file:
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr(zipfile.ZipInfo("one"), "x")
        return file.getvalue().decode("latin-1")


_ROWS = "".join(f"row {number}\n" for number in range(50))

ONE_RANK = [
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
        "an open file beside a function",
        "import csv, os\nlog = open('a', 'w'); log.write('x')\ndef unused(): pass",
        files={"a": "x"},
    ),
    Case(
        "an open file beside a function, and an exception",
        "log = open('a', 'w'); log.write('x')\ndef unused(): pass\nraise KeyError",
        (1,),
        {"a": "x"},
    ),
    Case(
        "an open file of an object that refers to itself",
        "class Log:\n"
        "    def __init__(self): self.me, self.file = self, open('a', 'w')\n"
        "log = Log(); log.file.write('x')",
        files={"a": "x"},
    ),
    Case(
        "an open file of a module with a function",
        "import sys; sys.dont_write_bytecode = True\n"
        'text = \'log = open("a", "w")\\ndef unused(): pass\'\n'
        "open('own.py', 'w').write(text)\n"
        "import own; own.log.write('x')\n"
        "import os; os.remove('own.py')",
        files={"a": "x"},
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
        "import os\n"
        "class Writer:\n"
        "    def __del__(self):\n"
        "        os.write(os.open('a', os.O_CREAT | os.O_WRONLY), b'gone')\n"
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
]
