"""The thread that reads the store: a hanging file server blocks only it."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from nbkit.errors import StoreError

T = TypeVar("T")

_Job = tuple[Callable[[], Any], asyncio.Future[Any]]


class StoreThread:
    """Does one job after the other; callers stop waiting after a time limit."""

    def __init__(self, patience_seconds: float = 10.0) -> None:
        self._patience_seconds = patience_seconds
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._busy_since: float | None = None

    async def do(self, job: Callable[[], T]) -> T:
        """Return what a function returns, or raise what it raises."""
        if self._thread is None:
            # A daemon: what hangs must not keep the server from ending.
            self._thread = threading.Thread(
                target=self._work, name="nbkit-store", daemon=True
            )
            self._thread.start()
        began = self._busy_since
        if began is not None and time.monotonic() - began > self._patience_seconds:
            raise self._hangs(time.monotonic() - began)
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put((job, future))
        try:
            # Not wait_for: before Python 3.12 it may lose a cancellation.
            async with asyncio.timeout(self._patience_seconds):
                return await future
        except TimeoutError:
            raise self._hangs(self._patience_seconds) from None

    def close(self) -> None:
        """End the thread after its current job."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread = None

    def _hangs(self, seconds: float) -> StoreError:
        message = (
            f"the store has not responded for {seconds:.0f} s (limit "
            f"{self._patience_seconds:g} s). Check its disk or file server, then retry."
        )
        return StoreError(message)

    def _work(self) -> None:
        while (entry := self._jobs.get()) is not None:
            job, future = entry
            if future.cancelled():  # no caller waits any more
                continue
            self._busy_since = time.monotonic()
            result: Any = None
            failure: BaseException | None = None
            try:
                result = job()
            except BaseException as error:  # noqa: BLE001 - raised where it was asked
                failure = error
            self._busy_since = None
            try:
                future.get_loop().call_soon_threadsafe(_answer, future, result, failure)
            except RuntimeError:
                return  # the loop is closed: the server has ended


def _answer(
    future: asyncio.Future[Any], result: Any, failure: BaseException | None
) -> None:
    if future.done():
        return
    if failure is not None:
        future.set_exception(failure)
    else:
        future.set_result(result)
