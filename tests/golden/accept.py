"""``make golden``: take today's reports for those that are expected.

Words are rewritten; where a number has changed nothing is, unless NUMBERS=1 says that
it should have. The diff is for a person to read.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from tests.golden import stored
from tests.golden.reports import cases, current_report

__all__ = ["main"]


def main(names: Sequence[str], *, numbers: bool) -> int:
    """Rewrite the files of some cases, of all if none is named."""
    every = cases()
    unknown = [name for name in names if name not in every]
    if unknown:
        sys.stderr.write(f"{unknown[0]} is not one of {', '.join(every)}\n")
        return 2
    made = _made(names or every)
    refused = []
    for case, found in made.items():
        before = stored.read(case)
        for name in stored.FILES:
            differing = [*stored.differences(before[name], found[name])]
            # What differs by rounding alone is left as it is.
            if not differing:
                del found[name]
            elif name != stored.WORDS and not numbers:
                sys.stderr.write(f"{stored.describe(case, name, differing)}\n\n")
                refused += [case] * (case not in refused)
    if refused:
        sys.stderr.write(
            f"Nothing was written: numbers have changed in {', '.join(refused)}. If "
            "they should, NUMBERS=1 writes them, for a commit that says why.\n"
        )
        return 1
    for case, found in made.items():
        for name, value in found.items():
            stored.write(case, name, value)
            sys.stdout.write(f"wrote tests/golden/{case}/{name}\n")
    return 0


def _made(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return what is made of each case now, in two processes if they are many."""
    with tempfile.TemporaryDirectory() as folder:
        work = partial(_made_in, Path(folder).resolve())
        if len(names) == 1:
            return {names[0]: work(names[0])}
        with ProcessPoolExecutor(2) as pool:
            return dict(zip(names, pool.map(work, names), strict=True))


def _made_in(root: Path, name: str) -> dict[str, Any]:
    data, own = root / f"data-{os.getpid()}", root / name
    data.mkdir(exist_ok=True)
    own.mkdir(parents=True)
    return current_report(name, own, data)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], numbers=os.environ.get("NUMBERS") == "1"))
