"""Checks of published claims and unstated conditions.

``claims.json`` holds what was printed, with what it was made from and where it stands.
A check knows a kind of claim and no publication: a claim that is right passes.
"""

from __future__ import annotations

import functools
import json
import re
import shlex
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from itertools import combinations
from typing import Any

from nbkit.references.rows import PublishedRow
from nbkit.review.findings import AuditFinding
from nbkit.statistics.quantities import minutes

CACHE_FACTOR = 5
"""Data of so many times the memory of all hosts cannot come from it: MLPerf Storage,
https://github.com/mlcommons/storage/blob/main/Submission_guidelines.md."""


@dataclass(frozen=True)
class PublishedClaim:
    """One claim of a publication, with the data to check it."""

    name: str
    about: Mapping[str, Any]
    """Field values that identify its rows (`PublishedRow`)."""
    check: str
    """Name of the check for this kind of claim."""
    statement: str
    """The claim, in a few words."""
    values: Mapping[str, Any]
    """What the check needs."""
    source: str
    """Title of the publication."""
    url: str | None
    """URL of the publication; None if unknown."""

    def is_about(self, row: PublishedRow) -> bool:
        """Return whether a published row belongs to the claim."""
        return all(getattr(row, name) == value for name, value in self.about.items())


@functools.cache
def claims() -> tuple[PublishedClaim, ...]:
    """Return every stored claim, in the order of the data file."""
    file = resources.files("nbkit.review") / "claims.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    return tuple(
        PublishedClaim(**{**claim, **content["sources"][claim["source"]]})
        for claim in content["claims"]
    )


def claims_about(rows: Iterable[PublishedRow]) -> list[PublishedClaim]:
    """Return the claims that belong to any of these rows."""
    listed = list(rows)
    return [claim for claim in claims() if any(map(claim.is_about, listed))]


def claim_findings(claim: PublishedClaim) -> Iterator[AuditFinding]:
    """Yield the findings on a claim; empty if it is plausible."""
    for code, evidence in CHECKS[claim.check](claim.values):
        yield AuditFinding.of(
            code, f"{claim.source}: {claim.name}", claim.statement, evidence, claim.url
        )


def unstated_findings(rows: Iterable[PublishedRow]) -> Iterator[AuditFinding]:
    """Yield findings on conditions that published rows do not state.

    There is one finding per publisher and software, because such gaps are common.
    """
    groups: dict[tuple[str, str | None], list[PublishedRow]] = {}
    for row in rows:
        if _unstated(row):
            groups.setdefault((row.publisher, row.software), []).append(row)
    for whose, members in groups.items():
        count = len(members)
        rows_of = Counter(name for row in members for name in _unstated(row))
        parts = [
            name if row_count == count else f"{name} ({row_count} of {count} rows)"
            for name, row_count in rows_of.items()
        ]
        alone = count == 1
        yield AuditFinding.of(
            "not-stated",
            members[0].label if alone else ": ".join(filter(None, whose)),
            "1 row" if alone else f"{count} rows",
            f"{'' if alone else f'{count} rows, '}not stated: {', '.join(parts)}",
            members[0].url,
        )


def _unstated(row: PublishedRow) -> list[str]:
    sixteen_bit = "mixed precision" in (row.conditions or "")
    conditions = {
        "16-bit format": row.precision or (None if sixteen_bit else ""),
        "memory layout": row.memory_format,
        "statistic": row.statistic,
        "batch size": row.batch_size_per_gpu,
        "number of runs": row.runs,
    }
    return [name for name, value in conditions.items() if value is None]


ClaimOutcome = tuple[str, str]
"""Code and evidence."""

Values = Mapping[str, Any]


def _mean(values: Values) -> Iterator[ClaimOutcome]:
    """Check a mean against its values; the last printed digit may be cut or rounded."""
    computed = statistics.fmean(values["of"])
    if abs(computed - values["value"]) >= values["last_digit"]:
        yield (
            "mean",
            f"printed {_quantity(values['value'], values['unit'])}, but the "
            f"{len(values['of'])} printed values give "
            f"{_quantity(computed, values['unit'])}",
        )


def _ratio(values: Values) -> Iterator[ClaimOutcome]:
    """Check a ratio against its columns; its last digit may be cut or rounded."""
    computed = values["a"] / values["b"]
    if abs(computed - values["value"]) >= values["last_digit"]:
        yield (
            "ratio",
            f"printed {values['value']:g}, but {values['a']:,g} / {values['b']:,g} is "
            f"{computed:.2f}",
        )


def _work(values: Values) -> Iterator[ClaimOutcome]:
    """Check rate x time against the images that there were to train with."""
    for point in values["points"]:
        images = point["images_per_second"] * point["seconds"]
        epochs = images / values["images_per_epoch"]
        if epochs > values["epochs"]:
            yield (
                "excess-images",
                f"{point['label']}: {point['images_per_second']:,g} images/s for "
                f"{minutes(point['seconds'])} are {epochs:.1f} epochs, "
                f"but the run has {values['epochs']}",
            )


def _rank(values: Values) -> Iterator[ClaimOutcome]:
    """Find the pair of the same work whose rates and times disagree most."""
    worst: tuple[float, str] | None = None
    for point, other in combinations(values["points"], 2):
        slow, fast = sorted(
            (point, other), key=lambda point: point["images_per_second"]
        )
        faster = fast["images_per_second"] / slow["images_per_second"]
        longer = fast["seconds"] / slow["seconds"]
        if faster > 1 and longer > 1 and (worst is None or faster * longer > worst[0]):
            worst = (
                faster * longer,
                f"{fast['label']} {fast['images_per_second']:,g} images/s in "
                f"{minutes(fast['seconds'])}, {slow['label']} "
                f"{slow['images_per_second']:,g} images/s in "
                f"{minutes(slow['seconds'])}",
            )
    if worst is not None:
        yield "rank-inversion", worst[1]


def _cache(values: Values) -> Iterator[ClaimOutcome]:
    """Check whether a comparison of storage can have read from it."""
    data, memory = values["data_bytes"], values["host_memory_bytes"]
    epochs = values["epochs"]
    evidence = cache_evidence(data, memory, values.get("nnodes", 1))
    if evidence is not None and epochs > 1:
        if data < memory:
            evidence += f"; {epochs - 1} of {epochs} epochs can be read from memory"
        yield "cache-test", evidence


def cache_evidence(
    data_bytes: float, host_memory_bytes: float, nnodes: int
) -> str | None:
    """Return why data may come from the page cache; None if large enough."""
    memory = host_memory_bytes * nnodes
    if data_bytes >= CACHE_FACTOR * memory:
        return None
    return (
        f"dataset ({data_bytes / 1e9:,.3g} GB) is "
        f"{times_in_words(data_bytes / memory)}x memory ({memory / 1e9:,.4g} GB); "
        f"MLPerf Storage requires {CACHE_FACTOR}x"
    )


def times_in_words(times: float) -> str:
    """Return the ratio of data to memory: ``1.1``, or ``less than 0.01``."""
    return f"{times:.2g}" if times >= 0.01 else "less than 0.01"


def _demand(values: Values) -> Iterator[ClaimOutcome]:
    """Check what training has to read against what the storage was measured at."""
    needed = values["images_per_second"] * values["bytes_per_image"]
    if needed > values["storage_bytes_per_second"]:
        yield (
            "demand",
            f"{values['images_per_second']:,.6g} images/s x "
            f"{values['bytes_per_image'] / 1e3:,.0f} kB are {needed / 1e9:.3g} GB/s, "
            "but the storage was measured at "
            f"{values['storage_bytes_per_second'] / 1e9:.3g} GB/s",
        )


def _environment(values: Values) -> Iterator[ClaimOutcome]:
    """Check that the points of a comparison share what they are not about."""
    points = values["points"]
    differing = [
        name
        for name in points[0]
        if name not in values["varied"] and len({point[name] for point in points}) > 1
    ]
    if differing:
        parts = [
            f"{name.replace('_', ' ')}: "
            + ", ".join(dict.fromkeys(str(point[name]) for point in points))
            for name in differing
        ]
        yield "mixed-environment", "; ".join(parts)


def _quoted(values: Values) -> Iterator[ClaimOutcome]:
    """Check that one quantity is printed with one value."""
    printed = values["printed"]
    # Of equally exact values the first one printed.
    exact = min(printed.values(), key=_half_unit)
    for place, value in printed.items():
        if value == exact:
            continue
        others = ", ".join(f"{where}: {what:,.12g}" for where, what in printed.items())
        is_rounding = abs(value - exact) <= _half_unit(value)
        yield (
            "rounded" if is_rounding else "contradiction",
            f"{place} differs; {others}",
        )


def _rounding(values: Values) -> Iterator[ClaimOutcome]:
    """Check that figures have enough digits for the difference they are to show."""
    coarse = [
        f"{value:,g} +- {_half_unit(value):g} ({_half_unit(value) / value * 100:.1f}%)"
        for value in values["figures"]
        if 2 * _half_unit(value) / value > values["difference"]
    ]
    if coarse:
        yield (
            "rounded",
            f"{', '.join(coarse)}: too coarse for a difference of "
            f"{values['difference'] * 100:.0f}%",
        )


def _half_unit(value: float) -> float:
    """Return half a unit of the last figure that is not a zero before the point."""
    text = f"{value:.12g}"
    if "." in text:
        return 0.5 * 10.0 ** -len(text.partition(".")[2])
    zeros = len(text) - len(text.rstrip("0"))
    return 0.5 * 10.0**zeros


def _command(values: Values) -> Iterator[ClaimOutcome]:
    """Find what no shell or program can take: torn flags and fused words."""
    words = shlex.split(values["command"])
    torn = [word for word in words if re.fullmatch(r"--[\w-]*-", word)]
    fused = [word for word in words if re.fullmatch(r"vm\.[\w.]+=\d+\D\w*", word)]
    for arguments, what in ((torn, "ends in a hyphen"), (fused, "takes a number")):
        for word in arguments:
            yield "command", f"{word!r} {what}"


def _count(values: Values) -> Iterator[ClaimOutcome]:
    """Check a stated number of things against the list of their results."""
    if values["stated"] != values["listed"]:
        yield (
            "result-count",
            f"{values['stated']} {values['of']} are described, but {values['listed']} "
            "results are listed",
        )


CHECKS: dict[str, Callable[[Values], Iterator[ClaimOutcome]]] = {
    "mean": _mean,
    "ratio": _ratio,
    "excess-images": _work,
    "rank-inversion": _rank,
    "cache": _cache,
    "demand": _demand,
    "environment": _environment,
    "quoted": _quoted,
    "rounding": _rounding,
    "command": _command,
    "result-count": _count,
}


def _quantity(value: float, unit: str) -> str:
    text = f"{value:,.6g} {unit}"
    return f"{minutes(value)} ({text})" if unit == "s" and value >= 60 else text
