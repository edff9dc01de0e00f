"""A cluster: 1,000 runs of one user in the store, and a run on 512 nodes of eight GPUs.

``python -m tests.bench.scale`` measures it and prints the table; it is a part of
``make bench`` too. Slurm is two commands that print 1,000 jobs and note their calls.

On paper:

Questions to the controller
    The processes of a user on a host ask squeue for all their jobs at once, at most
    every 5 s, whatever the number of runs and processes: 12 a minute while a server is
    looked at or a kernel waits, none else. A hundred users are 1,200 a minute (20 a
    second) at the very most; one question for each of 1,000 runs every 5 s would be
    12,000 a minute for a single process.
Store
    A step is a line of rank 0, however many ranks there are: 4 a second are about 1 kB.
    A sample is a line for each node: of 512 nodes of eight GPUs about 2 MB/s, which is
    most of all that a run writes. That part grows with nodes x time and not with runs,
    as nodes are shared.
Live view
    The page gets at most 64 devices and some lines over time, so that what is sent does
    not grow with the nodes. What is read does: 512 files of which each has a new line a
    second. Of more than 25 files all are read in one look, and then none for n/50 s:
    with 512 nodes every 10 s.
Supervisor
    A torchrun says where its ranks are by a small file that it replaces once a second:
    512 files a second, of which the supervisor reads each about once a second.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from nbkit.errors import ConfigError
from nbkit.launch.run import attach
from nbkit.server.run_table import StoredRunTable
from tests.bench.rows import Row, row
from tests.bench.scale_runs import (
    RUNS,
    WHO_VARIABLE,
    calls_a_minute,
    put_runs,
    put_slurm,
)
from tests.bench.scale_store import measured_sizes, store_rows
from tests.bench.scale_view import (
    GPUS,
    NODES,
    look_row,
    supervisor_row,
    tell_as_torchruns,
    view_rows,
    write_samples,
)
from tests.bench.settings import nbkit_fields, share_cpus

CALLS_SECONDS = max(31.0, 2 * float(os.environ.get("NBKIT_BENCH_WINDOW", "15")))
CALLS_LIMIT = 13.0
LISTING_LIMIT_SECONDS = 1.0
_LOOK_SECONDS = 2.0  # as the server does while somebody looks


def scale_rows() -> Iterator[Row]:
    """Measure everything, in a store of its own; yield each row as it comes."""
    names = ("NBKIT_HOME", "PATH")
    before = {name: os.environ.get(name) for name in names}
    try:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["NBKIT_HOME"] = str(Path(folder) / "real")
            yield from store_rows(measured_sizes(), NODES, GPUS, RUNS)
            os.environ["NBKIT_HOME"] = str(Path(folder) / "many")
            yield from _many_runs(Path(folder))
        with tempfile.TemporaryDirectory() as folder:
            os.environ["NBKIT_HOME"] = folder
            root = Path(folder) / "runs" / "20200101-000000-scale-aaaa"
            yield from view_rows(root)
            yield supervisor_row(root)
            yield look_row(root)
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _many_runs(folder: Path) -> list[Row]:
    config = nbkit_fields(engine="slurm", nnodes=NODES, gpus=GPUS)
    waiting = put_runs(folder / "many", config)
    calls = put_slurm(folder / "slurm")
    listing = _listing(calls)
    processes = {
        "server": ["server"],
        "kernel": ["kernel", waiting[-1]],
    }
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.bench.scale", *arguments],
            env={**os.environ, WHO_VARIABLE: who},
            stdout=subprocess.PIPE,
            text=True,
        )
        for who, arguments in processes.items()
    ]
    said = [process.communicate()[0].strip() for process in started]
    if any(process.returncode for process in started):
        message = "a process that asks has failed; its error is above."
        raise ConfigError(message)
    rate, counts = calls_a_minute(calls, processes.keys())
    asked = row(
        "questions to Slurm of a server and a kernel",
        rate,
        "a minute",
        CALLS_LIMIT,
        f"{RUNS} runs, {CALLS_SECONDS:.0f} s, both at the same time; calls {counts}; "
        + "; ".join(said),
    )
    return [asked, listing]


def _listing(calls: Path) -> Row:
    """Time a fresh process that lists all runs with their states."""
    code = (
        "import time; from collections import Counter; t = time.perf_counter(); "
        "from nbkit.store.run_list import list_runs; "
        "states = Counter(str(row.state) for row in list_runs()); "
        "print(time.perf_counter() - t, dict(states))"
    )
    seconds, states = [], ""
    for _ in range(3):
        told = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, WHO_VARIABLE: "listing"},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout
        passed, _, states = told.strip().partition(" ")
        seconds.append(float(passed))
    _, counts = calls_a_minute(calls, "listing")
    return row(
        f"listing {RUNS} Slurm runs",
        max(seconds),
        "s",
        LISTING_LIMIT_SECONDS,
        f"slowest of 3 fresh processes, {states}; calls of all three {counts}",
    )


def _serve() -> None:
    """List the newest runs as a server does that somebody looks at."""
    table, looks = StoredRunTable(None), 0
    began, cpu = time.monotonic(), time.process_time()
    while time.monotonic() - began < CALLS_SECONDS:
        table.poll([])
        looks += 1
        time.sleep(_LOOK_SECONDS)
    passed = time.monotonic() - began
    percent = 100 * (time.process_time() - cpu) / passed
    print(f"{looks} looks, {percent:.1f} % of a core")


def _wait(run_id: str) -> None:
    """Wait for a run in the queue, as a cell does."""
    cpu = time.process_time()
    try:
        attach(run_id).wait(CALLS_SECONDS)
    except TimeoutError:
        percent = 100 * (time.process_time() - cpu) / CALLS_SECONDS
        print(f"{percent:.1f} % of a core")


def main() -> None:
    """Measure, and print a table; or be one of the processes that are measured."""
    match sys.argv[1:]:
        case ["server"]:
            _serve()
        case ["kernel", run_id]:
            _wait(run_id)
        case ["samples", root]:
            write_samples(Path(root))
        case ["torchruns", root]:
            tell_as_torchruns(Path(root))
        case _:
            share_cpus()
            for one in scale_rows():
                words = {True: "ok", False: "OVER", None: "not resolved"}[one["ok"]]
                value = f"{one['value']:.3f} {one['unit']}"
                print(f"{words:<5} {one['name']:<42} {value:>20}  limit "
                      f"{one['limit']}  ({one['conditions']})", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
