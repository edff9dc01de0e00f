"""Waiting on a state with a generous limit, never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(look: Callable[[], T], what: str, limit_seconds: float = 60) -> T:
    """Return the first true value that ``look`` gives."""
    deadline = time.monotonic() + limit_seconds
    while True:
        value = look()
        if value:
            return value
        if time.monotonic() > deadline:
            message = f"waited {limit_seconds} s for: {what}"
            raise AssertionError(message)
        time.sleep(0.02)
