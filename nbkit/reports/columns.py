"""Columns: one declaration of a number for page, terminal, CSV and JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from nbkit.reports.parts import Table
from nbkit.statistics import Ratio, Summary, interval_in_words, quantities


@dataclass(frozen=True)
class Column:
    """One column of a table; unknown values are None and displayed as a dash."""

    title: str | None
    """Heading; None if the column is only in the CSV."""
    value: str | Callable[[Any], Any]
    """Attribute path such as ``first.median`` (None if a part is), or a function."""
    show: Callable[[Any], str | None] = str
    csv: str | None = None
    """Name in the CSV, which ends with the unit; None if it is not in the CSV."""

    def of(self, row: Any) -> Any:
        """Return the value in a row."""
        if callable(self.value):
            return self.value(row)
        for name in self.value.split("."):
            row = None if row is None else getattr(row, name)
        return row

    def cell(self, row: Any) -> str | None:
        """Return the text of a row."""
        value = self.of(row)
        return None if value is None else self.show(value)

    def number(self, row: Any) -> Any:
        """Return the value of a row; for several runs, their median."""
        value = self.of(row)
        return value.median if isinstance(value, Summary) else value


def table(
    caption: str,
    columns: Iterable[Column],
    rows: Sequence[Any],
    notes: Sequence[str] = (),
) -> Table:
    """Return rows as a table."""
    columns = tuple(columns)
    shown = [column for column in columns if column.title is not None]
    return Table(
        caption,
        [str(shown_column.title) for shown_column in shown],
        [[shown_column.cell(row) for shown_column in shown] for row in rows],
        notes,
        {
            column.csv: [column.number(row) for row in rows]
            for column in columns
            if column.csv
        },
    )


def number(
    title: str | None, path: str, show: Callable[[Any], str | None] = str
) -> Column:
    """Return a number that is also in the CSV, under the last name of its path."""
    return Column(title, path, show, path.rpartition(".")[2])


def ends(path: str, csv: str) -> list[Column]:
    """Return the ends of an interval, which are only in the CSV."""
    names = ("ci_low", "ci_high")
    return [Column(None, f"{path}.{name}", csv=f"{csv}_{name}") for name in names]


def rate(title: str, over: str, path: str, csv: str, *, n: str = "") -> list[Column]:
    """Return images/s with interval, and optionally the number of runs."""

    def cell(row: Any) -> str | None:
        summary = Column(None, path).of(row)
        text = summary and interval(quantities.rate)(summary)
        count = Column(None, n).of(row) if n else None
        return text if count is None else f"{text or quantities.UNKNOWN} ({count})"

    return [
        Column(title, path, lambda summary: quantities.rate(summary.median), csv),
        Column(over, cell),
    ]


def ratio(title: str, path: str, csv: str | None = None) -> list[Column]:
    """Return estimate, interval and verdict."""
    return [
        Column(title, f"{path}.estimate", "{:.3f}".format, csv),
        Column("95% CI", path, interval()),
        Column("verdict", f"{path}.verdict"),
    ]


def interval(
    shown: Callable[[float], str] | None = None,
) -> Callable[[Summary | Ratio], str | None]:
    """Return an interval as text; None without one."""
    return lambda estimate: interval_text(estimate.ci_low, estimate.ci_high, shown)


def interval_text(
    low: float | None, high: float | None, shown: Callable[[float], str] | None = None
) -> str | None:
    """Return an interval as text; None without one."""
    if low is None or high is None:
        return None
    return interval_in_words(low, high, shown)


def spread(show: Callable[[float], str]) -> Callable[[Summary], str | None]:
    """Return the range of several values as text."""
    return lambda summary: (
        None
        if summary.n == 1
        else f"{show(summary.minimum)} to {show(summary.maximum)}"
    )
