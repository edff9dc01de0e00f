"""The sampler's process as the server manages it: start, watch, restart.

NVML is called there and never here: a call that hangs or crashes takes only that
process with it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from typing import Any

from nbkit.server import child
from nbkit.server.child import StderrTail, drain, end, how_it_ended, listen
from nbkit.store.metrics import to_json_line

DELAYS_SECONDS = (1, 2, 5, 10, 30, 60)
"""Until the next start, by the number of failures in a row."""
_HEALTHY_SECONDS = 60.0
"""A process that ran so long failed for a new reason."""
_SILENT_SECONDS = 20.0
"""A process that writes nothing for so long is stuck; starting may take some seconds.
A driver that hangs does not silence it."""
_LONGEST_LINE_BYTES = 1 << 22
_UNREAD_BYTES = 1 << 18
"""Most unread bytes; a stuck process gets everything again later."""


class SamplerFeed:
    """Runs the sampler's process as long as it is wanted."""

    def __init__(
        self,
        arguments: Sequence[str],
        interval_seconds: float,
        on_line: Callable[[dict[str, Any]], None],
        on_state: Callable[[str, str | None], None],
        log: logging.Logger,
    ) -> None:
        # -P: the server's folder may hold a signal.py or a json.py.
        self._command = [sys.executable, "-P", *arguments]
        self._silent_seconds = max(_SILENT_SECONDS, 5 * interval_seconds)
        self._on_line = on_line
        self._on_state = on_state
        self._log = log
        self._wanted = False
        self._task: asyncio.Task[None] | None = None
        self._is_ending = False
        self._process: Process | None = None
        self._abandoned: Process | None = None
        """One that cannot be killed, since it hangs in the driver."""
        self._sent: dict[str, Any] = {}
        self._state: tuple[str, str | None] = ("starting", None)
        self._logged: str | None = None

    def start(self) -> None:
        """Run the process from now on; a second call does nothing."""
        self._wanted = True
        if self._task is None:
            self._set_state("starting", None)
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(self._on_end)

    async def stop(self) -> None:
        """End the process and return when it is gone."""
        self._wanted = False
        task = self._task
        if task is not None:
            if not self._is_ending:  # a second one would cancel what cleans up
                self._is_ending = True
                task.cancel()
            await asyncio.wait([task])

    def send(self, **values: Any) -> None:
        """Send the process what changed; one that starts later gets everything."""
        new = {k: v for k, v in values.items() if self._sent.get(k) != v}
        self._sent.update(new)
        self._write(new)

    def _write(self, values: dict[str, Any]) -> None:
        process = self._process
        if not values or process is None or process.stdin is None:
            return
        if process.stdin.transport.get_write_buffer_size() < _UNREAD_BYTES:
            process.stdin.write(to_json_line(values).encode())

    def _on_end(self, task: asyncio.Task[None]) -> None:
        self._task = None
        self._is_ending = False
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.error("nbkit: the feed's own code failed", exc_info=error)
            self._set_state("failed", f"{type(error).__name__}: {error}")
        elif self._wanted:  # a viewer came while it ended
            self.start()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            began = loop.time()
            try:
                reason = await self._watch_process()
            except Exception as error:  # noqa: BLE001 - the next one may succeed
                reason = f"{type(error).__name__}: {error}"
                if reason != self._logged:
                    self._log.error("nbkit: internal error", exc_info=error)
            if loop.time() - began > _HEALTHY_SECONDS:
                failures = 0
            delay = DELAYS_SECONDS[min(failures, len(DELAYS_SECONDS) - 1)]
            failures += 1
            self._fail(reason, delay)
            await asyncio.sleep(delay)

    async def _watch_process(self) -> str:
        """Run one process to its end and return why it ended.

        As long as one hangs in the driver, another would only hang there too.
        """
        if self._is_stuck:
            return self._stuck_reason()
        self._abandoned = None
        try:
            read_end, write_end = os.pipe()
        except OSError as error:
            return f"failed to start: {error}"
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                "--parent-fd",
                str(read_end),
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                pass_fds=[read_end],
                limit=_LONGEST_LINE_BYTES,
                # Ctrl-C is the server's business: it may ask before it ends.
                start_new_session=True,
            )
        except OSError as error:
            os.close(write_end)
            return f"failed to start: {error}"
        except BaseException:
            os.close(write_end)
            raise
        finally:
            os.close(read_end)
        words = StderrTail()
        listener = asyncio.create_task(listen(process, words))
        self._process = process
        reason = None
        try:
            self._write(self._sent)
            reason = await self._read(process)
            since = time.monotonic() - child.FRESH_SECONDS
        finally:
            self._process = None
            os.close(write_end)
            await end(process, at_once=reason is not None)
            if process.returncode is None:
                self._abandoned = process
            await drain(listener)
        if process.returncode is None:
            reason = self._stuck_reason()
        elif reason is None:
            reason = how_it_ended(process.returncode)
        return words.after(reason, since)

    async def _read(self, process: Process) -> str | None:
        """Pass lines on; return what is wrong with them, None at their end."""
        assert process.stdout is not None
        while True:
            try:
                # Not wait_for: before Python 3.12 it may lose a cancellation.
                async with asyncio.timeout(self._silent_seconds):
                    line = await process.stdout.readline()
            except TimeoutError:
                return f"no output for {self._silent_seconds:g} s"
            except ValueError:
                return f"output line of more than {_LONGEST_LINE_BYTES:,} bytes"
            if not line.endswith(b"\n"):
                return None
            try:
                self._on_line(json.loads(line))
            except Exception as error:  # noqa: BLE001 - its fault must not stay ours
                return f"unreadable output, {type(error).__name__}: {error}"
            self._set_state("running", None)

    @property
    def _is_stuck(self) -> bool:
        return self._abandoned is not None and self._abandoned.returncode is None

    def _stuck_reason(self) -> str:
        assert self._abandoned is not None
        pid = self._abandoned.pid
        return f"process {pid} cannot be killed, probably because the GPU driver hangs"

    def _fail(self, reason: str, delay: float) -> None:
        message = f"the sampler is not running ({reason}); restart in {delay:g} s"
        if self._is_stuck:
            message = f"the sampler hangs ({reason}); next check in {delay:g} s"
        if self._state[0] != "failed" or self._logged != reason:
            self._logged = reason
            self._log.warning("nbkit: %s", message)
        self._set_state("failed", message)

    def _set_state(self, state: str, message: str | None) -> None:
        if (state, message) == self._state and state == "running":
            return
        if state == "running" and self._state[0] == "failed":
            self._log.info("nbkit: the sampler is running again")
        self._state = (state, message)
        self._on_state(state, message)
