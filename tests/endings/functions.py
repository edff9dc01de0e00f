"""Ways in which a function ends; each was seen with plain Python."""

from __future__ import annotations

from tests.endings.case import Case

__all__ = ["FUNCTIONS"]

_ROWS = "".join(f"row {number}\n" for number in range(50))
_LOG = "    for n in range(50): print('row', n, file=log)\n"
_X = "open('a', 'w').write('x')"

FUNCTIONS = [
    Case(
        "a function returns, and leaves its file open",
        f"def train():\n    log = open('a', 'w')\n{_LOG}    return 7",
        files={"a": _ROWS},
        returns=7,
    ),
    Case(
        "a function returns, and leaves a global file open",
        f"def train():\n    global log\n    log = open('a', 'w')\n{_LOG}",
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
    Case(
        "a function raises, with its file open",
        f"def train():\n    log = open('a', 'w')\n{_LOG}    raise KeyError('here')",
        (1,),
        {"a": _ROWS},
        "KeyError: 'here'",
    ),
    Case("a function: sys.exit(0)", "def train(): import sys; sys.exit(0)"),
    Case("a function: sys.exit(3)", "def train(): import sys; sys.exit(3)", (3,)),
    Case(
        "a function: KeyboardInterrupt",
        "def train(): raise KeyboardInterrupt",
        ("SIGINT",),
        prints="KeyboardInterrupt",
    ),
    Case(
        "a function: a thread works on",
        "import threading, time\n"
        f"def work(): time.sleep(0.5); {_X}\n"
        "def train():\n    threading.Thread(target=work).start()\n    return 'early'",
        files={"a": "x"},
        returns="early",
    ),
    Case(
        "a function: a child process, and a daemon",
        "import multiprocessing, time\n"
        f"def work(): time.sleep(0.3); {_X}\n"
        "def train():\n"
        "    fork = multiprocessing.get_context('fork')\n"
        "    fork.Process(target=time.sleep, args=(99,), daemon=True).start()\n"
        "    fork.Process(target=work).start()",
        files={"a": "x"},
    ),
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
]
