"""Published rates of two GPUs under equal conditions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nbkit.config.fields import SIXTEEN_BIT
from nbkit.errors import NotEnoughDataError
from nbkit.plural import plural
from nbkit.references.gpu_names import canonical_gpu_name
from nbkit.references.rows import PublishedRow, lookup
from nbkit.review.row_checks import INPUT_BOUND_SHARE

UNSTATED = "not stated"
"""A condition that a source does not say. It is like no value, only like itself."""


@dataclass(frozen=True)
class MachinePair:
    """Two published rates under equal conditions; both may omit a condition."""

    a: PublishedRow
    b: PublishedRow

    @property
    def ratio(self) -> float:
        """A's throughput / B's; without an interval, because both are single values.

        Raises
        ------
        NotEnoughDataError
            If one of the rows has no rate.
        """
        a, b = self.a.images_per_second, self.b.images_per_second
        if not a or not b:
            message = f"images_per_second is {a} and {b}. Use two rows with images/s."
            raise NotEnoughDataError(message)
        return a / b

    @property
    def label(self) -> str:
        """What is compared, in a line."""
        first = self.a
        devices = plural(first.world_size, "GPU")
        how = (first.precision, first.memory_format, devices)
        setup = ", ".join(word for word in how if word)
        return f"{setup}: {first.publisher}, {first.software}"


_LIKE = (
    *("publisher", "framework", "software", "origin", "model", "phase"),
    *("world_size", "nnodes", "data", "precision", "memory_format", "compile"),
    *("batch_size_per_gpu", "statistic", "window"),
)
"""What two published rows must have in common to be compared."""


def published_pairs(
    a_gpu: str,
    b_gpu: str,
    *,
    model: str,
    precision: Sequence[str] | None = None,
) -> list[MachinePair]:
    """Return comparable published results of two GPUs."""
    rows_a, rows_b = (_rows(gpu, model, precision) for gpu in (a_gpu, b_gpu))
    is_form_named = all(_form(canonical_gpu_name(gpu)) for gpu in (a_gpu, b_gpu))
    pairs = [
        MachinePair(a, b)
        for a in rows_a
        for b in rows_b
        if all(getattr(a, name) == getattr(b, name) for name in _LIKE)
        and b not in rows_a  # compares whole rows, so last
        and (is_form_named or len({_form(a.gpu_name), _form(b.gpu_name)} - {None}) < 2)
    ]
    return sorted(_measured_once(pairs), key=_importance)


def _measured_once(pairs: Iterable[MachinePair]) -> list[MachinePair]:
    """Leave out what was printed of a measurement whose log was read again."""
    same = [name for name in _LIKE if name not in ("origin", "statistic", "window")]

    def measurement(pair: MachinePair) -> tuple[object, ...]:
        what = (getattr(pair.a, name) for name in same)
        return (pair.a.gpu_name, pair.b.gpu_name, *what)

    distinct = list(pairs)
    again = {measurement(pair) for pair in distinct if pair.a.origin == "recomputed"}
    return [
        pair
        for pair in distinct
        if pair.a.origin != "published" or measurement(pair) not in again
    ]


def _form(gpu_name: str | None) -> str | None:
    """Return a GPU's form, SXM of any generation alike; None if it is left open."""
    match = re.search(r"-(SXM|PCIe|NVL)", gpu_name or "")
    return match[1] if match else None


def _rows(gpu: str, model: str, precision: Sequence[str] | None) -> list[PublishedRow]:
    return [
        row
        for row in lookup(model=model, gpu_name=gpu)
        if row.images_per_second and (precision is None or row.precision in precision)
    ]


def _importance(pair: MachinePair) -> tuple[bool, int, str, int, str]:
    row = pair.a
    return (
        row.framework != "pytorch",
        -row.year,
        row.publisher,
        row.world_size,
        pair.label,
    )


def published_sentence(pairs: Sequence[MachinePair], a_gpu: str, b_gpu: str) -> str:
    """Return a sentence with comparable published results of two GPUs."""
    if not pairs:
        return f"Published: no comparable results of this model on {a_gpu} and {b_gpu}."
    parts = []
    for precision in dict.fromkeys(pair.a.precision for pair in pairs):
        group = [pair for pair in pairs if pair.a.precision == precision]
        ratios = [pair.ratio for pair in group]
        low, high = f"{min(ratios):.2f}x", f"{max(ratios):.2f}x"
        span = low if low == high else f"{low} to {high}"
        caveats = {
            "channels_first": precision in SIXTEEN_BIT
            and sum(pair.a.memory_format == "channels_first" for pair in group),
            "input-bound": sum(
                max(row.data_wait_share or 0 for row in (pair.a, pair.b))
                >= INPUT_BOUND_SHARE
                for pair in group
            ),
            "without batch size": sum(
                pair.a.batch_size_per_gpu is None for pair in group
            ),
        }
        counts = [f"{count} {what}" for what, count in caveats.items() if count]
        listed = ", ".join([plural(len(group), "pair"), *counts])
        parts.append(f"{span} in {precision or 'unstated precision'} ({listed})")
    return f"Published: {a_gpu} / {b_gpu} = {', '.join(parts)}."
