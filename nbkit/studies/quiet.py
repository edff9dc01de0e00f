"""Waiting until no other process computes on this machine."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from typing import Any

from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError, NvmlUnavailableError
from nbkit.launch.devices.choice import DeviceRequest, request_devices
from nbkit.review.causes import WORTH_A_WORD
from nbkit.telemetry.host import HostReader
from nbkit.telemetry.nvml import Nvml, open_nvml

_LOOK_SECONDS = 1.0
_QUIET_LOOKS = 3
_SAY_SECONDS = 30.0

Busy = Callable[[], dict[str, float]]
Round = Sequence[DeviceRequest]
"""What runs that are started together ask for."""


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
        # Earlier versions could end at a quiet look.
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
    rounds: Sequence[Round] = (),
) -> Wait:
    """Return once CPUs and GPUs have been idle for some looks, or patience is over."""
    if not 0 <= patience_seconds < float("inf"):
        message = (
            f"wait_for_quiet={patience_seconds!r} is not a time in seconds; pass a "
            "number of 0 or more, such as 600."
        )
        raise ConfigError(message)
    with ExitStack() as stack:
        look = _Looks(rounds, stack).busy if busy is None else busy
        return _wait(patience_seconds, say, look)


def _wait(patience_seconds: float, say: Callable[[str], None], look: Busy) -> Wait:
    began = time.monotonic()
    said_at, quiet = float("-inf"), 0
    while True:
        found, now = look(), time.monotonic()
        quiet = 0 if found else quiet + 1
        waited = now - began
        # Looks that were quiet so far are finished, a busy one ends it.
        if quiet == _QUIET_LOOKS or (found and waited >= patience_seconds):
            return Wait(round(waited, 1), not found, found)
        if found and now - said_at >= _SAY_SECONDS:
            said_at = now
            most = f"{patience_seconds:.0f} s at most"
            say(f"Waiting for a quiet machine, {most}: {_told(found)}.")


def _told(busy: dict[str, float]) -> str:
    return ", ".join(f"{name} {share * 100:.0f} %" for name, share in busy.items())


def wait_for(
    rounds: Sequence[Sequence[ExperimentConfig]],
    patience_seconds: float,
    say: Callable[[str], None],
) -> Wait:
    """Wait until this machine is quiet enough for some runs."""
    asked = [[*_requests(configs)] for configs in rounds]
    return wait_until_quiet(patience_seconds, say, rounds=asked)


def wait_before(configs: Iterable[ExperimentConfig], patience_seconds: float) -> str:
    """Wait for a quiet machine, if asked to, before what precedes a study's runs."""
    if not patience_seconds:
        return ""
    told = str(wait_for([[one] for one in configs], patience_seconds, _print))
    _print(told)
    return told


def _print(sentence: str) -> None:
    sys.stdout.write(f"{sentence}\n")
    sys.stdout.flush()


def _requests(configs: Iterable[ExperimentConfig]) -> Iterator[DeviceRequest]:
    """Yield what each run that needs GPUs of this machine asks for."""
    for config in configs:
        if config.engine != "local":
            message = (
                f"wait_for_quiet checks this machine, but engine={config.engine!r} "
                "runs elsewhere; omit it."
            )
            raise ConfigError(message)
        if config.device in ("cpu", "replay"):
            continue
        if (request := request_devices(config)).kind == "cuda":
            yield request


class _Looks:
    """Looks at this machine, a second each.

    Parameters
    ----------
    rounds
        For each round enough of the GPUs that will do must be idle; others may be busy.
    stack
        Closes what stays open in between.
    """

    def __init__(self, rounds: Sequence[Round], stack: ExitStack) -> None:
        self._rounds = rounds
        self._host = HostReader()
        self._host.read()
        self._nvml: Nvml | None = None
        if any(rounds):
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
            gpu.uuid: (gpu.gpu_utilization_percent or 0) / 100
            for gpu in self._nvml.read()
        }
        busy = {uuid: share for uuid, share in shares.items() if share > WORTH_A_WORD}
        missed: dict[str, str] = {}
        for asked in self._rounds:
            labels = dict(one for request in asked for one in request.candidates)
            if not _has_enough(asked, labels.keys() - busy.keys()):
                missed |= labels
        return found | {missed[uuid]: busy[uuid] for uuid in busy if uuid in missed}


def _has_enough(asked: Round, idle: Set[str]) -> bool:
    """Return whether every run of a round, and all together, find idle GPUs."""
    will_do = [{name for name, _ in request.candidates} for request in asked]
    # Several ranks on a GPU ask for more than there are.
    if any(
        len(names & idle) < min(request.count, len(names))
        for request, names in zip(asked, will_do, strict=True)
    ):
        return False
    there = set().union(*will_do)
    return len(idle) >= min(sum(request.count for request in asked), len(there))
