"""The page of one run: its browser part, its live view and its resumption.

A notebook's view has the same messages, from its kernel (`nbkit.widgets.view`).
"""

from __future__ import annotations

import asyncio
import csv
import functools
import io
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_server.auth.decorator import authorized
from tornado import web
from tornado.iostream import StreamClosedError
from tornado.websocket import WebSocketClosedError

from nbkit.errors import NbkitError, RunError, RunNotFoundError
from nbkit.launch.code.trust import permit_run
from nbkit.launch.run import Run
from nbkit.live.browser_part import view_module, view_style
from nbkit.live.log_tail import LINES
from nbkit.live.metrics import X_NAMES, StoredCurve
from nbkit.live.series import points_of
from nbkit.server.child import how_it_ended
from nbkit.server.handler import READ_ONLY, ApiHandler, unreadable
from nbkit.server.run_table import find_exactly, is_own
from nbkit.server.websocket import SocketHandler
from nbkit.store.metrics import to_json_line
from nbkit.store.paths import store_folder
from nbkit.visible import visible

if TYPE_CHECKING:
    from nbkit.live.follower import Follower

_BEAT_SECONDS = 8.0
"""A page takes a longer silence for the end of its connection."""
_KINDS = ("open", "log", "here", "close", "look")
_STREAMS = ("stdout", "stderr")
_LONGEST_BYTES = 1 << 18
"""Of a page that asks for a hundred curves by their names."""
_POLICY_VIOLATION = 1008
_ROWS = 10_000
"""Of a file that are sent together."""
_MOST_CURVES = 16
"""So many lines are kept in memory; a million steps take 24 MB."""
_RESUME = """
import sys
import nbkit
try:
    nbkit.attach(sys.argv[1]).resume(on_owner_exit="keep")
except nbkit.errors.NbkitError as error:
    sys.exit(str(error))
"""


class ViewPartHandler(ApiHandler):
    """The browser part of the live view."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """Return its module and its style sheet."""
        self.reply({"module": view_module(), "style": view_style()})


class RunViewHandler(SocketHandler):
    """One run, followed for one page."""

    _follower: Follower | None = None
    _beat: asyncio.Task[None] | None = None

    async def open(self, run_id: str) -> None:
        """Begin to follow, or tell why the run cannot be shown."""
        try:
            follow = await self.monitor.store.do(lambda: _follow(run_id))
        except (NbkitError, OSError) as error:
            # After the handshake: a browser tells a page nothing of a refused one.
            is_gone = isinstance(error, RunNotFoundError) or _is_forbidden(error)
            kind = "gone" if is_gone else "busy"
            self._send({"kind": kind, "message": _refusal(run_id, error)})
            return
        loop = asyncio.get_running_loop()

        def send(message: dict[str, Any]) -> None:
            with suppress(RuntimeError):  # the server has ended
                loop.call_soon_threadsafe(self._send, message)

        self._follower = follow(send)
        self._beat = asyncio.create_task(self._show_life())

    def on_message(self, message: str | bytes) -> None:
        """Take what a page wants to see."""
        if self._follower is None:
            return
        try:
            self._follower.handle(_parse_request(message))
        except ValueError as error:
            # At most 123 bytes: https://www.rfc-editor.org/rfc/rfc6455#section-5.5
            self.close(_POLICY_VIOLATION, str(error)[:100])

    def on_close(self) -> None:
        """Follow no longer."""
        if self._follower is not None:
            self._follower.close()
        if self._beat is not None:
            self._beat.cancel()

    def _send(self, message: dict[str, Any]) -> None:
        with suppress(WebSocketClosedError):
            self.write_message(to_json_line(message).rstrip())

    async def _show_life(self) -> None:
        """Of a run that has ended nothing else is sent."""
        while True:
            await asyncio.sleep(_BEAT_SECONDS)
            self._send({"kind": "beat"})


class CurveHandler(ApiHandler):
    """One line of a run, near by."""

    @web.authenticated
    @authorized
    async def get(self, run_id: str) -> None:
        """Return about two thousand points of a line, between two of its x."""
        name = self.get_query_argument("name", "")
        texts = [self.get_query_argument(end, "") for end in ("first", "last")]
        try:
            first, last = map(float, texts)
        except ValueError:
            message = f"first={texts[0][:20]!r}, last={texts[1][:20]!r} must be numbers"
            self.refuse(400, f"{message}. Send the x range of the curve.")
            return
        with self.refusing():
            curve = await asyncio.to_thread(_read_curve, run_id, name)
            points = await asyncio.to_thread(
                lambda: points_of([*curve.values(first, last)])
            )
            self.reply({"points": points})


class CurveFileHandler(ApiHandler):
    """One line of a run as a file."""

    @web.authenticated
    @authorized
    async def get(self, run_id: str) -> None:
        """Return every value as it is stored, as CSV."""
        name = self.get_query_argument("name", "")
        curve = None
        with self.refusing():
            curve = await asyncio.to_thread(_read_curve, run_id, name)
        if curve is None:
            return
        # Not `refusing`: what has begun as CSV cannot end with another status.
        rows = ((run_id, *value) for value in curve.values())
        self.set_header("Content-Type", "text/csv; charset=utf-8")
        self.write(_csv([("run_id", X_NAMES.get(name, "step"), "seconds", name)]))
        with suppress(StreamClosedError):  # nobody reads it any more
            while text := await asyncio.to_thread(_csv, islice(rows, _ROWS)):
                self.write(text)
                await self.flush()
            self.finish()


def _read_curve(run_id: str, name: str) -> StoredCurve:
    """Return a line of a run as it is now; a long file takes seconds."""
    file = Run(find_exactly(run_id)).paths.metrics
    with suppress(FileNotFoundError):
        curve, lock = _newest_curves(file, file.stat().st_ino, name)
        with lock:
            curve.read()
        if next(curve.values(), None) is not None:
            return curve
    message = f"name={name[:80]!r}: unknown curve. The run's page lists all curves."
    raise RunNotFoundError(message)


@functools.lru_cache(maxsize=_MOST_CURVES)
def _newest_curves(
    file: Path, inode: int, name: str
) -> tuple[StoredCurve, threading.Lock]:
    """Return what reads on where it was: a page that zooms asks for a line again."""
    return StoredCurve(file, name), threading.Lock()


def _csv(rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


class ResumeHandler(ApiHandler):
    """The next attempt of one run."""

    @web.authenticated
    @authorized
    async def post(self, run_id: str) -> None:
        """Continue a run from its newest checkpoint; it outlives this server."""
        if self.monitor.settings.read_only:
            self.refuse(403, READ_ONLY)
            return
        with self.refusing():
            self.body()
            # Not in the thread of the store: Slurm's controller may take a minute.
            state = await asyncio.to_thread(_resume, run_id)
            if state is None:
                message = f"run {run_id} belongs to another user."
                self.refuse(403, f"{message} Ask that user to resume it.")
            else:
                self.reply({"run_id": run_id, "state": state}, 202)


def _follow(run_id: str) -> Callable[[Callable[[dict[str, Any]], None]], Follower]:
    """Return what makes a run's follower; raise if the run cannot be shown."""
    # Imported here: it imports what a server without such a page does not need.
    from nbkit.live.follower import Follower
    from nbkit.live.run import LiveRun

    run = Run(find_exactly(run_id))
    run.record  # noqa: B018 - what cannot be read is told before anything is shown
    return functools.partial(Follower, LiveRun(run))


def _resume(run_id: str) -> str | None:
    """Resume a run and return its state; None if it belongs to another user."""
    folder = find_exactly(run_id)
    if not is_own(folder):
        return None
    run = Run(folder)
    # Not in this process: kernels are its children, and GPUs of a run's owner and its
    # children count as free for it.
    _resume_by(run.submission.get("executable", sys.executable), run)
    return str(run.state)


def _resume_by(python: str, run: Run) -> None:
    """Resume a run in the environment it was launched in, which may be another one."""
    permit_run(run.paths, trust=False)  # its folder names the program
    command = [python, "-P", "-c", _RESUME, run.run_id]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        message = (
            f"run {run.run_id} was launched by {python}, which cannot be executed "
            f"({error.strerror}). In an environment with the same packages, call "
            f"nbkit.attach({run.run_id!r}).resume()."
        )
        raise RunError(message) from error
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:]
        reason = visible(last[0] if last else how_it_ended(done.returncode))
        by = "" if python == sys.executable else f" with {python}, which launched it"
        message = f"run {run.run_id} could not be resumed{by}: {reason}"
        raise RunError(message)


def _refusal(run_id: str, error: Exception) -> str:
    """Return why a run cannot be shown, and what to do."""
    if isinstance(error, RunNotFoundError):
        store = visible(str(store_folder()))
        return (
            f"Run {run_id[:80]} is not in the store of this server, {store}. It was "
            "removed, or is in another store: set NBKIT_HOME to that store and restart "
            f'Jupyter, or run nbkit.attach("{run_id[:80]}") in a notebook that uses it.'
        )
    if _is_forbidden(error):
        return (
            f"This server has no permission to read the files of run {run_id[:80]}. "
            "Ask the owner of its folder for read permission."
        )
    return unreadable(error) if isinstance(error, OSError) else str(error)


def _is_forbidden(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, PermissionError):
        error = error.__cause__ or error.__context__
    return error is not None


def _parse_request(message: str | bytes) -> dict[str, Any]:
    """Return a page's message; raise ValueError if it asks for nothing."""
    wish: dict[str, Any] = {"kind": "", "view": "", "text": "", "rank": 0}
    wish |= {"lines": LINES, "stream": "stdout", "curves": []}
    with suppress(ValueError, TypeError, RecursionError):
        wish |= json.loads(message[:_LONGEST_BYTES])
    is_text = all(isinstance(wish[name], str) for name in ("view", "text"))
    is_count = all(type(wish[name]) is int for name in ("rank", "lines"))
    curves = wish["curves"]
    is_text &= isinstance(curves, list) and {*map(type, curves)} <= {str}
    is_known = wish["kind"] in _KINDS and wish["stream"] in _STREAMS
    if is_text and is_count and is_known and wish["rank"] >= -1:
        return wish
    text = f"the message {message[:20]!r} is not a request for run data"
    raise ValueError(text)


RUN_VIEW_ROUTES: tuple[tuple[str, type[Any]], ...] = (
    (r"/nbkit/api/view", ViewPartHandler),
    (r"/nbkit/api/runs/([^/]+)/view", RunViewHandler),
    (r"/nbkit/api/runs/([^/]+)/curve", CurveHandler),
    (r"/nbkit/api/runs/([^/]+)/curve/csv", CurveFileHandler),
    (r"/nbkit/api/runs/([^/]+)/resume", ResumeHandler),
)
