"""The own reader beside fio: the same work on the same cold file.

Every reading is a process of its own, and the two take turns.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from nbkit import statistics
from tests.bench.rows import Row
from tests.bench.settings import BUILD

PAIRS = int(os.environ.get("NBKIT_BENCH_READ_PAIRS", "10"))
FILE_BYTES = int(os.environ.get("NBKIT_BENCH_READ_BYTES", str(2**30)))
LIMIT = 1.1
"""The two may differ by 10 %, in either direction."""

_READ = """
import json, sys, nbkit
found = nbkit.readspeed.measure(
    sys.argv[1], pattern=sys.argv[2], engine=sys.argv[3], repeats=1
)
assert found.coldness.proven, found.coldness
rate = found.readings[0].bytes_per_second
print(json.dumps({"engine": found.engine, "bytes_per_second": rate}))
"""


def readspeed_rows() -> list[Row]:
    """Return the own reader's rates over fio's, sequential and random."""
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
    rates: dict[str, list[float]] = {"own": [], "fio": []}
    engine = ""
    for pair in range(PAIRS):
        for arm in ("own", "fio") if pair % 2 == 0 else ("fio", "own"):
            done = subprocess.run(
                [sys.executable, "-c", _READ, str(path), pattern, arm],
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            found = json.loads(done.stdout)
            rates[arm].append(found["bytes_per_second"])
            engine = found["engine"] if arm == "fio" else engine
        print(f"pair {pair + 1}/{PAIRS} {pattern}: own {rates['own'][-1] / 1e9:.2f}, "
              f"fio {rates['fio'][-1] / 1e9:.2f} GB/s", flush=True)  # fmt: skip
    ratio = statistics.ratio(rates["own"], rates["fio"])
    low, high = ratio.ci_low, ratio.ci_high
    assert low is not None
    assert high is not None
    within = low >= 1 / LIMIT and high <= LIMIT
    beyond = low > LIMIT or high < 1 / LIMIT
    interval = statistics.interval_in_words(low, high)
    return {
        "name": f"own reader / fio, {pattern} reads",
        "value": round(ratio.estimate, 4),
        "unit": "ratio",
        "limit": LIMIT,
        "ok": True if within else False if beyond else None,
        "conditions": f"{PAIRS} interleaved pairs of processes, {engine}, "
        f"{FILE_BYTES / 2**20:.0f} MiB, proven cold before each; 95 % interval "
        f"{interval}{'' if within or beyond else '; not resolved'}",
    }


if __name__ == "__main__":
    print(json.dumps(readspeed_rows(), indent=1))
