"""Recorded differences between two arms of runs."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from nbkit.plural import plural
from nbkit.review.usable_arms import earliest, no_verdict_sentence, usable_arms
from nbkit.statistics import Ratio, ratio
from nbkit.store.nonfinite import NonFinite
from nbkit.store.stored_runs import StoredRun
from nbkit.visible import visible

_PARTS = (
    "configuration",
    "entry",
    "data",
    "code",
    "environment",
    "machine",
    "storage",
    "devices",
    "packages",
)

# Names of this one run or process: they differ always and explain nothing.
_OWN = {
    "configuration": {"name"},
    "code": {"diff", "dirty", "branch", "remote", "untracked"},
    "environment": {"executable"},
    "machine": {"network_cards", "rdma_ports"},
    "storage": {"free_bytes"},
}
_NOTHING = "–"
_LONGEST_TEXT = 60


@dataclass(frozen=True)
class RunFacts:
    """The facts of one run that are compared."""

    run_id: str
    images_per_second: float | None
    """Images / time of the measured steps, or the last value that a function logged;
    None if nothing was measured."""
    parts: Mapping[str, Mapping[str, Any]]
    """Facts by part: configuration, entry (of a function or script), data, code,
    environment, machine, storage, devices, packages."""
    code: Mapping[str, str] = field(default_factory=dict)
    """Source that ran, by file: changes since the commit, cells, local modules."""
    n_steps: int | None = None
    """Number of measured steps; 0 if a function logged the rate, None for the largest
    rate of several batch sizes of inference."""
    nonfinite: NonFinite | None = None
    """The first NaN or Inf of its training, if any."""


@dataclass(frozen=True)
class Difference:
    """One recorded value that differs between two arms."""

    part: str
    name: str
    a: str
    """A's value as text; several if A's runs differ; ``–`` is unknown."""
    b: str


@dataclass(frozen=True)
class Comparison:
    """Throughput of two arms, and all recorded differences between them."""

    a_name: str
    b_name: str
    ratio: Ratio | None
    """A's throughput divided by B's; None if a run measured none, diverged (NaN/Inf) or
    was disturbed."""
    differences: tuple[Difference, ...]
    code_diff: str = ""
    """Unified diff from A's code to B's (first run of each); empty if the code is equal
    or was not recorded."""
    rates: str = ""
    """Images per second of both, each with its n; empty if one has none."""
    diverged: Mapping[str, NonFinite] = field(default_factory=dict)
    """By arm, the first NaN or Inf of a run."""
    caveat: str = ""
    """Why the result is not reliable, such as other load; empty if it is."""
    reference: str = ""
    """Comparison of A's rate with a published row, if B is one."""

    @property
    def sentence(self) -> str:
        """The ratio and both rates in words, or why there is no ratio."""
        if self.caveat or self.reference:
            return self.caveat or self.reference
        first = no_verdict_sentence(self.diverged)
        if self.ratio is not None:
            first = self.ratio.sentence
        if first:
            return " ".join(filter(None, [first, self.rates]))
        if self.rates:
            return f"No ratio: a run measured 0 images/s. {self.rates}"
        return (
            "No ratio: not every run has images/s (from steps after the warm-up, or a "
            "logged images_per_second)."
        )

    def __str__(self) -> str:
        if self.is_alike:
            return f"{self.sentence}\nNo other recorded differences."
        parts = [self.sentence]
        if self.differences:
            names = self.a_name, self.b_name
            parts.append(difference_table(self.differences, *names))
        if self.code_diff:
            parts.append(self.code_diff)
        return visible("\n\n".join(parts), lines=True)

    @property
    def is_alike(self) -> bool:
        """Whether nothing recorded differs except the results."""
        return not (self.differences or self.code_diff)

    def __repr__(self) -> str:
        return str(self)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "sentence": self.sentence,
            "ratio": None if self.ratio is None else asdict(self.ratio),
            "differences": [asdict(row) for row in self.differences],
            "code_diff": self.code_diff,
        }


def difference_table(
    differences: Sequence[Difference], a_name: str, b_name: str
) -> str:
    """Return differences as lines of text with aligned columns."""
    rows = [Difference("", "", a_name, b_name), *differences]
    cells = [(row.part, row.name, shortened(row.a), shortened(row.b)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in cells
    )


def compare_arms(
    a: Sequence[RunFacts], b: Sequence[RunFacts], a_name: str = "A", b_name: str = "B"
) -> Comparison:
    """Compare two arms of runs."""
    rates = [[run.images_per_second for run in arm] for arm in (a, b)]
    known = [[rate for rate in arm if rate is not None] for arm in rates]
    speed_ratio, rates_text = None, ""
    lost = {
        name: divergence
        for name, arm in ((a_name, a), (b_name, b))
        if (divergence := earliest(run.nonfinite for run in arm)) is not None
    }
    if known == rates:
        above_zero = all(rate > 0 for arm in known for rate in arm)
        if above_zero and usable_arms([a_name], lost, (b_name,)):
            speed_ratio = ratio(known[0], known[1], a_name=a_name, b_name=b_name)
        of_a = rates_in_words(a_name, median(known[0]), len(a), a[0].n_steps)
        of_b = rates_in_words(b_name, median(known[1]), len(b), b[0].n_steps)
        rates_text = f"Images/s: {of_a}; {of_b}."
    found_differences = tuple(differences(a, b))
    code_diff = _code_diff(a[0], b[0]) if a and b else ""
    return Comparison(
        a_name, b_name, speed_ratio, found_differences, code_diff, rates_text, lost
    )


def steps_of_rate(run: StoredRun) -> int | None:
    """Return the steps over which a run's rate is measured; see `rates_in_words`."""
    return None if run.config.task == "inference" else run.summary.n_steps


def rates_in_words(
    name: str, images_per_second: float, n_runs: int, n_steps: int | None
) -> str:
    """Return an arm's images per second, and what they are."""
    digits = 1 if images_per_second >= 10 else 3
    rate = f"{name} {images_per_second:,.{digits}f}"
    if n_runs > 1:
        return f"{rate} (median, n={n_runs})"
    if n_steps is None:
        return rate
    of = f"over {plural(n_steps, 'step')}" if n_steps else "last logged value"
    return f"{rate} ({of})"


def _code_diff(a: RunFacts, b: RunFacts) -> str:
    lines: list[str] = []
    for name in sorted(a.code.keys() | b.code.keys()):
        lines += difflib.unified_diff(
            a.code.get(name, "").splitlines(),
            b.code.get(name, "").splitlines(),
            f"{a.run_id}/{name}",
            f"{b.run_id}/{name}",
            lineterm="",
        )
    return "\n".join(lines)


def differences(a: Sequence[RunFacts], b: Sequence[RunFacts]) -> Iterator[Difference]:
    """Yield every fact in which two arms of runs differ."""
    for part in _PARTS:
        flat_a = [_flat(run.parts.get(part) or {}) for run in a]
        flat_b = [_flat(run.parts.get(part) or {}) for run in b]
        names = dict.fromkeys(name for flat in [*flat_a, *flat_b] for name in flat)
        for name in names:
            if name.partition(".")[0] in _OWN.get(part, set()):
                continue
            of_a, of_b = (
                dict.fromkeys(flat.get(name, _NOTHING) for flat in arm)
                for arm in (flat_a, flat_b)
            )
            # The same values in another order of runs do not differ.
            if of_a.keys() != of_b.keys():
                yield Difference(part, name, " | ".join(of_a), " | ".join(of_b))


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return nested values as text, by dotted names."""
    fields: dict[str, str] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            fields.update(_flat(value, f"{name}."))
        else:
            fields[name] = _NOTHING if value is None else str(value)
    return fields


def shortened(text: str) -> str:
    """Return a text, cut with an ellipsis if it is too long for a cell."""
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…"
