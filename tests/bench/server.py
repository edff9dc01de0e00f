"""The server extension beside a bare Jupyter server, with eight simulated GPUs.

Two servers run at the same time: with the extension, and without.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

import psutil
from tornado.httpclient import AsyncHTTPClient

from tests.bench.rows import Row, row
from tests.bench.watching import (
    GPUS,
    answer_seconds,
    cpu_percents,
    gpu_variables,
    p99,
    resident_mib,
    watching,
)
from tests.server.jupyter import Jupyter, jupyter
from tests.waiting import wait_until

CORES = 64
WINDOW_SECONDS = float(os.environ.get("NBKIT_BENCH_WINDOW", "15"))
PROBES_PER_SECOND = 20
PROBED_VIEWERS = 16
# Percent of a core, by viewers.
CPU_LIMITS = {1: 1.0, 4: 1.0, 16: 1.0, 64: 2.0}
STATUS_LIMIT_SECONDS = 0.05
STATUS_LIMIT_RATIO = 1.5
FRAME_LIMIT_BYTES = 2048
GROWTH_LIMIT_MIB = 10
SAMPLER_LIMIT_MIB = 45
END_LIMIT_SECONDS = 10
STREAM = "nbkit/api/stream"


def server_rows() -> list[Row]:
    """Return what watching costs, in rows of the benchmark."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        root = Path(folder)
        bare = stack.enter_context(jupyter(root / "bare", extension=False))
        ours = stack.enter_context(jupyter(root / "ours", variables=gpu_variables()))
        return asyncio.run(_measure(bare, ours))


async def _measure(bare: Jupyter, ours: Jupyter) -> list[Row]:
    rows: list[Row] = []
    [idle] = await cpu_percents([psutil.Process(bare.process.pid)], WINDOW_SECONDS)
    for viewers, limit in CPU_LIMITS.items():
        async with watching(ours, [STREAM] * viewers) as watched:
            await _settled(watched[0].frames)
            both = [psutil.Process(ours.process.pid), ours.wait_for_sampler()]
            server, sampler = await cpu_percents(both, WINDOW_SECONDS)
            if viewers == max(CPU_LIMITS):
                rows += _memory_rows(bare, ours)
        what = (
            f"{GPUS} GPUs at 1 Hz, {WINDOW_SECONDS:g} s; server {server:.2f}, sampler "
            f"{sampler:.2f}; a bare server without a client {idle:.2f}"
        )
        name = f"server and sampler, {viewers} viewers"
        rows.append(row(name, server + sampler, "% of a core", limit, what))
    async with watching(ours, [STREAM] * PROBED_VIEWERS) as watched:
        await _settled(watched[0].frames)
        rows.append(await _status_row(bare, ours))
        rows.append(_frame_row(watched[0].frames))
    rows.append(_end_row(ours))
    return rows


async def _settled(frames: list[bytes]) -> None:
    """Wait until samples come: starting is not watching."""
    while sum(b'"type":"sample"' in frame for frame in frames) < 3:
        await asyncio.sleep(0.1)


async def _status_row(bare: Jupyter, ours: Jupyter) -> Row:
    """Ask both servers in turns, so that both have the same neighbours."""
    seconds: dict[Jupyter, list[float]] = {bare: [], ours: []}
    client = AsyncHTTPClient()
    for _ in range(int(WINDOW_SECONDS * PROBES_PER_SECOND)):
        for server, found in seconds.items():
            found.append(await answer_seconds(client, server))
        await asyncio.sleep(1 / PROBES_PER_SECOND)
    slow = {server: p99(found) for server, found in seconds.items()}
    limit = max(STATUS_LIMIT_SECONDS, STATUS_LIMIT_RATIO * slow[bare])
    return row(
        f"/api/status p99, {PROBED_VIEWERS} viewers",
        1e3 * slow[ours],
        "ms",
        round(1e3 * limit, 3),
        f"{len(seconds[ours])} requests in turns; bare {1e3 * slow[bare]:.1f} ms; "
        f"medians {1e3 * statistics.median(seconds[ours]):.1f} and "
        f"{1e3 * statistics.median(seconds[bare]):.1f} ms",
    )


def _memory_rows(bare: Jupyter, ours: Jupyter) -> list[Row]:
    plain, watched = (
        resident_mib(psutil.Process(server.process.pid)) for server in (bare, ours)
    )
    sampler = resident_mib(ours.wait_for_sampler())
    return [
        row(
            "server growth",
            watched - plain,
            "MiB",
            GROWTH_LIMIT_MIB,
            f"resident, {max(CPU_LIMITS)} viewers; {watched:.1f} against {plain:.1f} "
            "of a bare server",
        ),
        row("sampler memory", sampler, "MiB", SAMPLER_LIMIT_MIB, "resident"),
    ]


def _frame_row(frames: list[bytes]) -> Row:
    samples = [frame for frame in frames if b'"type":"sample"' in frame]
    longest = 0
    for frame in samples:
        values = json.loads(frame)
        assert len(values["gpus"]) == GPUS
        # A machine of so many processors, all of them busy.
        text = json.dumps({**values, "cores": [100] * CORES}, separators=(",", ":"))
        longest = max(longest, len(text))
    return row(
        "sample frame",
        longest,
        "bytes",
        FRAME_LIMIT_BYTES,
        f"longest of {len(samples)}, {GPUS} GPUs; {CORES} processors at 100 % put in "
        f"place of this machine's {os.cpu_count()}",
    )


def _end_row(server: Jupyter) -> Row:
    sampler = server.wait_for_sampler()
    began = time.monotonic()
    wait_until(lambda: not sampler.is_running(), "the sampler's end")
    return row(
        "sampler gone",
        time.monotonic() - began,
        "s",
        END_LIMIT_SECONDS,
        "after the last viewer",
    )


if __name__ == "__main__":
    for one in server_rows():
        print(json.dumps(one))
