"""What a rank says of its data, in the log of its run."""

from __future__ import annotations

import sys

from nbkit.visible import visible

__all__ = ["say"]


def say(text: str) -> None:
    """Write a line, whatever names it quotes.

    A name on disk is bytes: those that are not UTF-8, as the log is, are escaped.
    """
    encoding = sys.stdout.encoding or "utf-8"
    line = f"data: {visible(text)}\n".encode(encoding, "backslashreplace")
    sys.stdout.write(line.decode(encoding))
    sys.stdout.flush()
