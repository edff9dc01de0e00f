"""What is suspicious about a result: findings with evidence, a reason and a way out.

A finding is of one of three severities: an ``error`` is arithmetic that cannot be, a
``warning`` is a number that misleads, a ``note`` is what a reader should know. What a
code means, why it matters and what to do about it is in the data file beside this
module, so that each has the same words everywhere.
"""

from __future__ import annotations

import functools
import html
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal, TypeAlias

from nbkit.visible import visible

Severity: TypeAlias = Literal["error", "warning", "note"]

_SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
_SUBJECTS_SHOWN = 3
"""Of one code; the findings themselves have all."""


@dataclass(frozen=True)
class Code:
    """What one kind of finding means."""

    name: str
    severity: Severity
    title: str
    why: str
    """Why it matters."""
    source: str | None
    """Address of what says so; None for plain arithmetic."""
    action: str
    """What to do about it."""


@functools.cache
def codes() -> dict[str, Code]:
    """Return every kind of finding by its name."""
    file = resources.files("nbkit.review") / "audit_codes.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    return {name: Code(name=name, **values) for name, values in content.items()}


@dataclass(frozen=True)
class Finding:
    """One thing that is suspicious."""

    code: str
    """Short, stable name; `codes` has them all."""
    subject: str
    """The result, series, run or publication it is about."""
    claim: str
    """What is claimed."""
    evidence: str
    """What speaks against it, with numbers."""
    url: str | None = None
    """Where the claim is printed; None for a run of one's own."""

    @property
    def kind(self) -> Code:
        """What the code means."""
        return codes()[self.code]

    @property
    def severity(self) -> Severity:
        """How bad it is: ``error``, ``warning`` or ``note``."""
        return self.kind.severity

    @property
    def why(self) -> str:
        """Why it matters."""
        return self.kind.why

    @property
    def source(self) -> str | None:
        """Address of what says that it matters."""
        return self.kind.source

    @property
    def action(self) -> str:
        """What to do about it."""
        return self.kind.action

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "code": self.code,
            "severity": self.severity,
            "title": self.kind.title,
            "subject": self.subject,
            "claim": self.claim,
            "evidence": self.evidence,
            "url": self.url,
            "why": self.why,
            "source": self.source,
            "action": self.action,
        }

    def __str__(self) -> str:
        return f"{self.severity}: {self.kind.title}: {self.subject}: {self.evidence}"


class Audit(Sequence[Finding]):
    """The findings about one or several results, the worst first.

    Parameters
    ----------
    subject
        What was audited, in a few words.
    findings
        In any order.
    """

    def __init__(self, subject: str, findings: Iterable[Finding]) -> None:
        self.subject = subject
        self._findings = sorted(
            dict.fromkeys(findings), key=lambda one: _SEVERITIES.index(one.severity)
        )

    def __len__(self) -> int:
        return len(self._findings)

    def __getitem__(self, place: Any) -> Any:
        """Return a finding, or a slice of them."""
        return self._findings[place]

    def __iter__(self) -> Iterator[Finding]:
        return iter(self._findings)

    @property
    def errors(self) -> list[Finding]:
        """Arithmetic that cannot be."""
        return self._of("error")

    @property
    def warnings(self) -> list[Finding]:
        """What misleads."""
        return self._of("warning")

    @property
    def notes(self) -> list[Finding]:
        """What a reader should know."""
        return self._of("note")

    @property
    def counts(self) -> dict[str, int]:
        """How many findings there are of each code."""
        return dict(Counter(finding.code for finding in self))

    @property
    def is_clean(self) -> bool:
        """Whether there is neither an error nor a warning."""
        return not (self.errors or self.warnings)

    @property
    def sentence(self) -> str:
        """The outcome in words."""
        numbers = [
            f"{count} {name}{'s' if count > 1 else ''}"
            for name in _SEVERITIES
            if (count := len(self._of(name)))
        ]
        return f"{self.subject}: {', '.join(numbers) or 'nothing suspicious'}."

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return every finding as JSON values."""
        return [finding.to_dict() for finding in self]

    def __str__(self) -> str:
        blocks = [self.sentence]
        for code, findings in self.by_code():
            lines = [_heading(code, findings)]
            lines += [f"  {one.subject}: {one.evidence}" for one in _shown(findings)]
            lines += [f"  {line}" for line in _rest(findings)]
            reference = f" ({code.source})" if code.source else ""
            lines.append(f"  Why: {code.why}{reference}")
            lines.append(f"  Do: {code.action}")
            blocks.append("\n".join(lines))
        return visible("\n\n".join(blocks), lines=True)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        parts = [f"<p><strong>{html.escape(self.sentence)}</strong></p>"]
        for code, findings in self.by_code():
            texts = [_linked(one) for one in _shown(findings)]
            texts += [html.escape(line) for line in _rest(findings)]
            items = "".join(f"<li>{text}</li>" for text in texts)
            why = html.escape(f"{code.why} {code.action}")
            parts.append(
                f"<p><strong>{html.escape(_heading(code, findings))}</strong><br>{why}"
                f"</p><ul>{items}</ul>"
            )
        return "".join(parts)

    def _of(self, severity: str) -> list[Finding]:
        return [finding for finding in self if finding.severity == severity]

    def by_code(self) -> list[tuple[Code, list[Finding]]]:
        """Return the findings by what kind they are of, the worst first."""
        groups: dict[str, list[Finding]] = {}
        for finding in self:
            groups.setdefault(finding.code, []).append(finding)
        return [(codes()[name], findings) for name, findings in groups.items()]


def _heading(code: Code, findings: Sequence[Finding]) -> str:
    times = f", {len(findings)} times" if len(findings) > 1 else ""
    return f"{code.severity} [{code.name}]: {code.title}{times}"


def _shown(findings: Sequence[Finding]) -> Sequence[Finding]:
    return findings[:_SUBJECTS_SHOWN]


def _rest(findings: Sequence[Finding]) -> list[str]:
    more = len(findings) - _SUBJECTS_SHOWN
    return [f"and {more} more"] if more > 0 else []


def _linked(finding: Finding) -> str:
    subject = html.escape(finding.subject)
    if finding.url is not None:
        subject = f'<a href="{html.escape(finding.url)}">{subject}</a>'
    return f"{subject}: {html.escape(finding.evidence)}"
