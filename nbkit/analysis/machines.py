"""Two machines, like against like: measured runs, and rows of the published table.

Only what agrees in every condition is compared. What does not is listed with the value
on each side: a faster layout, another batch or another number format on one side is
what makes most published comparisons of two GPUs wrong.

Runs on two machines cannot be interleaved as the arms of a study are. The interval
covers the scatter between process starts, not a drift of one of the machines between
its own study and the other's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nbkit.analysis.published import PublishedRow, lookup
from nbkit.statistics import Ratio, ratio

__all__ = [
    "UNSTATED",
    "LeftOut",
    "MachineRun",
    "MatchedArm",
    "PublishedPair",
    "compare_machines",
    "measured_sentence",
    "published_pairs",
    "published_sentence",
    "result_document",
]

UNSTATED = "not stated"
"""A condition that a source does not say. It is like no value, only like itself."""


@dataclass(frozen=True)
class MachineRun:
    """One finished run in numbers; None is unknown."""

    run_id: str
    conditions: Mapping[str, str]
    """What a run of another machine must have in common with it, by name."""
    images_per_second: float
    """Median over the measured steps, all devices together."""
    device_type: str | None = None
    data_wait_share: float | None = None
    peak_memory_bytes: float | None = None
    joules_per_image: float | None = None
    cpu_ms_per_image: float | None = None


@dataclass(frozen=True)
class MatchedArm:
    """Runs of two machines that agree in every condition."""

    name: str
    """What tells it from the other arms, such as ``fp16, channels_last``."""
    a: Sequence[MachineRun]
    b: Sequence[MachineRun]
    ratio: Ratio
    """A's throughput over B's, with interval and verdict."""


@dataclass(frozen=True)
class LeftOut:
    """One condition for which something was not compared."""

    what: str
    """The arm, or the source."""
    condition: str
    a: str | None
    """A's value; None if A has nothing of the kind."""
    b: str | None


@dataclass(frozen=True)
class PublishedPair:
    """Two published numbers whose sources state the same conditions."""

    a: PublishedRow
    b: PublishedRow

    @property
    def ratio(self) -> float:
        """A's throughput over B's; one number each, so that there is no interval."""
        return (self.a.images_per_second or 0) / (self.b.images_per_second or 1)

    @property
    def label(self) -> str:
        """What is compared, in a line."""
        first = self.a
        devices = f"{first.world_size} GPU{'' if first.world_size == 1 else 's'}"
        how = (first.precision, first.memory_format, devices)
        told = ", ".join(word for word in how if word)
        return f"{told}: {first.publisher}, {first.software}"


# Measured


def compare_machines(
    a: Iterable[MachineRun], b: Iterable[MachineRun], a_name: str, b_name: str
) -> tuple[list[MatchedArm], list[LeftOut]]:
    """Compare what two machines have in common.

    Parameters
    ----------
    a, b
        Their finished runs; each a separate process start.
    a_name, b_name
        What the machines are called.

    Returns
    -------
    list of MatchedArm
        In A's order; empty if no condition set is on both sides.
    list of LeftOut
        For every arm of one machine without its like on the other, the conditions in
        which the nearest one differs.
    """
    arms_a, arms_b = _arms(a), _arms(b)
    telling = _telling([*arms_a, *arms_b])
    matched = []
    for conditions, runs in arms_a.items():
        if conditions in arms_b:
            others, name = arms_b[conditions], _name(conditions, telling)
            found = ratio(
                [run.images_per_second for run in runs],
                [run.images_per_second for run in others],
                a_name=a_name,
                b_name=b_name,
            )
            matched.append(MatchedArm(name, runs, others, found))
    return matched, _left_out(list(arms_a), list(arms_b), telling)


_Conditions = tuple[tuple[str, str], ...]


def _arms(runs: Iterable[MachineRun]) -> dict[_Conditions, list[MachineRun]]:
    arms: dict[_Conditions, list[MachineRun]] = {}
    for run in runs:
        arms.setdefault(tuple(run.conditions.items()), []).append(run)
    return arms


def _telling(arms: Sequence[_Conditions]) -> list[str]:
    """Return the conditions that tell arms apart, precision first."""
    values: dict[str, set[str]] = {}
    for arm in arms:
        for name, value in arm:
            values.setdefault(name, set()).add(value)
    several = [name for name, found in values.items() if len(found) > 1]
    return list(dict.fromkeys(["precision", *several]))


def _name(arm: _Conditions, telling: Sequence[str]) -> str:
    values = dict(arm)
    return ", ".join(
        values[name] if not values[name].isdecimal() else f"{name} {values[name]}"
        for name in telling
        if name in values and values[name] not in ("False", "none")
    )


def _left_out(
    a: Sequence[_Conditions], b: Sequence[_Conditions], telling: Sequence[str]
) -> list[LeftOut]:
    lonely_a = [arm for arm in a if arm not in b]
    lonely_b = [arm for arm in b if arm not in a]
    found: dict[LeftOut, None] = {}
    for arm in lonely_a:
        nearest = _nearest(arm, lonely_b or b)
        found |= dict.fromkeys(_between(_name(arm, telling), arm, nearest))
    for arm in lonely_b:
        nearest = _nearest(arm, lonely_a or a)
        # A pair of lonely ones that is each other's nearest is listed already.
        if not lonely_a or nearest is None or _nearest(nearest, lonely_b) != arm:
            listed = _between(_name(arm, telling), nearest, arm)
            found |= dict.fromkeys(listed)
    return list(found)


def _between(what: str, a: _Conditions | None, b: _Conditions | None) -> list[LeftOut]:
    of_a, of_b = dict(a or ()), dict(b or ())
    if not of_a or not of_b:
        # The other machine has no run at all.
        names = ["precision"]
        return [LeftOut(what, one, of_a.get(one), of_b.get(one)) for one in names]
    return [
        LeftOut(what, name, of_a.get(name), of_b.get(name))
        for name in dict.fromkeys([*of_a, *of_b])
        if of_a.get(name) != of_b.get(name)
    ]


def _nearest(arm: _Conditions, others: Sequence[_Conditions]) -> _Conditions | None:
    return min(others, key=lambda other: len(set(arm) ^ set(other)), default=None)


def measured_sentence(
    matched: Sequence[MatchedArm],
    left_out: Sequence[LeftOut],
    a_name: str,
    b_name: str,
) -> str:
    """Return in a sentence an arm what was measured, or that nothing is alike."""
    if not matched:
        causes = ", ".join(dict.fromkeys(one.condition for one in left_out))
        return (
            f"No verdict: no run of {a_name} is like one of {b_name} "
            f"(they differ in {causes or 'everything: one of them has no run'})."
        )
    text = " ".join(f"{arm.name}: {arm.ratio.sentence}" for arm in matched)
    on_cpu = all(run.device_type == "cpu" for arm in matched for run in arm.a)
    return f"CPU, functional: {text}" if on_cpu else text


# Published

_LIKE = (
    *("publisher", "framework", "software", "origin", "model", "phase"),
    *("world_size", "nnodes", "data", "precision", "memory_format", "compile"),
    *("batch_size_per_gpu", "statistic", "window"),
)
"""What two published rows must have in common to be compared."""

_SAME_CAMPAIGN = ("publisher", "software", "origin", "world_size", "nnodes")
"""What two rows have in common of which it is worth saying why they are not."""


def published_pairs(
    a_gpu: str,
    b_gpu: str,
    *,
    model: str,
    precision: Sequence[str] | None = None,
) -> tuple[list[PublishedPair], list[LeftOut]]:
    """Return published numbers of two GPUs that may be put side by side.

    Parameters
    ----------
    a_gpu, b_gpu
        Names of the vocabulary (`nbkit.analysis.gpu_names`); ``V100`` means all of
        its forms.
    model
        The rows' model, trained.
    precision
        Only these; None for all.

    Returns
    -------
    list of PublishedPair
        Same publisher, software, model, number of GPUs, data, precision, layout, batch
        and statistic; PyTorch's first, then the newer. A condition that both leave
        open counts as the same, one that only one of them states does not.
    list of LeftOut
        Where a publisher has both GPUs and they are not alike: in what they differ.
    """
    rows_a, rows_b = (_rows(gpu, model, precision) for gpu in (a_gpu, b_gpu))
    rows_b = [row for row in rows_b if row not in rows_a]
    pairs = [
        PublishedPair(a, b) for a in rows_a for b in rows_b if _like(a) == _like(b)
    ]
    left_out: dict[LeftOut, None] = {}
    for a in rows_a:
        same = [b for b in rows_b if _campaign(b) == _campaign(a)]
        if not any(_like(b) == _like(a) for b in same):
            nearest = min(same, key=lambda b, a=a: _distance(a, b), default=None)
            if nearest is not None:
                names = _unlike(a, nearest)
                found = (_published_left_out(name, a, nearest) for name in names)
                left_out |= dict.fromkeys(found)
    pairs.sort(key=_importance)
    return pairs, list(left_out)


def _rows(gpu: str, model: str, precision: Sequence[str] | None) -> list[PublishedRow]:
    return [
        row
        for row in lookup(model=model, gpu_name=gpu)
        if row.images_per_second is not None
        and (precision is None or row.precision in precision)
    ]


def _importance(pair: PublishedPair) -> tuple[bool, int, str, int, str]:
    row = pair.a
    return (
        row.framework != "pytorch",
        -row.year,
        row.publisher,
        row.world_size,
        pair.label,
    )


def _like(row: PublishedRow) -> tuple[object, ...]:
    return tuple(getattr(row, name) for name in _LIKE)


def _campaign(row: PublishedRow) -> tuple[object, ...]:
    return tuple(getattr(row, name) for name in _SAME_CAMPAIGN)


def _unlike(a: PublishedRow, b: PublishedRow) -> list[str]:
    return [name for name in _LIKE if getattr(a, name) != getattr(b, name)]


def _distance(a: PublishedRow, b: PublishedRow) -> tuple[int, bool]:
    """Return in how much two rows differ; TF32 stands for FP32, not for FP16."""
    return len(_unlike(a, b)), {a.precision, b.precision} == {"tf32", "fp16"}


def _published_left_out(name: str, a: PublishedRow, b: PublishedRow) -> LeftOut:
    told = [
        UNSTATED if value is None else str(value)
        for value in (getattr(a, name), getattr(b, name))
    ]
    what = ", ".join(part for part in (a.publisher, a.software, a.precision) if part)
    return LeftOut(what, name, told[0], told[1])


def published_sentence(pairs: Sequence[PublishedPair], a_gpu: str, b_gpu: str) -> str:
    """Return in a sentence what others have published of two GPUs, like for like."""
    if not pairs:
        return f"Published: no two rows of {a_gpu} and {b_gpu} are like for like."
    parts = []
    for precision in dict.fromkeys(pair.a.precision for pair in pairs):
        ratios = [pair.ratio for pair in pairs if pair.a.precision == precision]
        low, high = f"{min(ratios):.2f}", f"{max(ratios):.2f}"
        span = low if low == high else f"{low} to {high}"
        count = f"{len(ratios)} pair{'' if len(ratios) == 1 else 's'}"
        parts.append(f"{span} with {precision or 'a precision not stated'} ({count})")
    return (
        f"Published by others: {a_gpu} / {b_gpu} = {', '.join(parts)}; published, no "
        "interval: one number each."
    )


_RATIO_FIELDS = (
    *("estimate", "ci_low", "ci_high", "bootstrap_low", "bootstrap_high"),
    *("verdict", "n_a", "n_b", "confidence", "margin"),
)


def result_document(
    matched: Sequence[MatchedArm],
    left_out: Sequence[LeftOut],
    pairs: Sequence[PublishedPair],
    a_name: str,
    b_name: str,
) -> dict[str, Any]:
    """Return the result for programs; measured and published stay apart."""
    return {
        "schema": 1,
        "quantity": "images_per_second",
        "functional_only": bool(matched)
        and all(run.device_type == "cpu" for arm in matched for run in arm.a),
        "a": a_name,
        "b": b_name,
        "measured": [
            {
                "arm": arm.name,
                "conditions": dict(arm.a[0].conditions),
                "ratio": {name: getattr(arm.ratio, name) for name in _RATIO_FIELDS},
                "a": [asdict(run) for run in arm.a],
                "b": [asdict(run) for run in arm.b],
            }
            for arm in matched
        ],
        "left_out": [asdict(one) for one in left_out],
        "published": [
            {"ratio": pair.ratio, "a": asdict(pair.a), "b": asdict(pair.b)}
            for pair in pairs
        ],
    }
