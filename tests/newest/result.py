"""What came of the tests with the newest packages: ``build/newest/result.json``.

It needs the standard library alone: what reports it to a forge has nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

__all__ = ["Result", "State", "Trial"]

State = Literal["passed", "failed", "not installed"]

_FILE = "result.json"
_MOST_TESTS = 50
"""Failed tests that are listed by name; the file has all of them."""


@dataclass(frozen=True)
class Trial:
    """The failed tests once more, with the lock and some of the newer packages."""

    packages: list[str]
    """One, or those that cannot be installed without each other."""
    failed: list[str] = field(default_factory=list)
    said: str = ""
    """Why they cannot be installed beside the rest of the lock; empty if they can."""


@dataclass
class Result:
    """A run of the suite, and which package is to blame for what fails."""

    python: str
    commit: str
    at: str
    """When it began, in ISO 8601."""
    state: State = "not installed"
    said: str = ""
    """Why packages could not be installed."""
    changed: dict[str, list[str | None]] = field(default_factory=dict)
    """By package: the version of the lock, None where it has none, and the newest."""
    failed: dict[str, str] = field(default_factory=dict)
    """By test: the first line of what it said."""
    failed_again: list[str] | None = None
    """Those of them that fail when repeated with the same packages, or None."""
    passes_with_lock: list[str] | None = None
    """Those of these that the newer packages break; None until it is known."""
    trials: list[Trial] = field(default_factory=list)

    @classmethod
    def read(cls, folder: Path) -> Result | None:
        """Return what was written into a folder; None if nothing was."""
        try:
            values = json.loads((folder / _FILE).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        trials = [Trial(**trial) for trial in values.pop("trials")]
        return cls(**values, trials=trials)

    def write(self, folder: Path) -> None:
        """Write it into a folder."""
        text = json.dumps(asdict(self), indent=1)
        (folder / _FILE).write_text(f"{text}\n", encoding="utf-8")

    @property
    def blamed(self) -> list[Trial]:
        """The trials that failed, but for those with more packages than it takes."""
        return [
            one
            for one in self.trials
            if one.failed
            and not any(
                set(other.packages) < set(one.packages)
                and set(other.failed) >= set(one.failed)
                for other in self.trials
            )
        ]

    @property
    def headline(self) -> str:
        """The answer, in a sentence."""
        if self.state == "passed":
            return "All tests pass with the newest packages."
        if self.state == "not installed":
            return f"The newest packages cannot be installed: {self.said}"
        return f"{'; '.join(self._kinds())}. {self.said}".strip()

    def _kinds(self) -> Iterator[str]:
        """Yield how many tests fail by each package, for another reason, or once."""
        yield from map(self._blame, self.blamed)
        known = {*self._own, *(test for one in self.blamed for test in one.failed)}
        if rest := [test for test in self._lasting if test not in known]:
            alone = ", and with no single one of them"
            more = "" if self.passes_with_lock is None else alone
            yield f"{_count(rest)} with the newest packages{more}"
        if self._own:
            yield f"{_count(self._own)} with the lock too"
        if self._unsteady:
            yield f"{_count(self._unsteady, 'failed')} once, but not when repeated"

    @property
    def _lasting(self) -> list[str]:
        return [*self.failed] if self.failed_again is None else self.failed_again

    @property
    def _unsteady(self) -> list[str]:
        return [one for one in self.failed if one not in self._lasting]

    @property
    def _own(self) -> list[str]:
        """The tests that nbkit itself breaks."""
        if self.passes_with_lock is None:
            return []
        return [one for one in self._lasting if one not in self.passes_with_lock]

    def lines(self) -> Iterator[str]:
        """Yield the answer, a table of the newer packages, and the failed tests."""
        yield self.headline
        if self.changed:
            outcomes = self._outcomes()
            rows = [
                [name, before or "–", str(after), outcomes.get(name, "")]
                for name, (before, after) in self.changed.items()
            ]
            title = "with the lock otherwise" if outcomes else ""
            yield ""
            yield from _table([["package", "tested", "newest", title], *rows])
        if self.failed:
            yield ""
            tests = sorted(self.failed)
            notes = dict.fromkeys(self._own, " (with the lock too)")
            notes |= dict.fromkeys(self._unsteady, " (once, but not when repeated)")
            for test in tests[:_MOST_TESTS]:
                said = f"{test}{notes.get(test, '')}: {self.failed[test]}"
                yield said.rstrip(": ")
            if len(tests) > _MOST_TESTS:
                yield f"and {len(tests) - _MOST_TESTS} more"

    def _blame(self, trial: Trial) -> str:
        named = []
        for package in trial.packages:
            before, after = self.changed[package]
            place = f" in place of {before}" if before else ""
            named.append(f"{package} {after}{place}")
        return f"{_count(trial.failed)} with {', '.join(named)}"

    def _outcomes(self) -> dict[str, str]:
        """Return what became of each package that was tried."""
        count = len(self.passes_with_lock or ())
        outcomes = {}
        for trial in self.trials:
            outcome = f"{len(trial.failed)} of {count} fail" if trial.failed else "pass"
            if trial.said:
                outcome = f"cannot be installed: {trial.said}"
            for package in trial.packages:
                others = ", ".join(one for one in trial.packages if one != package)
                outcomes[package] = outcome + (
                    f", together with {others}" * bool(others)
                )
        return outcomes


def _count(tests: Sequence[str], verb: str = "") -> str:
    if len(tests) == 1:
        return f"1 test {verb or 'fails'}"
    return f"{len(tests)} tests {verb or 'fail'}"


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()
