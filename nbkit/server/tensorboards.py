"""TensorBoards of runs: started on request, ended when unused.

Each is a separate process (`nbkit.server.tensorboard_process`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tornado.httpclient import AsyncHTTPClient
from tornado.netutil import Resolver
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from nbkit.errors import LaunchError
from nbkit.packages import pip_install
from nbkit.server.child import StderrTail, drain, end, how_it_ended, listen
from nbkit.server.tensorboard_process import MODULE, NOT_INSTALLED, READY

MOST_TENSORBOARDS = 4
"""Most that run concurrently; each takes some 100 MB."""
TENSORBOARD_COMMAND = ("-m", MODULE)

START_SECONDS = 60.0
SEARCH_SECONDS = 55.0
"""Who keeps a TensorBoard for a page has its runs looked for again after this time.

Pages ask every half minute, so it is done once a minute.
"""
_CONNECTIONS = 32
_LONGEST_FOLDER_BYTES = 80
"""A socket's path has at most 107 bytes."""
_LARGEST_ANSWER_BYTES = 1 << 40
"""Answers are passed on in pieces, so that none is too large."""
_ENDED = "TensorBoard was stopped before it was ready. Open it again."

EventFiles = Mapping[str, Path]
"""Folders of event files by the names under which they are shown."""


class TensorBoards:
    """One TensorBoard for each run, study or store with a viewer.

    Parameters
    ----------
    idle_seconds
        One without a request for this time is ended.
    log
        The server's.
    command
        The process of one, after ``python -P``.
    """

    def __init__(
        self,
        idle_seconds: float,
        log: logging.Logger,
        command: Sequence[str] = TENSORBOARD_COMMAND,
    ) -> None:
        self.idle_seconds = idle_seconds
        self._log = log
        self._command = [sys.executable, "-P", *command]
        self._boards: dict[str, Board] = {}
        """By what they show: a run's id, or the name of a group of runs."""
        self._making = asyncio.Lock()
        """Held from ending one to starting another: there are never too many."""

    def find(self, key: str) -> Board | None:
        """Return the TensorBoard of a run or a group, if there is one."""
        return self._boards.get(key)

    async def open(self, key: str, files: EventFiles) -> bool:
        """Have a TensorBoard; return whether it was started now."""
        async with self._making:
            board = self._boards.get(key)
            if board is not None and board.is_ending:
                await asyncio.wait([board.task])
                board = None
            is_new = board is None
            if board is None:
                await self._make_room()
                board = Board(files, self.idle_seconds, self._command)
                self._boards[key] = board
                board.task.add_done_callback(lambda _: self._forget(key, board))
            else:
                board.show(files)
        try:
            with board.use():
                # A client that disconnects must not cancel the start for the others.
                await asyncio.shield(board.started)
        except LaunchError as error:
            if is_new:
                self._log.warning("nbkit: %s", error)
            raise
        return is_new

    def keep(self, key: str) -> bool:
        """Count as used a TensorBoard whose runs were found lately, or return False."""
        board = self._boards.get(key)
        if board is None or board.client is None:
            return False
        with board.use():
            now = asyncio.get_running_loop().time()
            return now - board.searched_at < SEARCH_SECONDS

    async def close(self) -> None:
        """End all of them."""
        async with self._making:
            await asyncio.gather(*(board.close() for board in self._boards.values()))

    async def _make_room(self) -> None:
        """End those that were not used for the longest time, none of them in use."""
        while len(self._boards) >= MOST_TENSORBOARDS:
            unused = {k: board for k, board in self._boards.items() if not board.in_use}
            if not unused:
                message = (
                    f"{len(self._boards)} TensorBoards are starting or answering "
                    f"requests (limit {MOST_TENSORBOARDS}). Try again in a moment, or "
                    "close a TensorBoard."
                )
                raise LaunchError(message)
            oldest = min(unused, key=lambda key: unused[key].used)
            await self._boards.pop(oldest).close()

    def _forget(self, key: str, board: Board) -> None:
        if self._boards.get(key) is board:
            del self._boards[key]
        if not board.task.cancelled() and (error := board.task.exception()) is not None:
            self._log.error("nbkit: TensorBoard's keeper failed", exc_info=error)


class Board:
    """One TensorBoard, from its start to its end.

    Parameters
    ----------
    files
        What it shows.
    idle_seconds
        It ends when it was not used for so long.
    command
        Its process, without options.
    """

    def __init__(
        self, files: EventFiles, idle_seconds: float, command: Sequence[str]
    ) -> None:
        loop = asyncio.get_running_loop()
        self._command = command
        self._files = files
        self._links: Path | None = None
        """A folder of links to what it shows, as long as it runs."""
        self._idle_seconds = idle_seconds
        self._requests = 0
        self._is_cleaning_up = False
        self.used = loop.time()
        """The end of the last use, in the event loop's time."""
        self.searched_at = loop.time()
        """When what it shows was looked for."""
        self.client: AsyncHTTPClient | None = None
        """Asks it; None before it has started, and at its end."""
        self.started: asyncio.Future[None] = loop.create_future()
        # If all clients have disconnected, the exception is not retrieved.
        self.started.add_done_callback(
            lambda done: done.cancelled() or done.exception()
        )
        self.task = loop.create_task(self._run())
        # Here, since a task that is cancelled before it starts does nothing at all.
        self.task.add_done_callback(lambda _: self._refuse(_ENDED))

    @property
    def is_ending(self) -> bool:
        """Whether it has answered and no longer does."""
        return self.started.done() and self.client is None

    @property
    def in_use(self) -> bool:
        """Whether a request is in progress, or a client waits for its start."""
        return self._requests > 0

    def show(self, files: EventFiles) -> None:
        """Show other runs from now on; TensorBoard notices within some seconds."""
        self._files = files
        self.searched_at = asyncio.get_running_loop().time()
        if self._links is not None:
            self._link(self._links)

    @contextlib.contextmanager
    def use(self) -> Iterator[None]:
        """Count a request."""
        self._requests += 1
        try:
            yield
        finally:
            self._requests -= 1
            self.used = asyncio.get_running_loop().time()

    async def close(self) -> None:
        """End it and return when it is gone."""
        if not self._is_cleaning_up:  # cancelled there, it would leave the process
            self._is_cleaning_up = True
            self.task.cancel()
        await asyncio.wait([self.task])

    async def _run(self) -> None:
        try:
            parent = tempfile.gettempdir()
            if len(os.fsencode(parent)) > _LONGEST_FOLDER_BYTES:
                parent = "/tmp"
            with tempfile.TemporaryDirectory(
                prefix="nbkit-", dir=parent, ignore_cleanup_errors=True
            ) as folder:
                await self._keep(Path(folder, "socket"))
        except OSError as error:
            self._fail(str(error))

    async def _keep(self, path: Path) -> None:
        logdir = self._links = path.with_name("runs")
        logdir.mkdir()
        self._link(logdir)
        process = await asyncio.create_subprocess_exec(
            *self._command,
            "--logdir",
            str(logdir),
            "--socket",
            str(path),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            # It only reads: where it brings TensorFlow, that must hold no GPU.
            env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
            # Ctrl-C is the server's business: it may ask before it ends.
            start_new_session=True,
        )
        words = StderrTail()
        listener = asyncio.create_task(listen(process, words))
        try:
            failure = await _wait_until_ready(process)
            if failure is None:
                self.client = SimpleAsyncHTTPClient(
                    force_instance=True,
                    resolver=_SocketResolver(path),
                    max_clients=_CONNECTIONS,
                    max_body_size=_LARGEST_ANSWER_BYTES,
                )
                self.started.set_result(None)
                await self._wait_until_unused(process)
        finally:
            self._is_cleaning_up = True
            self._links = None
            client, self.client = self.client, None
            if client is not None:
                client.close()
            await end(process, at_once=not self.started.done())
            await drain(listener)
        if failure is not None:
            self._fail(words.after(failure), process.returncode)

    async def _wait_until_unused(self, process: Process) -> None:
        """Return when it was unused for a while, or has ended by itself."""
        clock = asyncio.get_running_loop()
        while process.returncode is None:
            remaining_seconds = self._idle_seconds
            if not self._requests:
                remaining_seconds += self.used - clock.time()
            if remaining_seconds <= 0:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(remaining_seconds):
                    await process.wait()

    def _link(self, folder: Path) -> None:
        """Have a link for every run, and for no other."""
        for link in folder.iterdir():
            if link.name not in self._files:
                link.unlink()
        for name, target in self._files.items():
            with contextlib.suppress(FileExistsError):  # of an earlier time
                (folder / name).symlink_to(target.absolute())

    def _fail(self, reason: str, returncode: int | None = None) -> None:
        if returncode == NOT_INSTALLED:
            command = f"{sys.executable} -m {pip_install('tensorboard')}"
            self._refuse(
                "TensorBoard is not installed for this Jupyter server. Run "
                f"`{command}` and try again."
            )
        else:
            self._refuse(
                f"TensorBoard failed to start ({reason}). Correct the cause, or try "
                "again."
            )

    def _refuse(self, message: str) -> None:
        if not self.started.done():
            self.started.set_exception(LaunchError(message))


async def _wait_until_ready(process: Process) -> str | None:
    """Return why a TensorBoard failed to start; None if it started."""
    assert process.stdout is not None
    try:
        # Not wait_for: before Python 3.12 it may lose a cancellation.
        async with asyncio.timeout(START_SECONDS):
            if await process.stdout.readline() == READY:
                return None
            return how_it_ended(await process.wait())
    except TimeoutError:
        return f"no answer within {START_SECONDS:g} s"


class _SocketResolver(Resolver):
    """Leads every name to one Unix socket."""

    def initialize(self, path: Path) -> None:
        self._path = str(path)

    async def resolve(
        self, host: str, port: int, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[tuple[int, Any]]:
        """Return the socket."""
        return [(socket.AF_UNIX, self._path)]
