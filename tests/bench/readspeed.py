"""The Python reader beside fio: the same work on the same cold file.

Every reading is a process of its own, and the two take turns.
"""

from __future__ import annotations

import json
import math
import os
import statistics as stdlib_statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from nbkit import statistics
from tests.bench.rows import Row
from tests.bench.settings import BUILD

PAIRS = {"sequential": 21, "random": 61}
READINGS = {"sequential": 3, "random": 1}
"""Of each in a pair, of which the fastest counts. A third of all sequential readings is
at half speed where others use the disk too, whichever of the two reads; random ones
spread in both directions alike."""
FILE_BYTES = int(os.environ.get("NBKIT_BENCH_READ_BYTES", str(2**30)))
LIMIT = 1.1
"""The two may differ by 10 %, in either direction."""

_READ = """
import json, sys, nbkit
found = nbkit.readspeed.measure(
    sys.argv[1], pattern=sys.argv[2], engine=sys.argv[3], repeats=1
)
assert found.page_cache.proven, found.page_cache
rate = found.readings[0].bytes_per_second
print(json.dumps({"engine": found.engine, "bytes_per_second": rate}))
"""


def readspeed_rows() -> list[Row]:
    """Return the Python reader's rates over fio's, sequential and random."""
    # Not a temporary folder of the system, which may be memory.
    BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        path = Path(folder) / "file.bin"
        with path.open("wb") as file:
            for _ in range(FILE_BYTES // 2**20):
                file.write(os.urandom(2**20))
            os.fsync(file.fileno())
        return [_row(path, pattern) for pattern in ("sequential", "random")]


def _row(path: Path, pattern: str) -> Row:
    rates: dict[str, list[float]] = {"python": [], "fio": []}
    engine, pairs, readings = "", PAIRS[pattern], READINGS[pattern]
    for pair in range(pairs):
        order = ("python", "fio") if pair % 2 == 0 else ("fio", "python")
        fastest = dict.fromkeys(order, 0.0)
        for arm in order * readings:
            done = subprocess.run(
                [sys.executable, "-c", _READ, str(path), pattern, arm],
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            found = json.loads(done.stdout)
            fastest[arm] = max(fastest[arm], found["bytes_per_second"])
            engine = found["engine"] if arm == "fio" else engine
        for arm, rate in fastest.items():
            rates[arm].append(rate)
        print(f"pair {pair + 1}/{pairs} {pattern}: "
              f"python {rates['python'][-1] / 1e9:.2f}, "
              f"fio {rates['fio'][-1] / 1e9:.2f} GB/s", flush=True)  # fmt: skip
    ratios = [own / fio for own, fio in zip(rates["python"], rates["fio"], strict=True)]
    low, high = median_interval(ratios)
    within = low >= 1 / LIMIT and high <= LIMIT
    beyond = low > LIMIT or high < 1 / LIMIT
    interval = statistics.interval_in_words(low, high)
    counted = f"the fastest of {readings} processes" if readings > 1 else "one process"
    return {
        "name": f"Python reader / fio, {pattern} reads",
        "value": round(stdlib_statistics.median(ratios), 4),
        "unit": "ratio",
        "limit": LIMIT,
        "ok": True if within else False if beyond else None,
        "conditions": f"{pairs} pairs, of each {counted} in "
        f"turn, {engine}, {FILE_BYTES / 2**20:.0f} MiB, proven cold before each; 95 % "
        f"interval of the median pair {interval}"
        f"{'' if within or beyond else '; not resolved'}",
    }


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the median, by the sign test.

    A reading at half speed moves a mean, however many readings there are.
    """
    ordered, n = sorted(values), len(values)
    outside, cut = 0.0, 0
    while (outside := outside + 2 * math.comb(n, cut) / 2**n) <= 0.05:
        cut += 1
    if not cut:
        message = f"values: there are {n}, an interval of 95 % needs at least 6."
        raise ValueError(message)
    return ordered[cut - 1], ordered[-cut]


if __name__ == "__main__":
    print(json.dumps(readspeed_rows(), indent=1))
