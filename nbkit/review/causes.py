"""What bounds a run: causes with evidence, and what to try first.

A cause is a *problem* (time is lost that a change would win back) or a *limit* (what
bounds a run where nothing is wrong). What a code means is in the data file beside this
module. Predictions are arithmetic on the run's own numbers, or published pairs that
are named as such.
"""

from __future__ import annotations

import functools
import html
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

from nbkit.review.row_checks import INPUT_BOUND_SHARE
from nbkit.statistics.wording import interval_in_words
from nbkit.visible import visible

WORTH_A_WORD = INPUT_BOUND_SHARE
"""Below a tenth of the time, winning all of it back makes a run 1.11 times as fast:
little more than what two runs of one configuration differ by on a busy machine."""

DISTURBANCES = ("other-gpu-processes", "other-processes", "throttled", "no-cpu")
"""Causes outside the run, in the order in which they are listed."""

_UNWEIGHED = "other-gpu-processes"
"""The cost of a process on the same GPU is not measured."""

_OPERATORS_SHOWN = 5


@dataclass(frozen=True)
class Code:
    """What one kind of cause means."""

    name: str
    kind: Literal["problem", "limit"]
    title: str
    why: str
    """Why it costs time."""
    source: str | None
    """Address of what says so; None for plain arithmetic."""


@functools.cache
def codes() -> dict[str, Code]:
    """Return every kind of cause by its name."""
    file = resources.files("nbkit.review") / "diagnose_codes.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    return {name: Code(name=name, **values) for name, values in content.items()}


@dataclass(frozen=True)
class Gain:
    """What a change would bring, as a factor of the rate."""

    high: float
    low: float | None
    """None where only the most that it can be is known."""
    how: str
    """From what it was computed."""

    def __str__(self) -> str:
        if self.low is None:
            return f"at most {self.high:.2f} times the rate"
        return (
            f"{interval_in_words(self.low, self.high, '{:.2f}'.format)} times the rate"
        )


def at_most(share: float, how: str) -> Gain:
    """Return what leaving out a part of the time brings, at most."""
    return Gain(high=1 / (1 - min(share, 0.99)), low=None, how=how)


@dataclass(frozen=True)
class Cause:
    """One thing that bounds a run."""

    code: str
    """Short, stable name; `codes` has them all."""
    share: float | None
    """Part of the measured time that it explains, 0 to 1; None where the run
    does not show it."""
    evidence: str
    """What speaks for it, with numbers."""
    change: str
    """The one thing to try first."""
    gain: Gain | None
    """What that is predicted to bring; None where the run does not tell."""
    by_conditions: bool = True
    """Whether recorded conditions show it, and not what the run has measured."""

    @property
    def kind(self) -> Code:
        """What the code means."""
        return codes()[self.code]

    @property
    def title(self) -> str:
        """What it is called."""
        return self.kind.title

    @property
    def weight(self) -> float:
        """How much time it explains, for the order."""
        if self.share is not None:
            return self.share
        return 1 - 1 / (self.gain.low or self.gain.high) if self.gain else 0.0

    @property
    def sentence(self) -> str:
        """Evidence, change and gain."""
        gain = f" Predicted: {self.gain} ({self.gain.how})." if self.gain else ""
        return f"{self.evidence} Try first: {self.change}{gain}"

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        gain = self.gain
        return {
            "code": self.code,
            "kind": self.kind.kind,
            "title": self.title,
            "share": self.share,
            "evidence": self.evidence,
            "change": self.change,
            "predicted_gain": None
            if gain is None
            else {"low": gain.low, "high": gain.high, "how": gain.how},
            "why": self.kind.why,
            "source": self.kind.source,
        }


class Diagnosis(Sequence[Cause]):
    """What bounds a run: problems first, what explains most time first.

    Parameters
    ----------
    subject
        The run, in a few words.
    causes
        In any order.
    unknown
        Sentences: what the files do not tell.
    profile
        What `nbkit.worker.profile` has written of operators; empty without a profile.
    """

    def __init__(
        self,
        subject: str,
        causes: Iterable[Cause],
        unknown: Sequence[str] = (),
        profile: Mapping[str, Any] | None = None,
    ) -> None:
        self.subject = subject
        self.unknown = tuple(unknown)
        self.profile = dict(profile or {})
        self._causes = sorted(
            causes, key=lambda one: (one.kind.kind != "problem", -one.weight)
        )

    def __len__(self) -> int:
        return len(self._causes)

    def __getitem__(self, place: Any) -> Any:
        """Return a cause, or a slice of them."""
        return self._causes[place]

    def __iter__(self) -> Iterator[Cause]:
        return iter(self._causes)

    @property
    def problems(self) -> list[Cause]:
        """What costs time that a change would win back."""
        return [cause for cause in self if cause.kind.kind == "problem"]

    @property
    def limits(self) -> list[Cause]:
        """What bounds a run in which nothing is wrong."""
        return [cause for cause in self if cause.kind.kind == "limit"]

    @property
    def disturbances(self) -> list[Cause]:
        """What other processes, or heat, did to the run: causes outside the run.

        In the order of `DISTURBANCES`. Clocks that are said to be held down, and never
        were lower, are none.
        """
        found = [
            cause
            for cause in self
            if cause.code in DISTURBANCES
            and (cause.code == _UNWEIGHED or cause.weight >= WORTH_A_WORD)
        ]
        return sorted(found, key=lambda cause: DISTURBANCES.index(cause.code))

    @property
    def is_healthy(self) -> bool:
        """Whether no problem was found."""
        return not self.problems

    @property
    def bound_by(self) -> str | None:
        """The first cause in a few words, such as ``input (63% of the time)``."""
        if not self._causes:
            return None
        first = self._causes[0]
        if first.share is None:
            return first.title
        return f"{first.title} ({first.share * 100:.0f} % of the time)"

    @property
    def sentence(self) -> str:
        """The outcome in words."""
        if not self._causes:
            unknown = f" Not known: {self.unknown[0]}" if self.unknown else ""
            return f"{self.subject}: nothing stands out.{unknown}"
        first, *others = self._causes
        more = f" Also: {', '.join(one.title for one in others)}." if others else ""
        healthy = "nothing stands out; " if self.is_healthy else ""
        return (
            f"{self.subject}: {healthy}bound by {self.bound_by}. {first.sentence}{more}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "sentence": self.sentence,
            "bound_by": self.bound_by,
            "is_healthy": self.is_healthy,
            "causes": [cause.to_dict() for cause in self],
            "unknown": list(self.unknown),
            "profile": self.profile or None,
        }

    def __str__(self) -> str:
        blocks = [self.sentence]
        for cause in self:
            reference = f" ({cause.kind.source})" if cause.kind.source else ""
            lines = [
                _heading(cause),
                f"  Evidence: {cause.evidence}",
                f"  Try first: {cause.change}",
                f"  Predicted: {_predicted(cause)}",
                f"  Why: {cause.kind.why}{reference}",
            ]
            blocks.append("\n".join(lines))
        if self.unknown:
            blocks.append("\n".join(f"Not known: {text}" for text in self.unknown))
        if self.profile:
            blocks.append("\n".join(self._operators()))
        return visible("\n\n".join(blocks), lines=True)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        parts = [f"<p><strong>{html.escape(self.sentence)}</strong></p>"]
        for cause in self:
            items = "".join(
                f"<li>{html.escape(text)}</li>"
                for text in (
                    cause.evidence,
                    f"Try first: {cause.change}",
                    f"Predicted: {_predicted(cause)}",
                    cause.kind.why,
                )
            )
            heading = html.escape(_heading(cause))
            parts.append(f"<p><strong>{heading}</strong></p><ul>{items}</ul>")
        if self.unknown:
            texts = "".join(f"<li>{html.escape(text)}</li>" for text in self.unknown)
            parts.append(f"<p>Not known:</p><ul>{texts}</ul>")
        if self.profile:
            table = html.escape("\n".join(self._operators()))
            parts.append(f"<pre>{table}</pre>")
        return "".join(parts)

    def _operators(self) -> list[str]:
        """Return what took longest in the profile, as lines."""
        if problem := self.profile.get("problem"):
            return [f"Profile of rank 0: {problem}."]
        whole = self.profile["self_seconds"] or 1.0
        where = "on the GPU" if self.profile["device_type"] == "cuda" else "on CPUs"
        lines = [f"Profile of {self.profile['steps']} steps of rank 0, time {where}:"]
        for one in self.profile["operators"][:_OPERATORS_SHOWN]:
            share = f"{one['self_seconds'] / whole * 100:.0f} %"
            lines.append(f"  {share:>5}  {one['name']} ({one['calls']} calls)")
        return lines


def _heading(cause: Cause) -> str:
    share = "" if cause.share is None else f", {cause.share * 100:.0f} % of the time"
    return f"{cause.kind.kind} [{cause.code}]: {cause.title}{share}"


def _predicted(cause: Cause) -> str:
    if cause.gain is None:
        return "how much is unknown"
    return f"{cause.gain} ({cause.gain.how})"
