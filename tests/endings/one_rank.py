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
_LOG = "log = open('a', 'w')\nfor n in range(50): print('row', n, file=log)\n"
_X = {"a": "x"}
_WRITE = "lambda: open('a', 'w').write('x')"
_WORK = "import time\ndef work(): time.sleep(0.3); open('a', 'w').write('x')\n"

ONE_RANK = [
    # How code ends
    Case("falls off its end", f"({_WRITE})()", files=_X),
    Case("raises", "raise KeyError('here')", (1,), prints="KeyError: 'here'"),
    Case("sys.exit()", "import sys; sys.exit()"),
    Case("sys.exit(3)", "import sys; sys.exit(3)", (3,)),
    Case("sys.exit(text)", "import sys; sys.exit('why')", (1,), prints="why"),
    Case("os._exit(0)", "import os; os._exit(0)"),
    Case("os._exit(3)", "import os; os._exit(3)", (3,)),
    Case("os.abort", "import os; os.abort()", ("SIGABRT",)),
    Case("SIGTERM", "import os; os.kill(os.getpid(), 15)", ("SIGTERM",)),
    Case("SIGSEGV", "import ctypes; ctypes.string_at(0)", ("SIGSEGV",)),
    Case(
        "KeyboardInterrupt",
        "raise KeyboardInterrupt",
        ("SIGINT",),
        prints="KeyboardInterrupt",
    ),
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
    # Files and objects that are left open
    Case("an open file", _LOG, files={"a": _ROWS}),
    Case("an open file, and an exception", _LOG + "1 / 0", (1,), {"a": _ROWS}),
    Case(
        "an open file in a cycle, which Python loses",
        "class Log:\n"
        "    def __init__(self): self.me, self.file = self, open('a', 'wb')\n"
        "Log().file.write(b'x')",
        files={"a": ""},
    ),
    Case(
        "an open file beside a function, and an exception",
        "log = open('a', 'w'); log.write('x')\ndef unused(): pass\nraise KeyError",
        (1,),
        _X,
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
        "atexit in order, and one that raises",
        "import atexit\n"
        "def add(text): open('a', 'a').write(text)\n"
        "atexit.register(add, '1')\n"
        "atexit.register(lambda: 1 / 0)\n"
        "atexit.register(add, '2')",
        files={"a": "21"},
    ),
    Case(
        "atexit after an exception",
        f"import atexit\natexit.register({_WRITE})\nraise KeyError",
        (1,),
        _X,
    ),
    # Threads, executors and processes
    Case(
        "a thread that works on after an exception",
        f"{_WORK}import threading\n"
        "threading.Thread(target=work).start()\n"
        "raise KeyError",
        (1,),
        _X,
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
        "def work(n): time.sleep(0.1); open('a', 'a').write(str(n))\n"
        "pool = ThreadPoolExecutor(1)\n"
        "for n in range(4): pool.submit(work, n)",
        files={"a": "0123"},
    ),
    Case(
        "a child process",
        f"{_WORK}import multiprocessing\n"
        "multiprocessing.get_context('fork').Process(target=work).start()",
        files=_X,
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
    *(
        Case(
            f"a forked child: {end}",
            f"import os, sys\nif os.fork() == 0:\n    {end}\nelse:\n"
            "    code = os.waitstatus_to_exitcode(os.wait()[1])\n"
            "    open('b', 'w').write(str(code))",
            files={"b": code},
        )
        for end, code in (("sys.exit(5)", "5"), ("pass", "0"), ("raise KeyError", "1"))
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
