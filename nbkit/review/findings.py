"""Audit findings about a result, each with evidence, a reason and a fix.

What a code means, why it matters and what to do about it is in the data file beside
this module, so that each has the same words everywhere. What bounds a run, in
`nbkit.review.causes`, has the same form.
"""

from __future__ import annotations

import functools
import html
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from typing import Any, ClassVar, TypeVar, get_args

from nbkit.findings import Finding, Severity
from nbkit.plural import plural
from nbkit.visible import visible

_HEADINGS = {"error": "Errors", "warning": "Warnings", "note": "Caveats"}
_SUBJECTS_SHOWN = 3
"""Maximum number of subjects shown per code; the findings have all."""

Line = tuple[str, str, str | None]
"""Subject, text and URL (or None) of a line of a finding."""


@dataclass(frozen=True)
class Code:
    """Meaning of one kind of finding."""

    name: str
    severity: Severity
    title: str
    why: str
    """Why it matters."""
    source: str | None
    """URL of the evidence for it; None for plain arithmetic."""
    action: str = ""
    """What to do about it; empty if that depends on the run."""


@functools.cache
def codes(file_name: str = "audit_codes.json") -> dict[str, Code]:
    """Return every kind of finding by its code."""
    file = resources.files("nbkit.review") / file_name
    content = json.loads(file.read_text(encoding="utf-8"))
    return {name: Code(name=name, **values) for name, values in content.items()}


@dataclass(frozen=True)
class Coded(Finding):
    """A finding whose code is explained in a data file."""

    codes_file: ClassVar[str] = "audit_codes.json"

    @property
    def kind(self) -> Code:
        """What the code means."""
        return codes(self.codes_file)[self.code]

    @property
    def title(self) -> str:
        """Title for headings."""
        return self.kind.title

    @property
    def weight(self) -> float:
        """Sort weight among findings of equal severity."""
        return 0.0

    def lines(self) -> list[Line]:
        """Return the lines of its text, in order."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        kind = {name: getattr(self.kind, name) for name in ("title", "why", "source")}
        return asdict(self) | kind


@dataclass(frozen=True)
class AuditFinding(Coded):
    """One suspicious result."""

    claim: str = ""
    """What is claimed; the evidence is against it."""
    url: str | None = None
    """URL of the publication with the claim; None for runs."""

    @classmethod
    def of(
        cls, code: str, subject: str, claim: str, evidence: str, url: str | None = None
    ) -> AuditFinding:
        """Return a finding with the severity and the action of its code."""
        kind = codes()[code]
        return cls(subject, kind.severity, evidence, kind.action, code, claim, url)

    def lines(self) -> list[Line]:
        """Return the evidence."""
        return [(self.subject, self.evidence, self.url)]


F = TypeVar("F", bound=Coded)


class Findings(Sequence[F]):
    """Findings, sorted by severity, then by weight."""

    def __init__(self, subject: str, findings: Iterable[F]) -> None:
        self.subject = subject
        order = get_args(Severity)
        self._findings = sorted(
            dict.fromkeys(findings),
            key=lambda finding: (order.index(finding.severity), -finding.weight),
        )

    def __len__(self) -> int:
        return len(self._findings)

    def __getitem__(self, place: Any) -> Any:
        """Return a finding, or a slice of them."""
        return self._findings[place]

    def __iter__(self) -> Iterator[F]:
        return iter(self._findings)

    @property
    def sentence(self) -> str:
        """The outcome in words."""
        raise NotImplementedError

    def of(self, severity: Severity) -> list[F]:
        """Return those of a severity."""
        return [finding for finding in self if finding.severity == severity]

    def by_code(self) -> list[tuple[Code, list[F]]]:
        """Return the findings grouped by code, the worst first."""
        groups: dict[str, list[F]] = {}
        for finding in self:
            groups.setdefault(finding.code, []).append(finding)
        return [(group[0].kind, group) for group in groups.values()]

    def _blocks(self) -> Iterator[tuple[str, list[Line]]]:
        """Yield a heading and lines for each kind; text and page show the same."""
        for code, findings in self.by_code():
            lines = [
                line
                for finding in findings[:_SUBJECTS_SHOWN]
                for line in finding.lines()
            ]
            if (more := len(findings) - _SUBJECTS_SHOWN) > 0:
                lines.append(("", f"and {more} more", None))
            reference = f" ({code.source})" if code.source else ""
            lines.append(("Why", f"{code.why}{reference}", None))
            lines += [("Fix", code.action, None)] if code.action else []
            times = f" ({len(findings)}x)" if len(findings) > 1 else ""
            yield f"{code.severity} [{code.name}]: {findings[0].title}{times}", lines

    def __str__(self) -> str:
        blocks = [self.sentence]
        for heading, lines in self._blocks():
            texts = [f"  {about}{': ' * bool(about)}{text}" for about, text, _ in lines]
            blocks.append("\n".join([heading, *texts]))
        return visible("\n\n".join(blocks), lines=True)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        parts = [f"<p><strong>{html.escape(self.sentence)}</strong></p>"]
        for heading, lines in self._blocks():
            items = "".join(f"<li>{_linked(*line)}</li>" for line in lines)
            heading = html.escape(heading)
            parts.append(f"<p><strong>{heading}</strong></p><ul>{items}</ul>")
        return "".join(parts)


class Audit(Findings[AuditFinding]):
    """The findings about one or several results, the worst first."""

    @property
    def errors(self) -> list[AuditFinding]:
        """Findings of numbers that are impossible."""
        return self.of("error")

    @property
    def warnings(self) -> list[AuditFinding]:
        """Findings of results that mislead."""
        return self.of("warning")

    @property
    def notes(self) -> list[AuditFinding]:
        """Findings that a reader should know."""
        return self.of("note")

    @property
    def counts(self) -> dict[str, int]:
        """Number of findings by code."""
        return dict(Counter(finding.code for finding in self))

    @property
    def is_clean(self) -> bool:
        """Whether there are no errors and no warnings."""
        return not (self.errors or self.warnings)

    @property
    def sentence(self) -> str:
        """The outcome in words."""
        counts = Counter(finding.severity for finding in self)
        numbers = [f"{n} {name}{'s' if n > 1 else ''}" for name, n in counts.items()]
        return f"{self.subject}: {', '.join(numbers) or 'no findings'}."

    def summary(self, without: Collection[str] = ()) -> list[str]:
        """Return a line per severity, with every title and how many runs have it.

        The subject is named unless it is a study, whose report has the lines.
        """
        is_study = self.subject.startswith("study ")
        if not self:
            return [] if is_study else [self.sentence]
        about = "" if is_study else f" ({self.subject})"
        titles: dict[str, list[str]] = {}
        for code, findings in self.by_code():
            if code.name not in without:
                title = f"{code.title}{_count_text(findings)}"
                titles.setdefault(code.severity, []).append(title)
        return [
            f"{_HEADINGS[severity]}{about}: {'; '.join(those)}."
            for severity, those in titles.items()
        ]

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return every finding as JSON values."""
        return [finding.to_dict() for finding in self]


def _count_text(findings: Sequence[AuditFinding]) -> str:
    """Return how many runs or results have a finding, in brackets; or nothing."""
    subjects = {finding.subject for finding in findings}
    if all(subject.startswith("run ") for subject in subjects):
        return f" ({plural(len(subjects), 'run')})"
    return f" ({len(subjects)} results)" if len(subjects) > 1 else ""


def _linked(about: str, text: str, url: str | None) -> str:
    about, text = html.escape(about), html.escape(text)
    if url is not None:
        about = f'<a href="{html.escape(url)}">{about}</a>'
    return f"{about}: {text}" if about else text
