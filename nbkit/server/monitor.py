"""Background work while viewers are connected: sampler, kernels and runs.

Without viewers there is no process, no poll and no timer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any

from nbkit.errors import StoreError
from nbkit.packages import version
from nbkit.server.feed import SamplerFeed
from nbkit.server.gauges import Gauges
from nbkit.server.history import History
from nbkit.server.reports import Reports
from nbkit.server.run_table import NEWEST, StoredRunTable, StoreView
from nbkit.server.store_thread import StoreThread
from nbkit.server.stream import Hub, Viewer
from nbkit.server.tensorboards import TensorBoards
from nbkit.store.paths import store_folder
from nbkit.store.processes import RUN_ID_VARIABLE
from nbkit.telemetry.holders import Kernel
from nbkit.visible import visible

FEED_COMMAND = ("-m", "nbkit.telemetry.feed", "--run-marker", RUN_ID_VARIABLE)

_GRACE_SECONDS = 5.0
"""A page that is reloaded comes back within this; then the sampler ends."""
_LOOK_SECONDS = 2.0
_QUIET_SECONDS = 10.0
"""After so long a viewer gets a sign of life: a quiet server is not a dead one."""
_PAST_SECONDS = 0.5
"""Rows of the past come in batches; viewers get the history when no more came."""


@dataclass(frozen=True)
class Settings:
    """What an administrator chose; see `nbkit.server.app.NbkitServer`."""

    interval_seconds: float = 1.0
    read_only: bool = False
    hide_commands_of_others: bool = False
    metrics: bool = False


class Monitor:
    """Watches the machine on behalf of all viewers."""

    def __init__(
        self,
        settings: Settings,
        runs: StoredRunTable,
        list_kernels: Callable[[], Awaitable[list[Kernel]]],
        tensorboards: TensorBoards,
        log: logging.Logger,
        feed_command: Sequence[str] = FEED_COMMAND,
    ) -> None:
        self.settings = settings
        self.runs = runs
        self._list_kernels = list_kernels
        self.tensorboards = tensorboards
        self.reports = Reports()
        self.log = log
        self.version = version()
        """Of nbkit."""
        self.store = StoreThread()
        interval = settings.interval_seconds
        self._hub = Hub(interval)
        self._history = History(interval)
        self._gauges = Gauges() if settings.metrics else None
        self._feed = SamplerFeed(
            # Exactly: a page asks for the sampler's interval, and less is raised.
            [*feed_command, "--interval", str(interval)],
            interval,
            self._on_line,
            self._on_state,
            log,
        )
        self._feed.send(hide_commands_of_others=settings.hide_commands_of_others)
        self._inventory: dict[str, Any] = {}
        self._inventory_seq = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._ending: asyncio.Task[None] | None = None
        self._filled_seq = 0
        self._past_timer: asyncio.TimerHandle | None = None
        self._rows: dict[str, Any] | None = None
        self._wants_past = False
        self._sampler: tuple[str, str | None] = ("starting", None)
        self._runs_fault: str | None = None
        self._kernels_fault: str | None = None

    def watch(self) -> None:
        """Begin to watch; a second call does nothing."""
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        self._feed.start()
        if not self._tasks:
            self._wants_past = True
            loop = asyncio.get_running_loop()
            self._tasks = [
                loop.create_task(self._poll_forever()),
                loop.create_task(self._show_life()),
            ]

    def connect(self, viewer: Viewer, stream: str | None, since: int | None) -> None:
        """Show a viewer everything, or what it missed."""
        self.watch()
        # Before the past was filled in, more is missing than what came since then.
        is_filled = since is not None and since >= self._filled_seq
        known = since if is_filled and stream == self._hub.stream else None
        self._hub.add(viewer, self._history_frame(known))

    def disconnect(self, viewer: Viewer) -> None:
        """Forget a viewer; after the last one the watch ends in a moment."""
        self._hub.remove(viewer)
        alone = not self._hub.viewers and not self.settings.metrics
        if alone and self._tasks and self._ending is None:
            loop = asyncio.get_running_loop()
            self._ending = loop.create_task(self._end_later())

    async def poll(self, limit: int = NEWEST) -> StoreView:
        """Return the newest runs, and older ones that have not ended."""
        kernels = await self.kernels() or []
        return await self.store.do(lambda: self.runs.poll(kernels, limit))

    async def kernels(self) -> list[Kernel] | None:
        """Return the server's kernels; None if it fails to tell, which is logged."""
        try:
            kernels = await self._list_kernels()
        except Exception as error:  # noqa: BLE001 - all else works without
            fault = f"{type(error).__name__}: {error}"
            if fault != self._kernels_fault:
                self.log.warning("nbkit: kernels cannot be listed: %s", fault)
            self._kernels_fault = fault
            return None
        self._kernels_fault = None
        return kernels

    async def close(self) -> None:
        """End everything."""
        if self._ending is not None:
            self._ending.cancel()
        await asyncio.gather(self._end(), self.tensorboards.close())
        self.store.close()

    async def _end_later(self) -> None:
        await asyncio.sleep(_GRACE_SECONDS)
        # From here on it is not cancelled: a viewer that comes now starts a new watch.
        self._ending = None
        await self._end()

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks = []
        if self._past_timer is not None:
            self._past_timer.cancel()
        await self._feed.stop()

    async def _poll_forever(self) -> None:
        while True:
            try:
                await self._poll_once()
                self._set_runs_fault(None)
            except StoreError as error:
                self._set_runs_fault(str(error))
            except Exception as error:  # noqa: BLE001 - the next poll may succeed
                self._set_runs_fault(f"{type(error).__name__}: {error}")
            await asyncio.sleep(_LOOK_SECONDS)

    async def _show_life(self) -> None:
        while True:
            await asyncio.sleep(max(_QUIET_SECONDS - self._hub.quiet_seconds, 0.01))
            if self._hub.quiet_seconds >= _QUIET_SECONDS:
                self._broadcast_status()

    async def _poll_once(self) -> None:
        kernels = await self.kernels()
        if kernels is not None:
            self._feed.send(kernels=[*map(asdict, kernels)])
        view = await self.store.do(lambda: self.runs.poll(kernels or []))
        self._feed.send(runs=view.active)
        if self._wants_past:
            self._wants_past = False
            self._feed.send(read_history=view.past)
        message = {"runs": view.rows, "studies": view.studies}
        if message != self._rows:
            self._rows = message
            self._hub.broadcast("runs", message)
            if view.rows:
                # The first click on a run would wait for it.
                await self.store.do(lambda: import_module("nbkit.live.follower"))

    def _set_runs_fault(self, fault: str | None) -> None:
        if fault == self._runs_fault:
            return
        if fault is not None and self._runs_fault is None:
            self.log.warning("nbkit: the list of runs cannot be updated: %s", fault)
        elif fault is None:
            self.log.info("nbkit: the list of runs is updated again")
        self._runs_fault = fault
        self._broadcast_status()

    # What the sampler's process says

    def _on_state(self, state: str, message: str | None) -> None:
        self._sampler = (state, message)
        self._broadcast_status()
        if state != "running":
            self._hub.forget_sample()
            if self._gauges is not None:
                self._gauges.clear()

    def _broadcast_status(self) -> None:
        state, message = self._sampler
        status = {
            "sampler": state,
            "message": message,
            "runs_fault": self._runs_fault,
            "read_only": self.settings.read_only,
            "store": _store_path(),
            "version": self.version,
        }
        self._hub.broadcast("status", status)

    def _on_line(self, line: dict[str, Any]) -> None:
        kind = line.pop("kind")
        if kind == "inventory":
            self._inventory = line
            self._inventory_seq = self._hub.broadcast("inventory", line)
            if self._gauges is not None:
                self._gauges.clear()  # of a GPU that is gone, too
        elif kind == "sample":
            values = {**line, "inventory": self._inventory_seq}
            self._add_to_history(self._hub.broadcast("sample", values), line)
        elif kind == "past":
            self._history.fill(line["rows"], time.time())
            self._filled_seq = self._history.newest_seq
            # When no more rows come, of several batches once.
            if self._past_timer is not None:
                self._past_timer.cancel()
            loop = asyncio.get_running_loop()
            self._past_timer = loop.call_later(_PAST_SECONDS, self._send_history)
        else:
            message = f"kind {kind!r}"
            raise ValueError(message)

    def _add_to_history(self, seq: int, sample: dict[str, Any]) -> None:
        inventory = self._inventory
        columns: list[str] = inventory["gpu_columns"]
        gpus: dict[str, tuple[float | None, ...]] = {}
        for gpu, row in zip(inventory["gpus"], sample["gpus"], strict=True):
            values = dict(zip(columns, row or [None] * len(columns), strict=True))
            gpus[gpu["uuid"] or str(gpu["index"])] = (
                values["utilization_percent"],
                _percent(values["memory_used_mib"], gpu["memory_total_mib"]),
                _percent(values["power_watts"], gpu["power_limit_watts"]),
            )
            # A replay is labelled in the sidebar; a gauge has no such label.
            if self._gauges is not None and inventory.get("source") != "replay":
                self._gauges.set(gpu, values)
        host = dict(zip(inventory["host_columns"], sample["host_values"], strict=True))
        used = _percent(host["memory_used_mib"], inventory["memory_total_mib"])
        self._history.add(seq, sample["t"], gpus, (host["cpu_percent"], used))

    # History

    def _history_frame(self, since: int | None) -> bytes:
        time_of = None if since is None else self._history.time_of(since)
        values = {
            "t": round(time.time(), 3),
            "since": None if time_of is None else since,
            "parts": self._history.parts(time_of),
        }
        return self._hub.frame("history", values, self._history.newest_seq)

    def _send_history(self) -> None:
        self._past_timer = None
        frame = self._history_frame(None)
        for viewer in list(self._hub.viewers):
            viewer.offer("history", frame)


def _percent(part: float | None, whole: float | None) -> float | None:
    return 100 * part / whole if part is not None and whole else None


def _store_path() -> str | None:
    try:
        return visible(str(store_folder()))
    except StoreError:  # the list of runs says why
        return None
