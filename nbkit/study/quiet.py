"""Waiting until no other process computes on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from typing import Any

from nbkit.analysis.diagnose_causes import WORTH_A_WORD
from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError, NvmlUnavailableError
from nbkit.telemetry.host import HostReader
from nbkit.telemetry.nvml import Nvml, open_nvml

__all__ = ["Wait", "wait_for", "wait_until_quiet"]

_LOOK_SECONDS = 1.0
_QUIET_LOOKS = 3
_SAY_SECONDS = 30.0

Busy = Callable[[], dict[str, float]]


@dataclass(frozen=True)
class Wait:
    """How long a study has waited, and what it found."""

    waited_seconds: float
    is_quiet: bool
    """Whether the machine was quiet then, and not only patience over."""
    busy: dict[str, float]
    """Busy share, 0 to 1, by what was busy at the last look."""

    def __str__(self) -> str:
        if self.is_quiet:
            return f"Waited {self.waited_seconds:.0f} s until the machine was quiet."
        return (
            f"After {self.waited_seconds:.0f} s, the longest wait allowed, the "
            f"machine was not quiet: {_told(self.busy) or 'now and then'}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)


def wait_until_quiet(
    patience_seconds: float,
    say: Callable[[str], None],
    busy: Busy | None = None,
    *,
    gpus: int = 0,
) -> Wait:
    """Return once CPUs and GPUs have been idle for some looks, or patience is over.

    Parameters
    ----------
    patience_seconds
        At most so long.
    say
        Gets what is busy, from time to time.
    busy
        Returns what is busy now; None looks at this machine.
    gpus
        How many idle GPUs are needed.

    Raises
    ------
    ConfigError
        If the patience is negative, or no number.
    """
    if not 0 <= patience_seconds < float("inf"):
        message = (
            f"wait_for_quiet={patience_seconds!r} is not a time in seconds; pass a "
            "number of 0 or more, such as 600."
        )
        raise ConfigError(message)
    with ExitStack() as stack:
        look = _Looks(gpus, stack).busy if busy is None else busy
        return _wait(patience_seconds, say, look)


def _wait(patience_seconds: float, say: Callable[[str], None], look: Busy) -> Wait:
    began = time.monotonic()
    said_at, quiet = float("-inf"), 0
    while True:
        found, now = look(), time.monotonic()
        quiet = 0 if found else quiet + 1
        waited = now - began
        if quiet == _QUIET_LOOKS or waited >= patience_seconds:
            return Wait(round(waited, 1), quiet == _QUIET_LOOKS, found)
        if found and now - said_at >= _SAY_SECONDS:
            said_at = now
            most = f"{patience_seconds:.0f} s at most"
            say(f"Waiting for a quiet machine, {most}: {_told(found)}.")


def _told(busy: dict[str, float]) -> str:
    return ", ".join(f"{name} {share * 100:.0f} %" for name, share in busy.items())


def wait_for(
    configs: Collection[ExperimentConfig],
    patience_seconds: float,
    say: Callable[[str], None],
) -> Wait:
    """Wait until this machine is quiet enough for some runs.

    Parameters
    ----------
    configs
        Of the runs.
    patience_seconds, say
        As for `wait_until_quiet`.

    Raises
    ------
    ConfigError
        If one is not for this machine, or the patience is not a time.
    """
    return wait_until_quiet(patience_seconds, say, gpus=_gpus_here(configs))


def _gpus_here(configs: Iterable[ExperimentConfig]) -> int:
    """Return how many GPUs of this machine the largest run takes, if it takes any."""
    most = 0
    for config in configs:
        if config.engine != "local":
            message = (
                f"wait_for_quiet checks this machine, but engine={config.engine!r} "
                "runs elsewhere; omit it."
            )
            raise ConfigError(message)
        if config.device not in ("cpu", "replay"):
            most = max(most, config.gpus)
    return most


class _Looks:
    """Looks at this machine, a second each.

    Parameters
    ----------
    gpus
        So many of its GPUs have to be idle; others may be busy.
    stack
        Closes what stays open in between.
    """

    def __init__(self, gpus: int, stack: ExitStack) -> None:
        self._gpus = gpus
        self._host = HostReader()
        self._host.read()
        self._nvml: Nvml | None = None
        if gpus:
            with suppress(NvmlUnavailableError):
                # It is kept: the driver may take seconds to be initialised.
                self._nvml = stack.enter_context(open_nvml())

    def busy(self) -> dict[str, float]:
        """Return the busy share of CPUs, and of the GPUs that are too many."""
        time.sleep(_LOOK_SECONDS)
        cpus = (self._host.read().cpu_percent or 0.0) / 100
        found = {"CPUs": cpus} if cpus > WORTH_A_WORD else {}
        if self._nvml is None:
            return found
        shares = {
            f"GPU {gpu.index}": (gpu.gpu_utilization_percent or 0) / 100
            for gpu in self._nvml.read()
        }
        busy = {name: share for name, share in shares.items() if share > WORTH_A_WORD}
        return found | (busy if len(shares) - len(busy) < self._gpus else {})
