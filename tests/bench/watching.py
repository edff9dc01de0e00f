"""Viewers of a Jupyter server with eight simulated GPUs, and what the server then does.

The GPUs are functions of NVML that answer at once, but for
``nvmlDeviceGetPcieThroughput``, which takes 20 ms as on a real driver. Viewers are
websockets of this process; its own time is not counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from tests.server.jupyter import TOKEN, Jupyter

GPUS = 8
FAKE_NVML = Path(__file__).parents[1] / "telemetry" / "fake_nvml"
HEADERS = {"Authorization": f"token {TOKEN}"}
# A server that is kept busy takes its time, and shall not fail for that.
CONNECT_LIMIT_SECONDS = 120


def gpu_variables() -> dict[str, str]:
    """Return the environment variables of a server that finds the simulated GPUs."""
    gpus = [{"uuid": f"GPU-{n:08x}-1111-2222-3333-444444444444"} for n in range(GPUS)]
    paths = [str(FAKE_NVML), os.environ.get("PYTHONPATH", "")]
    return {
        "FAKE_NVML": json.dumps({"gpus": gpus}),
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }


@dataclass
class Viewer:
    """A websocket, and what has come through it."""

    path: str
    socket: WebSocketClientConnection
    frames: list[bytes] = field(default_factory=list)

    async def read(self, greeting: str | None) -> None:
        """Read until the end; answer the first message if there is an answer."""
        while (message := await self.socket.read_message()) is not None:
            if greeting is not None and not self.frames:
                await self.socket.write_message(greeting)
            binary = message.encode() if isinstance(message, str) else message
            self.frames.append(binary)


@contextlib.asynccontextmanager
async def watching(
    server: Jupyter, paths: Sequence[str], greeting: str | None = None
) -> AsyncIterator[list[Viewer]]:
    """Watch through a websocket for each path."""
    base = server.url.replace("http", "ws", 1)
    # All at once: a busy server may get to new ones only now and then.
    sockets = await asyncio.gather(
        *(websocket_connect(_request(f"{base}{path}")) for path in paths)
    )
    viewers = [Viewer(*each) for each in zip(paths, sockets, strict=True)]
    readers = [asyncio.create_task(viewer.read(greeting)) for viewer in viewers]
    try:
        yield viewers
    finally:
        for viewer in viewers:
            viewer.socket.close()
        await asyncio.gather(*readers)


def _request(url: str) -> HTTPRequest:
    return HTTPRequest(url, headers=HEADERS, connect_timeout=CONNECT_LIMIT_SECONDS)


async def cpu_percents(
    processes: Sequence[psutil.Process], seconds: float
) -> list[float]:
    """Return what each process takes of a core, in percent, over the next seconds."""
    before = [_cpu_seconds(process) for process in processes]
    began = time.monotonic()
    await asyncio.sleep(seconds)
    passed = time.monotonic() - began
    return [
        100 * (_cpu_seconds(process) - then) / passed
        for process, then in zip(processes, before, strict=True)
    ]


def _cpu_seconds(process: psutil.Process) -> float:
    """Return the time of all threads, in steps of 1 ns: clock ticks are 10 ms."""
    tasks = Path(f"/proc/{process.pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


async def answer_seconds(
    client: AsyncHTTPClient, server: Jupyter, limit_seconds: float = 20
) -> float:
    """Return how long the server takes to answer that it lives."""
    began = time.perf_counter()
    await client.fetch(
        f"{server.url}api/status",
        headers=HEADERS,
        connect_timeout=limit_seconds,
        request_timeout=limit_seconds,
    )
    return time.perf_counter() - began


def p99(seconds: Sequence[float]) -> float:
    """Return the 99th percentile; of few values that is the longest."""
    return min(statistics.quantiles(seconds, n=100)[-1], max(seconds))


def resident_mib(process: psutil.Process) -> float:
    """Return the resident memory of a process in MiB."""
    return process.memory_info().rss / 2**20
