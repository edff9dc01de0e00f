"""The same runs by the statistics of others, as a table; and what an audit says.

Whether an answer holds should not depend on the statistic. Where it does, the table
shows it: each column is rated, and set against the other, by every source's definition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nbkit.reports.arms import arms_of, finished_arms
from nbkit.reports.renderer import Note, Report, Source, Table
from nbkit.reports.source_statistics import (
    SOURCES,
    SourceStatistic,
    source_statistics,
)
from nbkit.review.findings import Audit, Code, Finding
from nbkit.statistics import quantities as wording
from nbkit.studies.study import Study


def by_source(study: Study, arm: str | None = None) -> Table | Note:
    """Return one arm of a study and its baseline by the statistics of others.

    Parameters
    ----------
    study
        With a finished run of an arm.
    arm
        Which to put over the baseline; None is the fastest of the others.

    Returns
    -------
    Table or Note
        A note where no arm has a rate, or all that have are not finite.

    Raises
    ------
    NotEnoughDataError
        If no run of an arm has finished.
    """
    arms, runs = arms_of(study), finished_arms(study)
    rates = {
        row.arm: row.images_per_second.median
        for row in arms.rows
        if row.images_per_second is not None
        and row.arm != arms.control
        and row.arm in arms.usable
    }
    if not rates:
        return Note(["By the statistics of others: no arm has a rate."])
    others = [name for name in rates if name != arms.baseline]
    chosen = arm or max(others, key=rates.__getitem__, default=arms.baseline)
    names = dict.fromkeys(name for name in (chosen, arms.baseline) if name in rates)
    return statistics_table({name: source_statistics(runs[name]) for name in names})


def with_statistics(report: Report, statistics: Table | Note) -> Report:
    """Return a report with this table, and with where its statistics are defined."""
    if isinstance(statistics, Note):
        return replace(report, notes=[*report.notes, *statistics.sentences])
    known = [Source(name, url) for name, url in SOURCES.items()]
    sources = dict.fromkeys([*report.sources, *known])
    return replace(report, tables=[*report.tables, statistics], sources=list(sources))


def statistics_table(
    compared: Mapping[str, Sequence[SourceStatistic]], about: str = ""
) -> Table:
    """Return a table of one or two columns of rates."""
    names = list(compared)
    every = list(zip(*compared.values(), strict=True))
    lines = [row for row in every if any(one.value is not None for one in row)]
    absent = [row[0].label for row in every if row not in lines]
    columns = ["statistic", "source"]
    for name in names:
        columns += [name, "times nbkit's", "runs"]
    notes = [
        '"Images per second" has several meanings. Each line is what that source would '
        "have printed for these runs.",
    ]
    notes += [f"{row[0].label}: {row[0].difference}." for row in lines]
    if absent:
        notes.append(f"Unknown for these runs: {'; '.join(absent)}.")
    if len(names) > 1:
        columns.append("ratio")
        notes.append(
            f"Ratio: {names[0]} over {names[1]}, by each statistic. Only nbkit's own "
            "can have an interval, in the first table."
        )
    return Table(
        f"{about}{': t' if about else 'T'}he same runs by the statistics of others",
        columns,
        [_cells(row) for row in lines],
        notes,
        {
            "unit": [row[0].unit for row in lines],
            **{
                f"value of {name}": [row[place].value for row in lines]
                for place, name in enumerate(names)
            },
        },
    )


def _cells(row: Sequence[SourceStatistic]) -> list[str | None]:
    cells: list[str | None] = [row[0].label, row[0].source]
    for one in row:
        cells += [_value(one), _factor(one.against_ours), f"{one.n_runs}"]
    if len(row) > 1:
        first, second = (one.value for one in row)
        is_rate = row[0].unit == "images/s"
        cells.append(_factor(first / second if is_rate and first and second else None))
    return cells


def _value(one: SourceStatistic) -> str | None:
    if one.value is None:
        return None
    if one.unit == "images/s":
        return wording.rate(one.value)
    return f"{one.value:.3g} {one.unit}"


def _factor(factor: float | None) -> str | None:
    return None if factor is None else f"{factor:.3f}"


def audit_notes(audit: Audit) -> list[str]:
    """Return what an audit found: a sentence a kind of finding, one for notes."""
    if not audit:
        return [f"Audit of {audit.sentence}"]
    kinds = audit.by_code()
    mild = [
        code.title if len(findings) == 1 else f"{code.title} ({len(findings)} times)"
        for code, findings in kinds
        if code.severity == "note"
    ]
    return [
        *(_finding(audit.subject, *one) for one in kinds if one[0].severity != "note"),
        *([f"Audit of {audit.subject}, notes: {'; '.join(mild)}."] if mild else []),
    ]


def _finding(subject: str, code: Code, findings: Sequence[Finding]) -> str:
    times = f", {len(findings)} times" if len(findings) > 1 else ""
    first = findings[0]
    about = "" if first.subject in subject else f"{first.subject}: "
    return (
        f"Audit of {subject}, {code.severity}{times}: {code.title}. "
        f"{about}{first.evidence}. {code.action}"
    )
