"""One stream of numbered messages for all viewers, each written once."""

from __future__ import annotations

import asyncio
import secrets
import socket
import time
from collections.abc import Callable
from typing import Any

from tornado.websocket import WebSocketClosedError

from nbkit.store.metrics import to_json_line

SCHEMA = 1

_LASTING = ("status", "inventory", "sample", "runs")
"""Messages that hold until the next of their kind; a new viewer gets the newest."""

_EARLY = 0.5
"""A sample that comes this part of the hub's interval early is in time."""


class Viewer:
    """One websocket: at most one unsent message, and the newest of each kind."""

    def __init__(self, write: Callable[[bytes], asyncio.Future[None]]) -> None:
        self.interval_seconds = 0.0
        """Time between two samples; 0 takes every one."""
        self._write = write
        self._waiting: dict[str, bytes] = {}
        self._unsent: asyncio.Future[None] | None = None
        self._last_sample = 0.0
        self._offered_at = time.monotonic()

    @property
    def quiet_seconds(self) -> float:
        """How long nothing was there to be sent."""
        return time.monotonic() - self._offered_at

    def offer(self, kind: str, frame: bytes) -> None:
        """Send a message, or keep it in place of an older one of its kind."""
        self._offered_at = time.monotonic()
        if kind in ("inventory", "sample"):
            # A waiting sample is older or has another order of GPUs; the new sample
            # comes after its inventory.
            self._waiting.pop("sample", None)
        self._waiting[kind] = frame
        if self._unsent is None:
            self._send()

    def offer_sample(self, frame: bytes, t: float, early_seconds: float) -> None:
        """Offer a sample, unless the viewer wants them less often."""
        if 0 <= t - self._last_sample < self.interval_seconds - early_seconds:
            return
        self._last_sample = t
        self.offer("sample", frame)

    def _send(self) -> None:
        kind = next(iter(self._waiting))
        try:
            self._unsent = self._write(self._waiting.pop(kind))
        except WebSocketClosedError:
            self._waiting.clear()  # its handler takes it off the list
            return
        self._unsent.add_done_callback(self._on_sent)

    def _on_sent(self, future: asyncio.Future[None]) -> None:
        self._unsent = None
        if future.cancelled() or future.exception() is not None:
            self._waiting.clear()  # closed: its handler takes it off the list
        elif self._waiting:
            self._send()


class Hub:
    """Numbers messages and sends the same bytes to every viewer."""

    def __init__(self, interval_seconds: float) -> None:
        self.stream = secrets.token_hex(4)
        """Different at each start of the server: numbers of another stream mean nothing
        here."""
        self.host = socket.gethostname()
        self.viewers: set[Viewer] = set()
        self._interval_seconds = interval_seconds
        self._seq = 0
        self._newest: dict[str, bytes] = {}

    @property
    def quiet_seconds(self) -> float:
        """How long some viewer was sent nothing; 0 without viewers."""
        return max((viewer.quiet_seconds for viewer in self.viewers), default=0.0)

    def broadcast(self, kind: str, values: dict[str, Any]) -> int:
        """Send a message to all viewers; return its number."""
        self._seq += 1
        t = values.get("t", round(time.time(), 3))
        frame = self.frame(kind, {**values, "t": t}, self._seq)
        if kind == "inventory":
            self.forget_sample()  # it follows another order of GPUs
        if kind in _LASTING:
            self._newest[kind] = frame
        for viewer in list(self.viewers):
            if kind == "sample":
                viewer.offer_sample(frame, t, self._interval_seconds * _EARLY)
            else:
                viewer.offer(kind, frame)
        return self._seq

    def frame(self, kind: str, values: dict[str, Any], seq: int) -> bytes:
        """Return a message's bytes."""
        head = {"type": kind, "schema": SCHEMA, "seq": seq, "stream": self.stream}
        message = {**head, "t": None, "host": self.host, **values}
        return to_json_line(message).rstrip("\n").encode()

    def add(self, viewer: Viewer, history: bytes) -> None:
        """Send what holds now, and from here on everything."""
        self.viewers.add(viewer)
        frames = {"history": history, **self._newest}
        # In the order in which they are understood.
        for kind in ("status", "inventory", "history", "sample", "runs"):
            if kind in frames:
                viewer.offer(kind, frames[kind])

    def forget_sample(self) -> None:
        """Do not show new viewers the newest sample: it is no longer current."""
        self._newest.pop("sample", None)

    def remove(self, viewer: Viewer) -> None:
        """Send nothing more; a second call does nothing."""
        self.viewers.discard(viewer)
