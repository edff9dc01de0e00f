"""Ratios of two machines under equal conditions.

Only what agrees in every condition is compared. What does not is listed with the value
on each side: a faster layout, another batch or another number format on one side is
what makes most published comparisons of two GPUs wrong.

Runs on two machines cannot be interleaved as the arms of a study are. The interval
covers the scatter between process starts, not a drift of one of the machines between
its own study and the other's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from nbkit.reports.arm_tables import ratio_text
from nbkit.review.usable_arms import earliest
from nbkit.statistics import NoiseFloor, Ratio, holm, ratio
from nbkit.store.nonfinite import NonFinite

Conditions: TypeAlias = tuple[tuple[str, str], ...]
"""Name and value of each."""

Floor: TypeAlias = tuple[str, NoiseFloor]
"""Name of a machine, and a noise floor from one of its controls."""


@dataclass(frozen=True)
class MachineRun:
    """One run in numbers; None is unknown."""

    run_id: str
    conditions: Mapping[str, str]
    """Conditions by name that a run of another machine must share."""
    images_per_second: float
    """Images / time of the measured steps, over all devices."""
    device_type: str | None = None
    data_wait_share: float | None = None
    peak_memory_bytes: float | None = None
    joules_per_image: float | None = None
    cpu_ms_per_image: float | None = None
    nonfinite: NonFinite | None = None
    """First NaN or Inf of its training, if any."""


@dataclass(frozen=True)
class Mismatch:
    """A condition that prevented a comparison."""

    what: str
    """The arm."""
    condition: str
    a: str | None
    """A's value; None if A has no such run."""
    b: str | None


@dataclass(frozen=True)
class MatchedArm:
    """Runs of two machines under equal conditions."""

    name: str
    """Conditions that differ between arms, such as ``fp16, channels_last``."""
    conditions: Conditions
    """In which they agree."""
    a: Sequence[MachineRun]
    b: Sequence[MachineRun]
    ratio: Ratio
    """A's throughput / B's, with interval and verdict."""


FINITE = "finite"
"""The condition that a run must meet by itself."""


def compare_machines(
    a: Iterable[MachineRun], b: Iterable[MachineRun], a_name: str, b_name: str
) -> tuple[list[MatchedArm], list[Mismatch]]:
    """Compare the runs of two machines under equal conditions."""
    arms_a, arms_b = _arms(a), _arms(b)
    telling = _telling([*arms_a, *arms_b])
    alike: list[tuple[str, Conditions]] = []
    lost: list[Mismatch] = []
    for conditions in (candidate for candidate in arms_a if candidate in arms_b):
        name = _name(conditions, telling)
        seen = [
            earliest(run.nonfinite for run in arms[conditions])
            for arms in (arms_a, arms_b)
        ]
        if any(seen):
            lost.append(
                Mismatch(name, FINITE, *(str(nonfinite or "yes") for nonfinite in seen))
            )
        else:
            alike.append((name, conditions))
    ratios = holm(
        [
            partial(
                ratio,
                [run.images_per_second for run in arms_a[conditions]],
                [run.images_per_second for run in arms_b[conditions]],
                a_name=a_name,
                b_name=b_name,
            )
            for _, conditions in alike
        ]
    )
    matched = [
        MatchedArm(
            name, conditions, arms_a[conditions], arms_b[conditions], matched_ratio
        )
        for (name, conditions), matched_ratio in zip(alike, ratios, strict=True)
    ]
    return matched, lost + _left_out(list(arms_a), list(arms_b), telling)


def _arms(runs: Iterable[MachineRun]) -> dict[Conditions, list[MachineRun]]:
    arms: dict[Conditions, list[MachineRun]] = {}
    for run in runs:
        arms.setdefault(tuple(run.conditions.items()), []).append(run)
    return arms


def _telling(arms: Sequence[Conditions]) -> list[str]:
    """Return the conditions that tell arms apart, precision first."""
    values: dict[str, set[str]] = {}
    for arm in arms:
        for name, value in arm:
            values.setdefault(name, set()).add(value)
    several = [name for name, options in values.items() if len(options) > 1]
    return list(dict.fromkeys(["precision", *several]))


_BARE = ("precision", "memory_format", "model", "data", "device_type")
"""Conditions whose value says by itself what it is of."""


def _name(arm: Conditions, telling: Sequence[str]) -> str:
    values = dict(arm)
    return ", ".join(
        values[name]
        if name in _BARE
        else name
        if values[name] == "True"
        else f"{name} {values[name]}"
        for name in telling
        if name in values and values[name] not in ("False", "none")
    )


def _left_out(
    a: Sequence[Conditions], b: Sequence[Conditions], telling: Sequence[str]
) -> list[Mismatch]:
    lonely_a = [arm for arm in a if arm not in b]
    lonely_b = [arm for arm in b if arm not in a]
    mismatches: dict[Mismatch, None] = {}
    for arm in lonely_a:
        nearest = _nearest(arm, lonely_b or b)
        mismatches |= dict.fromkeys(_between(_name(arm, telling), arm, nearest))
    for arm in lonely_b:
        nearest = _nearest(arm, lonely_a or a)
        # A pair of lonely ones that is each other's nearest is listed already.
        if not lonely_a or nearest is None or _nearest(nearest, lonely_b) != arm:
            listed = _between(_name(arm, telling), nearest, arm)
            mismatches |= dict.fromkeys(listed)
    return list(mismatches)


_ANY_RUN = "has runs"
"""What is missing where a machine has no run at all."""


def _between(what: str, a: Conditions | None, b: Conditions | None) -> list[Mismatch]:
    of_a, of_b = dict(a or ()), dict(b or ())
    if not of_a or not of_b:
        # The other machine has no run at all.
        runs = ("yes" if of_a else None, "yes" if of_b else None)
        return [Mismatch(what, _ANY_RUN, *runs)]
    return [
        Mismatch(what, name, of_a.get(name), of_b.get(name))
        for name in dict.fromkeys([*of_a, *of_b])
        if of_a.get(name) != of_b.get(name)
    ]


def _nearest(arm: Conditions, others: Sequence[Conditions]) -> Conditions | None:
    return min(others, key=lambda other: len(set(arm) ^ set(other)), default=None)


def is_on_cpu(matched: Sequence[MatchedArm]) -> bool:
    """Return whether all compared runs used CPUs."""
    kinds = {run.device_type for arm in matched for run in arm.a}
    return kinds == {"cpu"}


def measured_sentence(
    matched: Sequence[MatchedArm],
    left_out: Sequence[Mismatch],
    a_name: str,
    b_name: str,
    floors: Mapping[Conditions, Sequence[Floor]] | None = None,
) -> str:
    """Return one sentence per arm, or that no runs are comparable."""
    if not matched:
        causes = dict.fromkeys(mismatch.condition for mismatch in left_out)
        if FINITE in causes:
            return f"No comparison: all common arms of {a_name} and {b_name} diverged."
        why = f"differing: {', '.join(causes)}"
        if not causes or _ANY_RUN in causes:
            why = "at least one machine has no training run"
        return f"No comparison: no run of {a_name} matches one of {b_name} ({why})."
    ratios = "; ".join(
        f"{_ratio_text(arm.ratio, (floors or {}).get(arm.conditions, ()))} ({arm.name})"
        for arm in matched
    )
    return f"{'CPU smoke test: ' * is_on_cpu(matched)}{a_name} / {b_name}: {ratios}."


def _ratio_text(ratio: Ratio, floors: Sequence[Floor]) -> str:
    """Return a ratio in words, unless a machine alone differs by as much."""
    covering = [(name, floor) for name, floor in floors if floor.covers(ratio)]
    if covering:
        name, floor = covering[0]
        return f"no difference beyond the A/A control on {name} ({floor.difference})"
    return f"{ratio_text(ratio)}{'' if floors else ', no A/A control'}"
