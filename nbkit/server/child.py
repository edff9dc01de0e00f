"""What a child process of the server says last, and how it is ended."""

from __future__ import annotations

import asyncio
import signal
from asyncio.subprocess import Process

__all__ = ["end", "hear_out", "how_it_ended", "listen"]

_END_SECONDS = 3.0
_LAST_SECONDS = 1.0
_WORDS_BYTES = 500


async def listen(process: Process, words: bytearray) -> None:
    """Keep the last words of a process, and let it never wait for a reader.

    Parameters
    ----------
    process
        Its standard error is a pipe.
    words
        Holds the newest 500 bytes of it at any time.
    """
    assert process.stderr is not None
    while data := await process.stderr.read(1 << 16):
        words += data
        del words[:-_WORDS_BYTES]


async def hear_out(listener: asyncio.Task[None]) -> None:
    """Let a listener take what an ended process has left in its pipe.

    Parameters
    ----------
    listener
        Of `listen`; it has ended afterwards.
    """
    # A process that it left behind may hold the pipe for ever.
    await asyncio.wait([listener], timeout=_LAST_SECONDS)
    listener.cancel()
    await asyncio.wait([listener])


async def end(process: Process, *, at_once: bool = False) -> None:
    """Wait for a process whose pipe is closed here; then kill it.

    One that hangs in the kernel cannot be killed: it is left alone, and has no return
    code.

    Parameters
    ----------
    process
        Its standard input is a pipe, of which the end tells it to end.
    at_once
        Kill it without waiting.
    """
    assert process.stdin is not None
    process.stdin.close()
    for _ in range(2):
        if at_once and process.returncode is None:
            process.kill()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await process.wait()
        except TimeoutError:
            at_once = True
        else:
            return
    # Its pipes; asyncio has no public name for them. A child's end is still noticed.
    process._transport.close()  # pyright: ignore[reportAttributeAccessIssue]


def how_it_ended(returncode: int) -> str:
    """Return a return code in words.

    Parameters
    ----------
    returncode
        As `subprocess` has it: a signal is negative.
    """
    if returncode >= 0:
        return f"exit code {returncode}"
    try:
        return f"signal {-returncode}, {signal.Signals(-returncode).name}"
    except ValueError:  # a real-time signal has no name
        return f"signal {-returncode}"
