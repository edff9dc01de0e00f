"""A child process of the server: the end of its stderr, and its termination."""

from __future__ import annotations

import asyncio
import math
import signal
import time
from asyncio.subprocess import Process

END_SECONDS = 3.0
KILLED_SECONDS = 3.0
_LAST_SECONDS = 1.0
_WORDS_BYTES = 500
REFUSED = 3
"""The exit code of a process that has written why it did not do its work."""
FRESH_SECONDS = 5.0
"""What a process said longer before its end is not why it ended."""


class StderrTail:
    """The newest 500 bytes that a process wrote to its standard error."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._heard = -math.inf

    def add(self, data: bytes) -> None:
        """Take what was written now."""
        self._bytes += data
        del self._bytes[:-_WORDS_BYTES]
        self._heard = time.monotonic()

    def after(self, reason: str, since: float = -math.inf) -> str:
        """Return a reason, followed by the last line if there is one."""
        lines = self._bytes.decode(errors="replace").strip().splitlines()
        return ": ".join([reason, *(lines[-1:] if self._heard >= since else [])])


async def listen(process: Process, words: StderrTail) -> None:
    """Keep the last output of a process, and read so that it never blocks."""
    assert process.stderr is not None
    while data := await process.stderr.read(1 << 16):
        words.add(data)


async def drain(listener: asyncio.Task[None]) -> None:
    """Let a listener take what an ended process has left in its pipe."""
    # A process that it left running may hold the pipe forever.
    await asyncio.wait([listener], timeout=_LAST_SECONDS)
    listener.cancel()
    await asyncio.wait([listener])


async def end(process: Process, *, at_once: bool = False) -> None:
    """Close the pipe of a process, wait for it, and then kill it.

    One that hangs in the kernel cannot be killed: it is left alone, and has no return
    code.
    """
    assert process.stdin is not None
    process.stdin.close()
    # Not asyncio.timeout: before Python 3.11.4, where a cancelled task cleans up, it
    # raises CancelledError instead of TimeoutError, and the process would stay.
    ended = asyncio.ensure_future(process.wait())
    try:
        for seconds in (END_SECONDS, KILLED_SECONDS):
            if at_once and process.returncode is None:
                process.kill()
            if (await asyncio.wait([ended], timeout=seconds))[0]:
                return
            at_once = True
    finally:
        ended.cancel()
    # Its pipes; asyncio has no public name for them. A child's end is still noticed.
    process._transport.close()  # pyright: ignore[reportAttributeAccessIssue]


def how_it_ended(returncode: int) -> str:
    """Return a return code in words."""
    if returncode >= 0:
        return f"exit code {returncode}"
    try:
        return f"signal {-returncode}, {signal.Signals(-returncode).name}"
    except ValueError:  # a real-time signal has no name
        return f"signal {-returncode}"
