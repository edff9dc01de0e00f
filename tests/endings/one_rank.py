"""Ways in which a script of one rank ends; each was seen with plain Python."""

from __future__ import annotations

from tests.endings.case import Case

__all__ = ["ONE_RANK"]

_ROWS = "".join(f"row {number}\n" for number in range(50))
_WORK = "import time\ndef work(): time.sleep(0.3); open('a', 'w').write('x')\n"

ONE_RANK = [
    # How code ends
    Case(
        "raises, and a thread works on",
        f"{_WORK}import threading\n"
        "threading.Thread(target=work).start()\n"
        "raise KeyError('here')",
        (1,),
        {"a": "x"},
        "KeyError: 'here'",
    ),
    Case("sys.exit(3)", "import sys; sys.exit(3)", (3,)),
    Case("os._exit(3)", "import os; os._exit(3)", (3,)),
    Case("os.abort", "import os; os.abort()", ("SIGABRT",)),
    Case(
        "KeyboardInterrupt",
        "raise KeyboardInterrupt",
        ("SIGINT",),
        prints="KeyboardInterrupt",
    ),
    Case(
        # Each part leaves a file of its own.
        "falls off its end, with children, a pool, an executor and an open file",
        "import atexit, multiprocessing, time\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "def child(): time.sleep(0.3); open('child', 'w').write('x')\n"
        "def work(n): time.sleep(0.1); open('executor', 'a').write(str(n))\n"
        "def add(text): open('atexit', 'a').write(text)\n"
        "fork = multiprocessing.get_context('fork')\n"
        "fork.Process(target=time.sleep, args=(99,), daemon=True).start()\n"
        "fork.Process(target=child).start()\n"
        "pool = fork.Pool(1)\n"
        "open('pool', 'w').write(str(pool.apply(abs, (-1,))))\n"
        "executor = ThreadPoolExecutor(1)\n"
        "for n in range(4): executor.submit(work, n)\n"
        "atexit.register(add, '1')\n"
        "atexit.register(lambda: 1 / 0)\n"
        "atexit.register(add, '2')\n"
        "log = open('log', 'w')\n"
        "for n in range(50): print('row', n, file=log)",
        files={
            "atexit": "21",
            "child": "x",
            "executor": "0123",
            "log": _ROWS,
            "pool": "1",
        },
    ),
    Case(
        "forked children: sys.exit(5), and an exception",
        "import os, sys\n"
        "def fork(end):\n"
        "    if os.fork() == 0: end()\n"
        "    code = os.waitstatus_to_exitcode(os.wait()[1])\n"
        "    open('codes', 'a').write(str(code))\n"
        "fork(lambda: sys.exit(5))\n"
        "fork(lambda: {}['a'])",
        files={"codes": "51"},
    ),
    # Standard output
    Case(
        "a full standard output",
        "import sys\nsys.stdout = open('/dev/full', 'w'); print('x')",
        (120,),
    ),
]
