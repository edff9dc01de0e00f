"""The server extension beside a bare Jupyter server, with eight simulated GPUs.

Two servers run at the same time: with the extension, and without. The GPUs are
functions of NVML that answer at once, but for ``nvmlDeviceGetPcieThroughput``, which
takes 20 ms as on a real driver. Viewers are websockets of this process; its own time is
not counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import statistics as stdlib_statistics
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from tests.server.jupyter import TOKEN, Jupyter, jupyter
from tests.waiting import wait_until

Row = dict[str, Any]

GPUS = 8
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
FAKE_NVML = Path(__file__).parents[1] / "telemetry" / "fake_nvml"
HEADERS = {"Authorization": f"token {TOKEN}"}


def server_rows() -> list[Row]:
    """Return what watching costs, in rows of the benchmark."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        root = Path(folder)
        gpus = [
            {"uuid": f"GPU-{n:08x}-1111-2222-3333-444444444444"} for n in range(GPUS)
        ]
        paths = [str(FAKE_NVML), os.environ.get("PYTHONPATH", "")]
        variables = {
            "FAKE_NVML": json.dumps({"gpus": gpus}),
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        }
        bare = stack.enter_context(jupyter(root / "bare", extension=False))
        ours = stack.enter_context(jupyter(root / "ours", variables=variables))
        return asyncio.run(_measure(bare, ours))


async def _measure(bare: Jupyter, ours: Jupyter) -> list[Row]:
    rows: list[Row] = []
    idle = await _cpu_percent(bare)
    for viewers, limit in CPU_LIMITS.items():
        async with _watching(ours, viewers) as frames:
            await _settled(frames)
            server, sampler = await _cpu_parts(ours)
        what = (
            f"{GPUS} GPUs at 1 Hz, {WINDOW_SECONDS:g} s; server {server:.2f}, sampler "
            f"{sampler:.2f}; a bare server without a client {idle:.2f}"
        )
        name = f"server and sampler, {viewers} viewers"
        rows.append(_row(name, server + sampler, "% of a core", limit, what))
    async with _watching(ours, PROBED_VIEWERS) as frames:
        await _settled(frames)
        rows.append(await _status_row(bare, ours))
        rows += _memory_rows(bare, ours)
        rows.append(_frame_row(frames))
    rows.append(_end_row(ours))
    return rows


@contextlib.asynccontextmanager
async def _watching(server: Jupyter, viewers: int) -> AsyncIterator[list[bytes]]:
    """Watch with so many websockets; the list gets what the first one receives."""
    url = f"{server.url.replace('http', 'ws', 1)}nbkit/api/stream"
    sockets = [
        await websocket_connect(HTTPRequest(url, headers=HEADERS))
        for _ in range(viewers)
    ]
    frames: list[bytes] = []
    readers = [asyncio.create_task(_read(sockets[0], frames))]
    readers += [asyncio.create_task(_read(one, None)) for one in sockets[1:]]
    try:
        yield frames
    finally:
        for one in sockets:
            one.close()
        await asyncio.gather(*readers)


async def _read(one: WebSocketClientConnection, frames: list[bytes] | None) -> None:
    while (message := await one.read_message()) is not None:
        if frames is not None:
            frames.append(message.encode() if isinstance(message, str) else message)


async def _settled(frames: list[bytes]) -> None:
    """Wait until samples come: starting is not watching."""
    while sum(b'"type":"sample"' in frame for frame in frames) < 3:
        await asyncio.sleep(0.1)


async def _cpu_parts(server: Jupyter) -> tuple[float, float]:
    sampler = server.wait_for_sampler()
    both = (psutil.Process(server.process.pid), sampler)
    before = [_cpu_seconds(one) for one in both]
    began = time.monotonic()
    await asyncio.sleep(WINDOW_SECONDS)
    passed = time.monotonic() - began
    shares = [
        100 * (_cpu_seconds(one) - then) / passed
        for one, then in zip(both, before, strict=True)
    ]
    return shares[0], shares[1]


async def _cpu_percent(server: Jupyter) -> float:
    process = psutil.Process(server.process.pid)
    before = _cpu_seconds(process)
    await asyncio.sleep(WINDOW_SECONDS)
    return 100 * (_cpu_seconds(process) - before) / WINDOW_SECONDS


def _cpu_seconds(process: psutil.Process) -> float:
    """Return the time of all threads, in steps of 1 ns: clock ticks are 10 ms."""
    tasks = Path(f"/proc/{process.pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


async def _status_row(bare: Jupyter, ours: Jupyter) -> Row:
    """Ask both servers in turns, so that both have the same neighbours."""
    seconds: dict[Jupyter, list[float]] = {bare: [], ours: []}
    client = AsyncHTTPClient()
    for _ in range(int(WINDOW_SECONDS * PROBES_PER_SECOND)):
        for server, found in seconds.items():
            began = time.perf_counter()
            await client.fetch(f"{server.url}api/status", headers=HEADERS)
            found.append(time.perf_counter() - began)
        await asyncio.sleep(1 / PROBES_PER_SECOND)
    slow = {server: _p99(found) for server, found in seconds.items()}
    limit = max(STATUS_LIMIT_SECONDS, STATUS_LIMIT_RATIO * slow[bare])
    return _row(
        f"/api/status p99, {PROBED_VIEWERS} viewers",
        1e3 * slow[ours],
        "ms",
        round(1e3 * limit, 3),
        f"{len(seconds[ours])} requests in turns; bare {1e3 * slow[bare]:.1f} ms; "
        f"medians {1e3 * stdlib_statistics.median(seconds[ours]):.1f} and "
        f"{1e3 * stdlib_statistics.median(seconds[bare]):.1f} ms",
    )


def _p99(seconds: list[float]) -> float:
    return stdlib_statistics.quantiles(seconds, n=100)[-1]


def _memory_rows(bare: Jupyter, ours: Jupyter) -> list[Row]:
    plain, watched = (
        psutil.Process(server.process.pid).memory_info().rss / 2**20
        for server in (bare, ours)
    )
    sampler = ours.wait_for_sampler().memory_info().rss / 2**20
    return [
        _row(
            "server growth",
            watched - plain,
            "MiB",
            GROWTH_LIMIT_MIB,
            f"resident, {PROBED_VIEWERS} viewers after up to {max(CPU_LIMITS)}; "
            f"{watched:.1f} against {plain:.1f} of a bare server",
        ),
        _row("sampler memory", sampler, "MiB", SAMPLER_LIMIT_MIB, "resident"),
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
    return _row(
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
    return _row(
        "sampler gone",
        time.monotonic() - began,
        "s",
        END_LIMIT_SECONDS,
        "after the last viewer",
    )


def _row(name: str, value: float, unit: str, limit: float, conditions: str) -> Row:
    return {
        "name": name,
        "value": round(value, 4),
        "unit": unit,
        "limit": limit,
        "ok": value <= limit,
        "conditions": conditions,
    }


if __name__ == "__main__":
    for row in server_rows():
        print(json.dumps(row))
