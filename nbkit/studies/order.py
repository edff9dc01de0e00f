"""In which order the process starts of a study come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError


@dataclass(frozen=True)
class Slot:
    """One place in a study's order: one process start of one arm."""

    arm: str
    repeat: int
    """Counted from 0."""

    @property
    def label(self) -> str:
        """What progress and lists of runs call it: ``new, repeat 3``."""
        return f"{self.arm}, repeat {self.repeat + 1}"


def balanced_order(arms: Sequence[str], repeats: int) -> list[Slot]:
    """Return the order of a study: the arms forward, then backward, and so on.

    With two arms this is ABBA. A drift of the machine (clocks, temperature, other
    users) that is linear in time then falls on every arm alike after an even number
    of repeats.

    A drift that slows down or speeds up, and an odd number of repeats, leave a rest.
    It is largest between the first arm and the last one, which stand at the ends of
    every repeat. Give an arm and its control these two places: then no other pair of
    arms is hit harder by the rest than the pair whose difference is the noise floor.
    What comes and goes within two repeats is not cancelled; the runs' own scatter, and
    so every interval, has it.
    """
    return [
        Slot(arm, repeat)
        for repeat in range(repeats)
        for arm in (arms if repeat % 2 == 0 else reversed(arms))
    ]


def twin(arm: str) -> str:
    """Return the name under which an arm is measured a second time."""
    return f"{arm} again"


def of_repeat(
    fields: Mapping[str, Any], repeat: int, plan: Mapping[str, Any]
) -> dict[str, Any]:
    """Return an arm's fields for one of its repeats.

    Repeats are the same but for chance, unless the plan says ``seed_per_repeat``: then
    each has its own seed, the arm's and those after it, and every arm the same.
    """
    if not plan.get("seed_per_repeat"):
        return dict(fields)
    return {**fields, "seed": fields.get("seed", 0) + repeat}


def arms_and_order(
    arms: Mapping[str, ExperimentConfig],
    repeats: int,
    control: str | None,
    unrepeated: Mapping[str, ExperimentConfig],
) -> tuple[dict[str, ExperimentConfig], list[Slot]]:
    """Return the configuration of everything that runs, and in which order.

    What runs once comes first. An arm and its control stand at the ends of every
    repeat, see `balanced_order`.
    """
    compared, names = dict(arms), list(arms)
    if control is not None:
        if control not in arms:
            listed = ", ".join(map(repr, arms))
            message = f"control={control!r} is not an arm. Use one of {listed}."
            raise ConfigError(message)
        names = [control, *(arm for arm in arms if arm != control), twin(control)]
        again = arms[control]
        # Without a name, a study calls its runs by the arm.
        compared[twin(control)] = (
            again.replace(name=twin(again.name)) if again.name else again
        )
    counts = Counter([*unrepeated, *names])
    twice = [name for name in counts if counts[name] > 1]
    if twice:
        message = f"Two arms have the name {twice[0]!r}. Rename one of them."
        raise ConfigError(message)
    slots = [Slot(name, 0) for name in unrepeated]
    return {**unrepeated, **compared}, [*slots, *balanced_order(names, repeats)]
