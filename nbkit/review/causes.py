"""Bottlenecks of a run: causes with evidence, and what to try first.

A cause is a ``warning`` (time is lost that a change would win back) or a ``note`` (what
bounds a run where nothing is wrong). What a code means is in the data file beside this
module. Predictions are arithmetic on the run's own numbers, or published pairs that
are named as such.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from nbkit.review.findings import Coded, Findings, Line, codes
from nbkit.review.row_checks import INPUT_BOUND_SHARE

WORTH_A_WORD = INPUT_BOUND_SHARE
"""Below a tenth of the time, winning all of it back makes a run 1.11 times as fast:
little more than what two runs of one configuration differ by on a busy machine."""

DISTURBANCES = ("other-gpu-processes", "other-cpu-processes", "throttled", "no-cpu")
"""Causes outside the run, in the order in which they are listed."""

_UNWEIGHED = "other-gpu-processes"
"""The cost of a process on the same GPU is not measured."""

_OPERATORS_SHOWN = 5


@dataclass(frozen=True)
class Gain:
    """Expected speedup of a change, as a factor of the rate."""

    high: float
    low: float | None
    """Lower bound of the speedup; None if only the upper bound is known."""
    how: str
    """Basis of the estimate."""

    def __str__(self) -> str:
        if self.low is None:
            return f"up to {self.high:.2f}x ({self.how})"
        return f"{self.low:.2f}x to {self.high:.2f}x ({self.how})"


def at_most(share: float, how: str) -> Gain:
    """Return the maximum speedup from removing a share of the time."""
    return Gain(high=1 / (1 - min(share, 0.99)), low=None, how=how)


@dataclass(frozen=True)
class Cause(Coded):
    """One bottleneck of a run."""

    codes_file: ClassVar[str] = "diagnose_codes.json"

    share: float | None = None
    """Share of the measured time that it explains, 0 to 1; None if unknown."""
    gain: Gain | None = None
    """Expected speedup of the action; None if unknown."""

    @staticmethod
    def of(
        code: str, share: float | None, evidence: str, action: str, gain: Gain | None
    ) -> Cause:
        """Return a cause with the severity of its code; a diagnosis adds the run."""
        severity = codes(Cause.codes_file)[code].severity
        return Cause("", severity, evidence, action, code, share, gain)

    @property
    def title(self) -> str:
        """Title with its share of the time."""
        if self.share is None:
            return self.kind.title
        return f"{self.kind.title}, {self.share * 100:.0f}% of the time"

    @property
    def weight(self) -> float:
        """Sort weight: the share of the time that it explains."""
        if self.share is not None:
            return self.share
        return 1 - 1 / (self.gain.low or self.gain.high) if self.gain else 0.0

    @property
    def sentence(self) -> str:
        """Evidence, action and gain."""
        gain = f" Expected speedup: {self.gain}." if self.gain else ""
        return f"{self.evidence} Try: {self.action}{gain}"

    def lines(self) -> list[Line]:
        """Return evidence, action and gain."""
        return [
            ("Evidence", self.evidence, None),
            ("Try", self.action, None),
            ("Expected speedup", str(self.gain or "unknown"), None),
        ]


class Diagnosis(Findings[Cause]):
    """The bottlenecks of a run: warnings first, then by share of the time."""

    def __init__(
        self,
        subject: str,
        findings: Iterable[Cause],
        unknown: Sequence[str] = (),
        profile: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(subject, (replace(it, subject=subject) for it in findings))
        self.unknown = tuple(unknown)
        self.profile = dict(profile or {})

    @property
    def disturbances(self) -> list[Cause]:
        """Causes outside the run, such as other processes or throttling.

        They are in the order of `DISTURBANCES`. Causes of less than 10 % of the time
        are omitted, except for other processes on the GPU, whose cost is not measured.
        """
        disturbing = [
            cause
            for cause in self
            if cause.code in DISTURBANCES
            and (cause.code == _UNWEIGHED or cause.weight >= WORTH_A_WORD)
        ]
        return sorted(disturbing, key=lambda cause: DISTURBANCES.index(cause.code))

    @property
    def is_healthy(self) -> bool:
        """Whether there are no warnings."""
        return not self.of("warning")

    @property
    def bottleneck(self) -> str | None:
        """The first cause in a few words, such as ``input (63% of the time)``."""
        if not self:
            return None
        first = self[0]
        if first.share is None:
            return first.kind.title
        return f"{first.kind.title} ({first.share * 100:.0f}% of the time)"

    @property
    def sentence(self) -> str:
        """The outcome in words."""
        if not self:
            unknown = f" Not known: {self.unknown[0]}" if self.unknown else ""
            return f"{self.subject}: no bottleneck detected.{unknown}"
        first, *further = self
        titles = ", ".join(cause.kind.title for cause in further)
        more = f" Also: {titles}." if further else ""
        kind = "limit" if self.is_healthy else "bottleneck"
        return f"{self.subject}: {kind}: {self.bottleneck}. {first.sentence}{more}"

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "sentence": self.sentence,
            "bottleneck": self.bottleneck,
            "is_healthy": self.is_healthy,
            "causes": [cause.to_dict() for cause in self],
            "unknown": list(self.unknown),
            "profile": self.profile or None,
        }

    def _blocks(self) -> Iterator[tuple[str, list[Line]]]:
        yield from super()._blocks()
        if self.unknown:
            yield "Not known:", [("", text, None) for text in self.unknown]
        if problem := self.profile.get("problem"):
            yield f"Profile of rank 0: {problem}.", []
        elif self.profile:
            yield from self._profile_block()

    def _profile_block(self) -> Iterator[tuple[str, list[Line]]]:
        """Yield what took longest in the profile."""
        total_seconds = self.profile["self_seconds"] or 1.0
        where = "on the GPU" if self.profile["device_type"] == "cuda" else "on CPUs"
        lines: list[Line] = []
        for operator in self.profile["operators"][:_OPERATORS_SHOWN]:
            share = f"{operator['self_seconds'] / total_seconds * 100:.0f}%"
            lines.append(
                (
                    "",
                    f"{share:>4}  {operator['name']} (calls: {operator['calls']})",
                    None,
                )
            )
        yield (
            f"Profile of {self.profile['steps']} steps of rank 0, time {where}:",
            lines,
        )
