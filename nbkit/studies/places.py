"""Concurrent starts of a study, each on separate devices."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError
from nbkit.launch.devices.choice import request_devices
from nbkit.launch.devices.claims import leases
from nbkit.launch.run import Run
from nbkit.studies.order import Slot
from nbkit.studies.starts import end_all
from nbkit.telemetry.cpus import usable_cpus
from nbkit.telemetry.gpu_users import gpu_users
from nbkit.telemetry.nvml import open_nvml

_POLL_SECONDS = 0.1

Place: TypeAlias = tuple[str, ...]
"""Devices of one start, by name; empty where the pool chooses them."""


def checked_parallel(
    parallel: int | None, *, is_alone: bool, **others: object
) -> int | None:
    """Return the maximum number of concurrent starts; None for as many as fit.

    Parameters
    ----------
    is_alone
        Whether starts run sequentially unless ``parallel`` is given.
    others
        Arguments that conflict with it, by name.
    """
    excluding = [name for name, value in others.items() if value]
    if parallel is None:
        return 1 if is_alone or excluding else None
    if isinstance(parallel, bool) or not isinstance(parallel, int) or parallel < 1:
        message = f"parallel={parallel!r} is not a number of runs. Use 1, 2 or more."
        raise ConfigError(message)
    if excluding and parallel > 1:
        message = (
            f"parallel={parallel} conflicts with {excluding[0]}, which requires an "
            "otherwise idle machine. Remove one of them."
        )
        raise ConfigError(message)
    return parallel


def free_places(configs: Collection[ExperimentConfig], most: int | None) -> list[Place]:
    """Return device sets for concurrent starts, each large enough for every arm.

    Devices in use are omitted, unless all are in use: then starts wait for them.
    """
    if any(config.engine != "local" for config in configs):
        return [()] * (most or 1)  # its own queue chooses the devices
    requests = [request_devices(config) for config in configs]
    shared = any(request.oversubscribe for request in requests)
    if shared or len({(request.kind, request.candidates) for request in requests}) != 1:
        return [()] * (most or 1)
    kind, count = requests[0].kind, max(request.count for request in requests)
    names = [name for name, _ in requests[0].candidates]
    used = _used(kind, names)
    free = [name for name in names if name not in used]
    free = names if len(free) < count else free
    starts = range(0, len(free) - count + 1, count)
    places = [tuple(free[first : first + count]) for first in starts]
    if kind == "cpu":  # the pool chooses; every start beside it takes memory
        room = max(1, int(usable_cpus()) // count)
        places = [()] * min(most or 1, len(places), room)
    return places[:most] or [()]


def _used(kind: str, names: Collection[str]) -> Collection[str]:
    used = set(leases(kind))
    if kind == "cuda":
        with open_nvml() as nvml:
            used |= gpu_users(nvml.read(), names, ()).keys()
    return used


def run_side_by_side(
    slots: Iterable[Slot],
    places: Sequence[Place],
    places_of: Mapping[int, Place],
    *,
    fitting: Callable[[], Collection[Slot]],
    begin: Callable[[Slot, Place], Run],
    on_poll: Callable[[Mapping[Slot, Run]], None],
    on_end: Callable[[Slot, Run], None],
    check: Callable[[Slot, Run], None],
) -> None:
    """Run slots, at most one in each place at a time.

    All arms of a repeat run in one place in sequence, so that all arms use each place
    equally often. A free place runs the next repeat.

    Parameters
    ----------
    places_of
        Places of repeats that began in an earlier execution.
    fitting
        Returns the slots that may start now; called again after each run.
    on_poll
        Called with the active runs, about ten times per second.
    check
        Raises if the other runs are to be stopped after the end of a run.
    """
    repeats: dict[int, list[Slot]] = {}
    for slot in slots:
        repeats.setdefault(slot.repeat, []).append(slot)
    # A place that is in use today is not waited for.
    place_of = {
        repeat: places.index(place)
        for repeat, place in places_of.items()
        if place and place in places
    }
    running: dict[int, tuple[Slot, Run]] = {}

    def next_slot(number: int) -> Slot | None:
        allowed = fitting()
        own = [repeat for repeat in repeats if place_of.get(repeat) == number]
        new = [repeat for repeat in repeats if repeat not in place_of]
        for repeat in [*own, *new]:
            for slot in repeats[repeat]:
                if slot in allowed:
                    place_of[repeat] = number
                    repeats[repeat].remove(slot)
                    return slot
        return None

    idle: set[int] = set()
    try:
        while len(idle) < len(places):
            for number, place in enumerate(places):
                if number in running:
                    slot, run = running[number]
                    if not run.state.is_final:
                        continue
                    run.wait(raise_on_failure=False, on_poll=lambda _: None)
                    del running[number]
                    on_end(slot, run)
                    check(slot, run)
                    idle.clear()
                if number in idle:
                    continue
                if (slot := next_slot(number)) is not None:
                    running[number] = slot, begin(slot, place)
                else:
                    idle.add(number)
            on_poll(dict(running.values()))
            time.sleep(_POLL_SECONDS)
    except BaseException as error:
        by = "interrupt" if isinstance(error, KeyboardInterrupt) else "study"
        try:
            end_all([run for _, run in running.values()], by=by)
        finally:
            for slot, run in running.values():
                on_end(slot, run)
        raise
