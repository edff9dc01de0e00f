"""nbkit's server extension beside jupyterlab-nvdashboard, with eight simulated GPUs.

Each monitor has a Jupyter server of its own; one more is bare. They take turns at every
number of tabs, and each turn begins when the servers are at rest again. Only the peer's
two periods are measured at the same time: it mostly sleeps in the driver, so that each
leaves the processors to the other.

A turn has two windows. The first one counts processor time and frames. In the second
one ``/api/status`` is asked at fixed times, whether or not earlier questions are
answered: asking one by one would ask a blocked server seldom, and spare it.

This runs in the peers' environment, where nvdashboard is installed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
from tornado.httpclient import AsyncHTTPClient

import nbkit
from tests.bench.rows import spread
from tests.bench.watching import (
    GPUS,
    Viewer,
    answer_seconds,
    cpu_percents,
    gpu_variables,
    p99,
    resident_mib,
    watching,
)
from tests.server.jupyter import Jupyter, jupyter

Arms = dict[str, list[dict[str, Any]]]

ROUNDS = int(os.environ.get("NBKIT_BENCH_ROUNDS", "3"))
WINDOW_SECONDS = float(os.environ.get("NBKIT_BENCH_WINDOW", "8"))
# So few that all of a window fit into the queue of a blocked server, which holds 128.
PROBES_PER_SECOND = 30
TABS = (1, 4, 16)
SETTLING_SECONDS = 3
LIMIT_SECONDS = 120
REST_SECONDS = 0.5
OURS = "nbkit.server"
PEER = "jupyterlab_nvdashboard"
# A route of each, to see who is there.
ROUTES = {OURS: "nbkit/api/runs", PEER: "nvdashboard/accelerators/check"}


@dataclass(frozen=True)
class Monitor:
    """A server's extension, and what one tab of it opens."""

    name: str
    extension: str
    views: Mapping[str, str]
    """Path of each websocket, and the list with one value per GPU in its samples."""
    period_ms: int = 1000
    greeting: str | None = None
    """What a tab answers to the first message."""

    def is_sample(self, path: str, frame: bytes) -> bool:
        """Return whether a frame has a value for each GPU."""
        message = json.loads(frame)
        values = message.get(self.views[path], ())
        return message.get("type", "sample") == "sample" and len(values) == GPUS


def _peer(period_ms: int) -> Monitor:
    return Monitor(
        name=f"{PEER.replace('_', '-')} {version(PEER)}, {period_ms} ms",
        extension=PEER,
        views={
            "nvdashboard/gpu_utilization": "gpu_utilization",
            "nvdashboard/gpu_usage": "memory_usage",
            "nvdashboard/gpu_resource": "gpu_utilization_individual",
            "nvdashboard/pci_stats": "pci_tx",
            "nvdashboard/nvlink_throughput": "nvlink_rx",
        },
        period_ms=period_ms,
        greeting=json.dumps({"updateFrequency": period_ms, "isPaused": False}),
    )


def monitor_arms() -> Arms:
    """Return all values by arm: a server, and how many tabs watch it."""
    bare = Monitor("bare Jupyter server", "", {})
    ours = Monitor(
        f"nbkit {nbkit.__version__}, 1000 ms", OURS, {"nbkit/api/stream": "gpus"}
    )
    # 100 ms is what its tabs ask for unless they are told otherwise.
    peers = [_peer(100), _peer(1000)]
    turns = [(0, [bare])]
    for tabs in TABS:
        turns += [(tabs, [ours]), (tabs, peers)]
    arms: Arms = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        servers = {
            one.name: stack.enter_context(_server(one, Path(folder) / str(number)))
            for number, one in enumerate([bare, ours, *peers])
        }
        for number in range(ROUNDS):
            for tabs, monitors in turns if number % 2 == 0 else reversed(turns):
                found = asyncio.run(_turn(monitors, tabs, servers, servers[bare.name]))
                for name, values in found.items():
                    arms.setdefault(name, []).append(values)
            print(f"monitor: round {number + 1} of {ROUNDS} done", flush=True)
    return arms


def print_monitors(arms: Arms) -> None:
    """Print medians and ranges over the rounds."""
    title = f"monitor: {GPUS} simulated GPUs, {WINDOW_SECONDS:g} s"
    columns = ("CPU, % of a core", "status p50, ms", "p99, ms", "max, ms")
    _print_columns(title, columns, {arm: _cost(rows) for arm, rows in arms.items()})
    watched = {arm: rows for arm, rows in arms.items() if rows[0]["tabs"]}
    columns = ("kB/s a tab", "samples/s a tab", "growth, MiB", "children, MiB")
    _print_columns("", columns, {arm: _gain(rows) for arm, rows in watched.items()})
    print(
        "CPU: server and children; sample: a frame with a value for each GPU.\n"
        "The two peers of a number of tabs run at once. Growth: of the server against\n"
        f"the bare one, after up to {max(TABS)} tabs: earlier turns are in it."
    )


def _print_columns(
    title: str, columns: Sequence[str], cells: Mapping[str, list[str]]
) -> None:
    print(f"\n{title:<50}{''.join(f'{column:>28}' for column in columns)}    n")
    for arm, (*row, n) in cells.items():
        print(f"{arm:<50}{''.join(f'{cell:>28}' for cell in row)}   {n:>2}")


def _cost(rows: list[dict[str, Any]]) -> list[str]:
    status_ms = [[1e3 * seconds for seconds in row["status_seconds"]] for row in rows]
    return [
        spread([row["cpu_percent"] for row in rows]),
        *(spread([*map(look, status_ms)]) for look in (statistics.median, p99, max)),
        str(len(rows)),
    ]


def _gain(rows: list[dict[str, Any]]) -> list[str]:
    samples = spread([row["samples_per_second_per_tab"] for row in rows])
    return [
        spread([row["bytes_per_second_per_tab"] / 1e3 for row in rows]),
        f"{samples} of {rows[0]['samples_asked_per_second_per_tab']:g}",
        spread([row["growth_mib"] for row in rows]),
        spread([row["children_mib"] for row in rows]),
        str(len(rows)),
    ]


def _arm(monitor: Monitor, tabs: int) -> str:
    plural = "s" if tabs > 1 else ""
    return f"{monitor.name}, {tabs} tab{plural}" if tabs else monitor.name


@contextlib.contextmanager
def _server(monitor: Monitor, folder: Path) -> Iterator[Jupyter]:
    """Start a server that has this monitor and no other."""
    # What is installed is enabled; this folder has the last word.
    config = folder / "last-word" / "jupyter_server_config.d" / "peer.json"
    config.parent.mkdir(parents=True)
    enabled = {PEER: monitor.extension == PEER}
    config.write_text(json.dumps({"ServerApp": {"jpserver_extensions": enabled}}))
    variables = {**gpu_variables(), "JUPYTER_CONFIG_PATH": str(config.parents[1])}
    ours = monitor.extension == OURS
    with jupyter(folder, variables=variables, extension=ours) as server:
        for extension, path in ROUTES.items():
            status = server.request(path).status
            if status != (200 if extension == monitor.extension else 404):
                message = (
                    f"The server of {monitor.name!r} answers {status} to {path}, but "
                    f"{monitor.extension or 'no monitor'} alone should be in it; read "
                    f"its log:\n{server.log[-2000:]}"
                )
                raise AssertionError(message)
        yield server


async def _turn(
    monitors: list[Monitor], tabs: int, servers: Mapping[str, Jupyter], bare: Jupyter
) -> dict[str, dict[str, Any]]:
    names = [_arm(monitor, tabs) for monitor in monitors]
    found = await asyncio.gather(
        *(_measure(one, tabs, servers[one.name], bare) for one in monitors)
    )
    return dict(zip(names, found, strict=True))


async def _measure(
    monitor: Monitor, tabs: int, server: Jupyter, bare: Jupyter
) -> dict[str, Any]:
    """Return what so many tabs cost a server, and what they get for it."""
    process, plain = (psutil.Process(one.process.pid) for one in (server, bare))
    async with watching(server, [*monitor.views] * tabs, monitor.greeting) as viewers:
        await _settled(monitor, viewers, server)
        opened = [len(viewer.frames) for viewer in viewers]
        children = process.children(recursive=True)
        shares = await cpu_percents([process, *children], WINDOW_SECONDS)
        received = [
            (viewer.path, frame)
            for viewer, first in zip(viewers, opened, strict=True)
            for frame in viewer.frames[first:]
        ]
        samples = sum(monitor.is_sample(path, frame) for path, frame in received)
        if viewers and not samples:
            what = f"{len(received)} frames, none with {GPUS} GPUs"
            raise AssertionError(_said(monitor, tabs, server, WINDOW_SECONDS, what))
        values = {
            "tabs": tabs,
            "cpu_percent": sum(shares),
            "status_seconds": await _status_seconds(server),
            "growth_mib": resident_mib(process) - resident_mib(plain),
            "children_mib": sum(map(resident_mib, children)),
        }
    await _rested(server)
    if not tabs:
        return values
    received_bytes = sum(len(frame) for _, frame in received)
    return {
        **values,
        "samples": samples,
        "samples_per_second_per_tab": samples / WINDOW_SECONDS / tabs,
        "samples_asked_per_second_per_tab": len(monitor.views)
        / (monitor.period_ms / 1e3),
        "bytes_per_second_per_tab": received_bytes / WINDOW_SECONDS / tabs,
    }


async def _settled(monitor: Monitor, viewers: list[Viewer], server: Jupyter) -> None:
    """Wait until each websocket has brought a sample: starting is not watching."""
    began = time.monotonic()
    await asyncio.sleep(SETTLING_SECONDS)
    silent = viewers
    while silent := [
        one
        for one in silent
        if not any(monitor.is_sample(one.path, frame) for frame in one.frames)
    ]:
        if time.monotonic() - began > LIMIT_SECONDS:
            paths = ", ".join(sorted({viewer.path for viewer in silent}))
            what = f"no sample through {len(silent)} of {len(viewers)} of: {paths}"
            tabs = len(viewers) // len(monitor.views)
            raise AssertionError(_said(monitor, tabs, server, LIMIT_SECONDS, what))
        await asyncio.sleep(0.1)


def _said(
    monitor: Monitor, tabs: int, server: Jupyter, seconds: float, what: str
) -> str:
    return (
        f"{_arm(monitor, tabs)}: in {seconds:g} s came {what}. There is nothing to "
        f"compare with; read the server's log:\n{server.log[-2000:]}"
    )


async def _status_seconds(server: Jupyter) -> list[float]:
    """Ask at fixed times, and wait for the answers of all."""
    client = AsyncHTTPClient(force_instance=True, max_clients=1000)
    asked = []
    for _ in range(int(PROBES_PER_SECOND * WINDOW_SECONDS / 2)):
        asked.append(asyncio.create_task(answer_seconds(client, server, LIMIT_SECONDS)))
        await asyncio.sleep(1 / PROBES_PER_SECOND)
    seconds = await asyncio.gather(*asked)
    client.close()
    return seconds


async def _rested(server: Jupyter) -> None:
    """Wait until a server that nobody watches any more answers at once."""
    client = AsyncHTTPClient(force_instance=True)
    while await answer_seconds(client, server, LIMIT_SECONDS) > REST_SECONDS:
        pass
    client.close()


if __name__ == "__main__":
    print_monitors(monitor_arms())
