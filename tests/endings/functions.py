"""Ways in which a function ends; each was seen with plain Python."""

from __future__ import annotations

from tests.endings.case import Case

__all__ = ["FUNCTIONS"]

_ROWS = "".join(f"row {number}\n" for number in range(50))
_LOG = "    log = open('a', 'w')\n    for n in range(50): print('row', n, file=log)\n"

FUNCTIONS = [
    Case(
        "a function returns while a thread and children work on, and a file is open",
        "import multiprocessing, threading, time\n"
        "def work(name): time.sleep(0.3); open(name, 'w').write('x')\n"
        "def train():\n"
        "    fork = multiprocessing.get_context('fork')\n"
        "    fork.Process(target=time.sleep, args=(99,), daemon=True).start()\n"
        "    fork.Process(target=work, args=('child',)).start()\n"
        "    threading.Thread(target=work, args=('thread',)).start()\n"
        f"{_LOG}    return 7",
        files={"a": _ROWS, "child": "x", "thread": "x"},
        returns=7,
    ),
    Case(
        "a function raises, with its file open",
        f"def train():\n{_LOG}    raise KeyError('here')",
        (1,),
        {"a": _ROWS},
        "KeyError: 'here'",
    ),
    Case("a function: sys.exit(3)", "def train(): import sys; sys.exit(3)", (3,)),
]
