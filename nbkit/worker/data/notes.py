"""Notes of a rank on its data, in the log of its run."""

from __future__ import annotations

import sys

from nbkit.visible import encodable, visible


def say(text: str) -> None:
    """Write a line, whatever names it quotes."""
    sys.stdout.write(encodable(f"data: {visible(text)}\n", sys.stdout.encoding))
    sys.stdout.flush()
