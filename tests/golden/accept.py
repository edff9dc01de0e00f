"""``make golden``: take today's reports for those that are expected.

Words are rewritten; where a number has changed nothing is, unless NUMBERS=1 says that
it should have. The diff is for a person to read.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.golden import stored
from tests.golden.reports import cases, current_report

__all__ = ["main"]


def main(names: Sequence[str], *, numbers: bool) -> int:
    """Rewrite the files of some cases, of all if none is named.

    Parameters
    ----------
    names
        Such as ``scaling/gpu``.
    numbers
        Whether numbers may change.

    Returns
    -------
    int
        The exit status: 1 where numbers have changed and may not, 2 for a name that is
        none.
    """
    every = cases()
    unknown = [name for name in names if name not in every]
    if unknown:
        sys.stderr.write(f"{unknown[0]} is not one of {', '.join(every)}\n")
        return 2
    made = _made(names or every)
    refused = []
    for case, found in made.items():
        before = stored.read(case)["numbers"]
        changed = [*stored.differences(before, found["numbers"])]
        if changed and not numbers:
            sys.stderr.write(f"{stored.describe(case, 'numbers', changed)}\n\n")
            refused.append(case)
    if refused:
        sys.stderr.write(
            f"Nothing was written: numbers have changed in {', '.join(refused)}. If "
            "they should, NUMBERS=1 writes them, for a commit that says why.\n"
        )
        return 1
    for case, found in made.items():
        before = stored.read(case)
        for part in stored.PARTS:
            # What differs by rounding alone is left as it is.
            if any(stored.differences(before[part], found[part])):
                stored.write(case, part, found[part])
                sys.stdout.write(f"wrote tests/golden/{case}/{part}.json\n")
    return 0


def _made(names: Sequence[str]) -> dict[str, dict[str, object]]:
    """Return what is made of each case now."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        data = root / "data"
        data.mkdir()
        found = {}
        for number, name in enumerate(names):
            own = root / str(number)
            own.mkdir()
            found[name] = current_report(name, own, data)
        return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], numbers=os.environ.get("NUMBERS") == "1"))
