"""`make bench`: budgets of nbkit itself, measured side by side where it is a ratio.

Writes ``build/bench.json``, a list of {name, value, unit, limit, ok, conditions}, and
prints it as a table. ``ok`` is null where the measurement does not resolve the limit,
which counts as over.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

import nbkit
from nbkit.store.record import RunState
from nbkit.telemetry.cpus import usable_cpus
from tests.bench.cpu_binding import binding_rows
from tests.bench.curves import curve_rows
from tests.bench.endings import ending_row
from tests.bench.estimates import estimate_row
from tests.bench.finiteness import finiteness_row
from tests.bench.live_view import live_view_row
from tests.bench.loaders import loader_rows
from tests.bench.queued_runs import queue_rows
from tests.bench.readspeed import readspeed_rows
from tests.bench.report import report_rows
from tests.bench.rows import Row, ratio_row, row, within
from tests.bench.scale import scale_rows
from tests.bench.server import server_rows
from tests.bench.settings import (
    BUILD,
    RANKS,
    SETTINGS,
    THREADS_PER_RANK,
    nbkit_fields,
    run_loop,
    share_cpus,
)

_LOOKS = {
    # Their states are in their records.
    "nbkit.runs('finished')": "import nbkit; nbkit.runs('finished')",
    "nbkit runs": "from nbkit.cli.main import main; main(['runs'])",
}
PAIRS = int(os.environ.get("NBKIT_BENCH_PAIRS", "10"))


def main() -> None:
    """Measure every budget, print the table, write the file."""
    share_cpus()
    with tempfile.TemporaryDirectory() as home:
        os.environ["NBKIT_HOME"] = home
        rows = [
            import_time(),
            launch_returns(),
            *worker_against_plain_ddp(),
            ending_row(PAIRS),
            finiteness_row(),
            *binding_rows(),
            supervisor_memory(),
            *queue_rows(),
        ]
    with tempfile.TemporaryDirectory() as home:
        os.environ["NBKIT_HOME"] = home
        rows += listing_ten_thousand_runs()
    rows += loader_rows()
    rows += readspeed_rows()
    rows += server_rows()
    rows.append(live_view_row())
    rows += curve_rows()
    rows += report_rows()
    rows.append(estimate_row())
    rows += scale_rows()
    BUILD.mkdir(exist_ok=True)
    (BUILD / "bench.json").write_text(json.dumps(rows, indent=1) + "\n")
    _print_table(rows)
    if not within(rows):
        sys.exit(1)


def import_time() -> Row:
    """Time ``import nbkit`` in fresh interpreters; torch must stay out."""
    code = (
        "import time, sys; t = time.perf_counter(); import nbkit; "
        "t = time.perf_counter() - t; assert 'torch' not in sys.modules; print(t)"
    )
    seconds = [float(_python(code)) for _ in range(10)]
    return row("import nbkit", max(seconds), "s", 0.2, "slowest of 10 processes")


def launch_returns() -> Row:
    """Time ``launch()`` in fresh interpreters, its own imports included."""
    code = (
        "import json, sys, time, nbkit; c = json.loads(sys.argv[1]); "
        "t = time.perf_counter(); run = nbkit.launch(**c); "
        "print(time.perf_counter() - t); run.stop(grace_seconds=0)"
    )
    config = json.dumps(nbkit_fields(steps=5, warmup_steps=1))
    seconds = [float(_python(code, config)) for _ in range(10)]
    return row(
        "launch() returns",
        statistics.median(seconds),
        "s",
        0.2,
        f"median of 10 fresh processes, first call with its imports; "
        f"{min(seconds):.3f} to {max(seconds):.3f}",
    )


def worker_against_plain_ddp() -> list[Row]:
    """Compare worker and plain loop: CPU time per image, and time to the first step."""
    cpu: dict[str, list[float]] = {"plain": [], "nbkit": []}
    first: dict[str, list[float]] = {"plain": [], "nbkit": []}
    measure: dict[str, Callable[[], tuple[float, float]]] = {
        "plain": _plain,
        "nbkit": _nbkit,
    }
    for pair in range(PAIRS):
        order = ("plain", "nbkit") if pair % 2 == 0 else ("nbkit", "plain")
        for arm in order:
            cpu_ms, first_seconds = measure[arm]()
            cpu[arm].append(cpu_ms)
            first[arm].append(first_seconds)
            print(f"pair {pair + 1}/{PAIRS} {arm}: {cpu_ms:.2f} CPU ms/image, first "
                  f"step after {first_seconds:.2f} s", flush=True)  # fmt: skip
    conditions = (
        f"{PAIRS} interleaved pairs, {RANKS} gloo ranks on {usable_cpus():g} usable "
        f"CPUs with OMP_NUM_THREADS={THREADS_PER_RANK}, "
        f"{SETTINGS['model']} {SETTINGS['image_size']} px, batch "
        f"{SETTINGS['batch_size_per_gpu']}, {SETTINGS['steps']} steps; "
    )
    return [
        ratio_row(
            "worker / plain DDP, images per CPU second",
            [1 / value for value in cpu["nbkit"]],
            [1 / value for value in cpu["plain"]],
            0.97,
            conditions,
        ),
        ratio_row(
            "bare torchrun / launch(), time to first step",
            first["plain"],
            first["nbkit"],
            1.0,
            conditions,
        ),
    ]


def supervisor_memory() -> Row:
    """Read the resident memory of a supervisor whose run is under way."""
    run = nbkit.launch(**nbkit_fields(steps=10_000))
    while run.state is not RunState.RUNNING or len(run.metrics()) < 3:
        time.sleep(0.1)
    supervisor = psutil.Process(run.record["supervisor"]["pid"])
    mebibytes = supervisor.memory_info().rss / 2**20
    others = [
        f"{child.memory_info().rss / 2**20:.0f} MiB for {child.cmdline()[3]}"
        for child in supervisor.children()
        if "nbkit.telemetry.sampler" in child.cmdline()
    ]
    run.stop(grace_seconds=0)
    beside = "; beside it " + ", ".join(others) if others else ""
    return row("supervisor memory", mebibytes, "MiB", 60, f"resident{beside}")


def listing_ten_thousand_runs() -> list[Row]:
    """Time processes that list 10,000 runs with state and name, process start apart."""
    run = nbkit.launch(**nbkit_fields(steps=5, warmup_steps=1)).wait()
    for number in range(10_000):
        copy = run.paths.root.with_name(f"20200101-{number:06d}-copy-aaaa")
        copy.mkdir()
        for name in ("config.json", "submission.json", "record.json"):
            shutil.copy2(run.paths.root / name, copy / name)
    cold = _drop_caches()
    first, _, _ = _listed()
    again = [_listed() for _ in range(5)]
    looks = {what: [_looked(code) for _ in range(5)] for what, code in _LOOKS.items()}
    dropped = "dropped first" if cold else "warm (dropping it needs root)"
    what = "listing 10,000 runs"
    times = "id, state, name and times of each"
    fresh, warm, mebibytes = (statistics.median(it) for it in zip(*again, strict=True))
    return [
        row(what, first, "s", 2.0, f"fresh process, {times}; page cache {dropped}; "
            f"warm {fresh:.2f} s (median of 5)"),
        row(f"{what}, again", warm, "s", 0.1, "second look of the same process; "
            "median of 5"),
        row(f"{what}, memory", mebibytes, "MiB", 90, "largest resident"),
        *(
            row(f"{name} of 10,000{more}", statistics.median(seconds), "s", limit,
                "its imports included, page cache warm; median of 5")
            for name, times in looks.items()
            for more, seconds, limit in zip(
                ("", ", again"), zip(*times, strict=True), (2.0, 0.1), strict=True
            )
        ),
    ]  # fmt: skip


def _looked(code: str) -> tuple[float, float]:
    """Return the times of the first and the second time that a process does it."""
    program = (
        f"import time; t = time.perf_counter(); {code}; "
        f"first = time.perf_counter() - t; t = time.perf_counter(); {code}; "
        "print(first, time.perf_counter() - t)"
    )
    first, again = map(float, _python(program).splitlines()[-1].split())
    return first, again


def _listed() -> tuple[float, float, float]:
    """Return the times of a fresh process's first and second look, and its memory."""
    code = (
        "import time; t = time.perf_counter(); "
        "from nbkit.store.run_list import list_runs; rows = list_runs(); "
        "first = time.perf_counter() - t; "
        "assert [row.state for row in rows] == ['finished'] * 10_001; "
        "t = time.perf_counter(); list_runs(); again = time.perf_counter() - t; "
        # What getrusage calls the largest may be that of whoever has started it.
        "[peak] = [line for line in open('/proc/self/status') if 'VmHWM' in line]; "
        "print(first, again, int(peak.split()[1]) / 1024)"
    )
    first, again, mebibytes = map(float, _python(code).split())
    return first, again, mebibytes


def _nbkit() -> tuple[float, float]:
    began = time.time()
    run = nbkit.launch(**nbkit_fields()).wait()
    first = run.metrics()[0]["t"] - began
    cpu_ms = run.summary.cpu_ms_per_image
    assert cpu_ms is not None
    return cpu_ms, first


def _plain() -> tuple[float, float]:
    began = time.time()
    line = run_loop("plain_ddp.py")
    return line["cpu_ms_per_image"], line["first_step_at"] - began


def _python(code: str, *arguments: str) -> str:
    # As for everybody whose Python keeps what it has compiled.
    name = "PYTHONDONTWRITEBYTECODE"
    variables = {key: value for key, value in os.environ.items() if key != name}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=variables,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout


def _drop_caches() -> bool:
    try:
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError:
        return False
    return True


def _print_table(rows: list[Row]) -> None:
    print(f"\n{platform.node()}: {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
    words = {True: "ok", False: "OVER", None: "not resolved"}
    for one in rows:
        value = f"{one['value']:.3f} {one['unit']}"
        print(f"{words[one['ok']]:<13} {one['name']:<46} {value:>14}  "
              f"limit {one['limit']}  ({one['conditions']})")  # fmt: skip


if __name__ == "__main__":
    main()
