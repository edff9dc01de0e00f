"""Ways in which a script of one rank ends; each was seen with plain Python."""

from __future__ import annotations

from tests.endings.case import Case

__all__ = ["ONE_RANK"]


_ROWS = "".join(f"row {number}\n" for number in range(50))
_LOG = "log = open('a', 'w')\nfor n in range(50): print('row', n, file=log)\n"
_X = {"a": "x"}
_WRITE = "lambda: open('a', 'w').write('x')"
_WORK = "import time\ndef work(): time.sleep(0.3); open('a', 'w').write('x')\n"

ONE_RANK = [
    # How code ends
    Case("falls off its end", f"({_WRITE})()", files=_X),
    Case("raises", "raise KeyError('here')", (1,), prints="KeyError: 'here'"),
    Case("sys.exit(3)", "import sys; sys.exit(3)", (3,)),
    Case("os._exit(3)", "import os; os._exit(3)", (3,)),
    Case("os.abort", "import os; os.abort()", ("SIGABRT",)),
    Case(
        "KeyboardInterrupt",
        "raise KeyboardInterrupt",
        ("SIGINT",),
        prints="KeyboardInterrupt",
    ),
    # Files and objects that are left open
    Case("an open file", _LOG, files={"a": _ROWS}),
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
        for end, code in (("sys.exit(5)", "5"), ("raise KeyError", "1"))
    ),
    # Standard output
    Case(
        "a full standard output",
        "import sys\nsys.stdout = open('/dev/full', 'w'); print('x')",
        (120,),
    ),
]
