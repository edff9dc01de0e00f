"""Clock of a run, which is not set while the run lasts.

Durations are differences of what it says. `time.time` jumps when the machine's clock is
set; `time.monotonic` does not, but its zero is another one on each host and after each
boot. So a run's supervisor looks at both once, and all processes that it starts on the
same host count on from there. Everybody else reads `time.time`.
"""

from __future__ import annotations

import functools
import math
import os
import time
from pathlib import Path

CLOCK_VARIABLE = "NBKIT_CLOCK"
"""Boot id, and Unix time at the zero of `time.monotonic`."""

_LATEST = 1e11
"""The year 5138: later moments have no date."""


@functools.cache
def boot_id() -> str:
    """Return the id that Linux draws at each boot; empty where there is none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def now(of_run: str | None = None) -> float:
    """Return Unix time in seconds; within a run, by the run's clock."""
    zero = _parse_zero(of_run) if of_run else _zero()
    return time.time() if zero is None else zero + time.monotonic()


def start_clock() -> None:
    """Begin to count, in this process and those it starts, unless it has begun."""
    if _zero() is None:
        zero = time.time() - time.monotonic()
        os.environ[CLOCK_VARIABLE] = f"{boot_id()} {zero!r}"


def continue_clock(earlier: str | None) -> str | None:
    """Go on with the clock of an earlier attempt, if the host was not booted since."""
    if _zero() is not None and earlier and _parse_zero(earlier) is not None:
        os.environ[CLOCK_VARIABLE] = earlier
    return os.environ.get(CLOCK_VARIABLE)


def _zero() -> float | None:
    return _parse_zero(os.environ.get(CLOCK_VARIABLE, ""))


def _parse_zero(clock: object) -> float | None:
    """Return the zero of a clock of this boot; others may have written the record."""
    boot, _, text = str(clock).partition(" ")
    try:
        zero = float(text) if boot == boot_id() else math.inf
    except ValueError:
        return None
    return zero if abs(zero) < _LATEST else None
