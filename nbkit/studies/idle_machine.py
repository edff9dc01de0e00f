"""Waits for an idle machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError, NvmlUnavailableError
from nbkit.launch.devices.choice import visible_gpus
from nbkit.launch.submit import variables_set
from nbkit.review.causes import WORTH_A_WORD
from nbkit.studies.progress import print_line
from nbkit.telemetry.host import HostReader
from nbkit.telemetry.nvml import open_nvml

LOOK_SECONDS = 1.0
_IDLE_LOOKS = 3
_SAY_SECONDS = 30.0

Busy = dict[str, float]
"""Busy share, 0 to 1, by resource."""


@dataclass(frozen=True)
class Wait:
    """How long a study waited for an idle machine, and the outcome."""

    waited_seconds: float
    is_idle: bool
    """Whether the machine was idle at the end of the wait."""
    busy: Busy
    """What was busy at the last check."""

    def __str__(self) -> str:
        if self.is_idle:
            return f"Waited {self.waited_seconds:.0f} s until the machine was idle."
        return (
            f"Machine still busy after {self.waited_seconds:.0f} s: "
            f"{_in_words(self.busy)}."
        )


def wait_for(
    configs: Sequence[ExperimentConfig],
    patience_seconds: float,
    say: Callable[[str], None],
    environment: Mapping[str, str],
) -> Wait:
    """Wait until this machine is idle enough for some runs, up to a limit."""
    for config in configs:
        if config.engine != "local":
            message = (
                f"wait_for_idle checks this machine, but engine={config.engine!r} runs "
                "on other machines. Omit wait_for_idle."
            )
            raise ConfigError(message)
    devices = {config.device for config in configs} - {"cpu", "replay"}
    with variables_set(environment):
        gpus = [gpu for device in devices for gpu in visible_gpus(device)]
    with ExitStack() as stack:
        labels: dict[str | None, str] = {gpu.name: gpu.label for gpu in gpus}
        return wait_until_idle(patience_seconds, say, _looks(labels, stack))


def wait_until_idle(
    patience_seconds: float, say: Callable[[str], None], looks: Iterator[Busy]
) -> Wait:
    """Return after several consecutive idle checks, or at the time limit."""
    if not 0 <= patience_seconds < float("inf"):
        message = (
            f"wait_for_idle={patience_seconds!r} is not a finite time of 0 s or more. "
            "Use a number of seconds, such as 600."
        )
        raise ConfigError(message)
    began = time.monotonic()
    said_at, idle = float("-inf"), 0
    while True:
        busy = next(looks)
        now = time.monotonic()
        idle = 0 if busy else idle + 1
        waited = now - began
        # Looks that were idle so far are finished, a busy one ends it.
        if idle == _IDLE_LOOKS or (busy and waited >= patience_seconds):
            return Wait(round(waited, 1), not busy, busy)
        if busy and now - said_at >= _SAY_SECONDS:
            said_at = now
            limit = f"up to {patience_seconds:.0f} s"
            say(f"Waiting for an idle machine, {limit}: {_in_words(busy)}.")


def wait_before(
    configs: Iterable[ExperimentConfig], patience_seconds: float
) -> Wait | None:
    """Wait for an idle machine, if requested, before measurements of a plan."""
    if not patience_seconds:
        return None
    wait = wait_for([*configs], patience_seconds, print_line, {})
    print_line(str(wait))
    return wait


def _in_words(busy: Busy) -> str:
    return ", ".join(f"{name} {share * 100:.0f}%" for name, share in busy.items())


def _looks(labels: Mapping[str | None, str], stack: ExitStack) -> Iterator[Busy]:
    """Look at the CPUs, and at the GPUs that runs may get, a second each time."""
    host = HostReader()
    host.read()
    nvml = None
    if labels:
        with suppress(NvmlUnavailableError):
            # It is kept: the driver may take seconds to be initialised.
            nvml = stack.enter_context(open_nvml())
    while True:
        time.sleep(LOOK_SECONDS)
        shares = {"CPUs": (host.read().cpu_percent or 0.0) / 100}
        for gpu in nvml.read() if nvml else ():
            if gpu.uuid in labels:
                share = (gpu.gpu_utilization_percent or 0) / 100
                shares[labels[gpu.uuid]] = share
        yield {name: share for name, share in shares.items() if share > WORTH_A_WORD}
