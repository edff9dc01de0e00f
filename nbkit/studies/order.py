"""Order of the process starts of a study."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError


@dataclass(frozen=True)
class Slot:
    """One process start of one arm, as an entry in a study's order."""

    arm: str
    repeat: int
    """Counted from 0."""

    @property
    def label(self) -> str:
        """Name in progress and lists of runs, such as ``new, repeat 3``."""
        return f"{self.arm}, repeat {self.repeat + 1}"


def balanced_order(arms: Sequence[str], repeats: int) -> list[Slot]:
    """Return the order of a study: the arms forward, then backward, and so on.

    With two arms, this is ABBA. A linear drift of the machine (clocks, temperature,
    other users) then affects all arms equally after an even number of repeats.

    With a nonlinear drift or an odd number of repeats, a remainder is left. It is
    largest between the first and the last arm of a repeat. Use these two positions for
    an arm and its A/A control, so that no other pair is affected more than the pair
    that measures the noise floor. Disturbances that are shorter than two repeats do not
    cancel; they are part of the scatter of the runs, and so of every interval.
    """
    return [
        Slot(arm, repeat)
        for repeat in range(repeats)
        for arm in (arms if repeat % 2 == 0 else reversed(arms))
    ]


def twin(arm: str) -> str:
    """Return the name of an arm's A/A control."""
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
