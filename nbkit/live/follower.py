"""`Follower`: one thread that sends the changes of a run to all its viewers.

A viewer that opens gets everything first, and then changes: all viewers get the same
numbered changes, so that none misses one or counts one twice. The thread ends with its
run or its last viewer, and starts again with the next viewer.
"""

from __future__ import annotations

import queue
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nbkit.errors import StoreError
from nbkit.live.log_tail import LINES, LogTail
from nbkit.live.run import LiveRun

TICK_SECONDS = 0.5
"""Between two reads: what is shown is at most a second old."""
_BEAT_SECONDS = 2.0
"""A viewer warns after a longer silence; so it also gets messages without changes."""
_READ_SECONDS = 0.3
_SAY_SECONDS = 10.0
"""A viewer in sight sends ``here`` this often while the run goes on."""

_ANNOUNCED_TURNS = 6
_ANNOUNCED_AGAIN_TURNS = 20
"""A page needs a moment before it can receive: everything is sent again every turn, and
later every ten seconds, until the page asks, which it cannot while a cell runs."""

Message = dict[str, Any]


class Follower:
    """Follows one run while it has viewers."""

    def __init__(
        self,
        live: LiveRun,
        send: Callable[[Message], None],
        could_hear: Callable[[], bool] = lambda: True,
        gone_after_seconds: float = 30.0,
    ) -> None:
        self._live = live
        self._send = send
        # A kernel that is busy hears no viewer, and has no reason to take it for gone.
        self._could_hear = could_hear
        self._gone_after_seconds = gone_after_seconds
        self._inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._viewers: dict[str, _Viewer] = {}
        self._number = 0
        self._sent_at = 0.0
        self._turned_at = time.monotonic()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def handle(self, message: Message) -> None:
        """Take a viewer's message, from any thread; returns immediately.

        ``open`` (everything, please), ``log`` (another log, or part of it), ``here``
        (still looking), each with the log's ``rank``, ``stream`` and ``text``, how many
        ``lines``, and with ``open`` the names of more ``curves``;
        ``close``; ``look`` (it may run again). All have the viewer's id, ``view``.
        """
        with self._lock:
            if self._closed:
                return
            self._inbox.put(message)
            if self._thread is None:
                name = f"nbkit view of {self._live.run.run_id}"
                thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._thread = thread
                thread.start()

    def announce(self) -> None:
        """Send everything to pages that are about to show the run, without a request.

        A kernel that runs the next cell may not receive requests before it ends.
        """
        unnamed = {"view": "", "rank": 0, "stream": "stdout", "text": ""}
        self.handle({"kind": "open", **unnamed})

    def close(self) -> None:
        """Let the thread end soon, for good."""
        self._closed = True

    def _run(self) -> None:
        try:
            while not self._closed:
                self._handle_all()
                if self._read_and_send():
                    with self._lock:
                        if self._inbox.empty():
                            self._end()
                            return
        except StoreError as error:
            self._fail(str(error))
        except Exception as error:  # noqa: BLE001 - the viewers show it
            self._fail(traceback.format_exc(limit=-3) or str(error))

    def _end(self) -> None:
        self._thread = None
        if not self._viewers:
            # The next viewer reads it again; until then it takes no memory.
            self._live = LiveRun(self._live.run)

    def _fail(self, why: str) -> None:
        self._send({"kind": "failed", "message": why})
        with self._lock:
            self._thread = None
            self._viewers.clear()
            # What was half read is read again for the next viewer.
            self._live = LiveRun(self._live.run)

    def _read_and_send(self) -> bool:
        """Read once and send; return whether there is nothing more to send."""
        wanted = (viewer.curves for viewer in self._viewers.values())
        self._live.more_curves = frozenset().union(*wanted)
        is_over = self._live.read(_READ_SECONDS)
        if changes := self._live.take_changes():
            self._number += 1
            self._send_numbered({"kind": "change", "values": changes})
        for name, viewer in self._viewers.items():
            viewer.turns += 1
            # An announced viewer has no name yet.
            address = {"to": name} if name else {}
            if viewer.is_due:
                viewer.is_new = not name
                viewer.is_unread = True
                values = self._live.snapshot()
                self._send_numbered({"kind": "all", **address, "values": values})
            self._send_log(address, viewer)
        if time.monotonic() - self._sent_at > _BEAT_SECONDS:
            self._send_numbered({"kind": "change", "values": {}})
        self._drop_silent()
        if not self._viewers:
            return True
        return is_over and not any(viewer.is_new for viewer in self._viewers.values())

    def _send_numbered(self, message: Message) -> None:
        self._sent_at = time.monotonic()
        # The page counts seconds by this clock: its own may be another.
        self._send({**message, "number": self._number, "at": time.time()})

    def _send_log(self, address: Message, viewer: _Viewer) -> None:
        if viewer.attempt != self._live.run.attempt:
            viewer.choose(self._live, *viewer.choice)
        tail = viewer.tail
        before = tail.open_line
        lines = None if viewer.is_unread else tail.new_lines()
        viewer.is_unread = False
        if lines is None:
            self._send_numbered({"kind": "log", **address, **tail.last()})
        elif lines or tail.open_line != before:
            more = {"lines": lines, "open_line": tail.open_line}
            self._send_numbered({"kind": "more_log", **address, **more})

    def _drop_silent(self) -> None:
        # Of an ended run, turns are as rare as what its viewers say.
        now = time.monotonic()
        passed_seconds = min(now - self._turned_at, _SAY_SECONDS)
        self._turned_at = now
        could_hear = self._could_hear()
        for viewer in self._viewers.values():
            if could_hear and not viewer.is_heard:
                viewer.silent_seconds += passed_seconds
            viewer.is_heard = False
        self._viewers = {
            name: viewer
            for name, viewer in self._viewers.items()
            if viewer.silent_seconds < self._gone_after_seconds
        }

    def _handle_all(self) -> None:
        """Wait for a message or the next turn; take all messages that are there."""
        wait_seconds = TICK_SECONDS
        while True:
            try:
                self._take(self._inbox.get(timeout=wait_seconds))
            except queue.Empty:
                return
            wait_seconds = 0.0

    def _take(self, message: Message) -> None:
        name = str(message["view"])
        viewer = self._viewers.get(name)
        if message["kind"] == "close":
            self._viewers.pop(name, None)
            return
        if message["kind"] == "look":
            return
        if viewer is None:
            viewer = self._viewers[name] = _Viewer.of(self._live)
        viewer.silent_seconds, viewer.is_heard = 0.0, True
        if message["kind"] == "open":
            viewer.is_new, viewer.turns = True, 0
            viewer.curves = frozenset(message.get("curves", ()))
            if name:
                # The announced viewer has opened.
                self._viewers.pop("", None)
        if viewer.is_new or message["kind"] == "log":
            lines = int(message.get("lines", LINES))
            choice = int(message["rank"]), message["stream"], message["text"], lines
            viewer.choose(self._live, *choice)


@dataclass
class _Viewer:
    """One display of the run, in one page."""

    tail: LogTail
    attempt: int
    choice: tuple[int, str, str, int] = (0, "stdout", "", LINES)
    """Rank, stream, text and number of lines of the log that it shows."""
    is_new: bool = True
    """Whether it has nothing yet."""
    is_unread: bool = True
    silent_seconds: float = 0.0
    is_heard: bool = True
    """Whether it said something since the last turn."""
    turns: int = 0
    curves: frozenset[str] = frozenset()
    """Names that it shows beyond the first twelve."""

    @property
    def is_due(self) -> bool:
        """Whether it is sent everything in this turn."""
        is_early = self.turns <= _ANNOUNCED_TURNS
        return self.is_new and (is_early or self.turns % _ANNOUNCED_AGAIN_TURNS == 0)

    @classmethod
    def of(cls, live: LiveRun) -> _Viewer:
        return cls(live.log(0, "stdout"), live.run.attempt)

    def choose(
        self, live: LiveRun, rank: int, stream: str, text: str, num_lines: int
    ) -> None:
        self.choice = rank, stream, text, num_lines
        self.attempt = live.run.attempt
        self.tail = live.log(rank, stream, text, num_lines)
        self.is_unread = True
