"""Waiting on a state with a generous limit, never for a time."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_MOST_PATIENCE = 8.0
_LONGEST_PAUSE_SECONDS = 0.1
_PRESSURE = Path("/proc/pressure/cpu")


def wait_until(look: Callable[[], T], what: str, limit_seconds: float = 60) -> T:
    """Return the first true value that ``look`` gives; a busy machine gets longer."""
    began = time.monotonic()
    while True:
        value = look()
        if value:
            return value
        waited = time.monotonic() - began
        if waited > limit_seconds and waited > patient(limit_seconds):
            message = f"waited {waited:.0f} s for: {what}"
            raise AssertionError(message)
        # A look takes CPU time from the tests beside this one.
        time.sleep(min(_LONGEST_PAUSE_SECONDS, max(0.02, waited / 20)))


def patient(seconds: float) -> float:
    """Return how long a wait for a state may take, from how long on an idle machine.

    For waits only, not for what must not take longer.
    """
    return seconds * patience()


def hang_limit(seconds: float = 15.0) -> float:
    """Return after how long ranks that do nothing hang: they import torch in that time.

    At most three times as long on a busy machine, since tests wait for it.
    """
    return min(patient(seconds), 3 * seconds)


def patience() -> float:
    """Return how many times longer a wait may take now: 1 to 8.

    At least ``$NBKIT_TEST_PATIENCE``, and more where processes wait for a CPU.
    """
    told = float(os.environ.get("NBKIT_TEST_PATIENCE", "1"))
    return min(_MOST_PATIENCE, max(1.0, told, load(), _pressure()))


def load() -> float:
    """Return how many processes ran or waited in the last minute, for each CPU."""
    return os.getloadavg()[0] / len(os.sched_getaffinity(0))


def _pressure() -> float:
    """Return how many times longer a process takes that has to wait for a CPU."""
    try:
        some = _PRESSURE.read_text().partition("\n")[0]
    except OSError:  # a kernel without it, or with psi=0
        return 1.0
    shares = [float(it) / 100 for it in re.findall(r"avg(?:10|60)=([\d.]+)", some)]
    return 1 / max(1 - max(shares, default=0.0), 1 / _MOST_PATIENCE)
