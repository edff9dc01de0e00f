"""Waiting until nobody else computes on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from nbkit.analysis.diagnose_causes import WORTH_A_WORD
from nbkit.errors import ConfigError, NvmlUnavailableError
from nbkit.telemetry.host import HostReader
from nbkit.telemetry.nvml import open_nvml

__all__ = ["Wait", "wait_until_quiet"]

_LOOK_SECONDS = 1.0
_QUIET_LOOKS = 3
_SAY_SECONDS = 30.0

Busy = Callable[[], dict[str, float]]


@dataclass(frozen=True)
class Wait:
    """How long a study has waited, and what it found."""

    waited_seconds: float
    patience_seconds: float
    busy: dict[str, float]
    """Busy share, 0 to 1, by what is busy at the end; empty on a quiet machine."""

    def __str__(self) -> str:
        if not self.busy:
            return f"Waited {self.waited_seconds:.0f} s until the machine was quiet."
        return (
            f"After {self.waited_seconds:.0f} s, as long as it was to wait, the "
            f"machine was not quiet: {_told(self.busy)}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)


def wait_until_quiet(
    patience_seconds: float, say: Callable[[str], None], busy: Busy | None = None
) -> Wait:
    """Return once CPUs and GPUs have been idle for some looks, or patience is over.

    Parameters
    ----------
    patience_seconds
        At most so long.
    say
        Is told what is busy, now and then.
    busy
        Returns what is busy now; None looks at this machine.

    Raises
    ------
    ConfigError
        If the patience is negative, or no number.
    """
    if not 0 <= patience_seconds < float("inf"):
        message = (
            f"wait_for_quiet={patience_seconds!r} is no time in seconds; pass a number "
            "from 0 on, such as 600."
        )
        raise ConfigError(message)
    look = _Looks().busy if busy is None else busy
    began = time.monotonic()
    said_at, quiet = float("-inf"), 0
    while True:
        found, now = look(), time.monotonic()
        quiet = 0 if found else quiet + 1
        waited = now - began
        if quiet == _QUIET_LOOKS or waited >= patience_seconds:
            return Wait(round(waited, 1), float(patience_seconds), found)
        if found and now - said_at >= _SAY_SECONDS:
            said_at = now
            most = f"{patience_seconds:.0f} s at most"
            say(f"Waiting for a quiet machine, {most}: {_told(found)}.")


def _told(busy: dict[str, float]) -> str:
    return ", ".join(f"{name} {share * 100:.0f} %" for name, share in busy.items())


class _Looks:
    """Looks at this machine, a second each."""

    def __init__(self) -> None:
        self._host = HostReader()
        self._host.read()

    def busy(self) -> dict[str, float]:
        """Return the busy share of the CPUs and of each GPU, from a tenth on."""
        time.sleep(_LOOK_SECONDS)
        shares = {"CPUs": (self._host.read().cpu_percent or 0.0) / 100}
        with suppress(NvmlUnavailableError), open_nvml() as nvml:
            for gpu in nvml.read():
                shares[f"GPU {gpu.index}"] = (gpu.gpu_utilization_percent or 0) / 100
        return {name: share for name, share in shares.items() if share > WORTH_A_WORD}
