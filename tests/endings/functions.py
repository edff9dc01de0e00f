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
        "a function raises, with its file open",
        f"def train():\n    log = open('a', 'w')\n{_LOG}    raise KeyError('here')",
        (1,),
        {"a": _ROWS},
        "KeyError: 'here'",
    ),
    Case("a function: sys.exit(3)", "def train(): import sys; sys.exit(3)", (3,)),
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
]
