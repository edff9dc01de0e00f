"""`audit`: findings on a run, a study, or a published result."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from nbkit.errors import (
    ConfigError,
    NotEnoughDataError,
    RunNotFoundError,
    StoreError,
)
from nbkit.launch.run import Run, attach
from nbkit.plural import plural
from nbkit.references.rows import PublishedRow, published
from nbkit.registry import suggest
from nbkit.reports.arms import finished_arms
from nbkit.reports.caveats import LIMITS, all_caveats
from nbkit.reports.parts import Table
from nbkit.review.claim_checks import claim_findings, claims_about
from nbkit.review.findings import Audit, AuditFinding
from nbkit.review.row_checks import row_findings
from nbkit.review.run_checks import arm_findings, run_findings
from nbkit.statistics import MINIMUM_RUNS
from nbkit.store.paths import is_study
from nbkit.store.stored_runs import StoredRun
from nbkit.studies.kinds import report_of_its_kind
from nbkit.studies.snapshot import StudySnapshot
from nbkit.studies.starts import has_diverged
from nbkit.studies.study import Study

# Two runs that differ in these alone are of one arm.
_OWN_FIELDS = ("name", "seed", "devices")


def audit(
    what: Run | Study | PublishedRow | str | Sequence[Run | PublishedRow],
) -> Audit:
    """Return suspicious results, each with evidence and an action.

    Parameters
    ----------
    what
        A run or a study, or its id; several runs; or published results: a row, several
        rows, the label of a series, or a publisher such as ``"NetApp"``. The audit of a
        row includes the other rows of its series and the claims of its report.

    Returns
    -------
    Audit
        A sequence of findings, the worst first; printed with reasons. ``errors``,
        ``warnings`` and ``notes`` contain the findings of one severity, ``by_code()``
        groups them, ``sentence`` counts them, and ``is_clean`` is True without errors
        and warnings.

    Raises
    ------
    ConfigError
        If the name is unknown, or the value cannot be audited.
    NotEnoughDataError
        If the list is empty, or no run of the study has finished or diverged.
    StoreError
        If the files of a single run cannot be read; for several runs, this is a
        finding.

    Examples
    --------
    >>> nbkit.audit("NetApp")  # doctest: +SKIP
    >>> nbkit.audit(nbkit.runs()[0])  # doctest: +SKIP
    """
    if isinstance(what, str) and is_study(what):
        what = Study.open(what)
    if isinstance(what, Study):
        what = StudySnapshot(what.paths.root)
        study_findings = findings_of(what)
        return Audit(
            study_findings.subject,
            [*_caveats(what, study_findings.subject), *study_findings],
        )
    if isinstance(what, str):
        subject, results = what, _named(what)
    elif isinstance(what, StoredRun | PublishedRow):
        subject, results = _name(what), [what]
    else:
        results = list(what) if isinstance(what, Sequence) else [what]
        subject = plural(len(results), "result")
    _check(what, results)
    rows = [result for result in results if isinstance(result, PublishedRow)]
    runs = [result for result in results if isinstance(result, StoredRun)]
    findings = [*_of_rows(rows), *_of_runs(runs)]
    return Audit(subject, findings)


def findings_table(
    audits: Sequence[Audit], answered: Collection[str] = ()
) -> Table | None:
    """Return the findings of audits, a row for each kind; None if there are none.

    The study measures the effect of the `answered` codes itself: no fix is shown.
    """
    rows = [
        [
            *([audit.subject] if len(audits) > 1 else []),
            code.severity,
            code.title,
            str(len({finding.subject for finding in findings})),
            findings[0].evidence,
            code.why,
            None if code.name in answered else code.action,
        ]
        for audit in audits
        for code, findings in audit.by_code()
    ]
    if not rows:
        return None
    subject = ["subject"] if len(audits) > 1 else []
    columns = ("severity", "finding", "results", "evidence (first)", "why", "fix")
    return Table("Findings", [*subject, *columns], rows)


def findings_of(study: Study) -> Audit:
    """Return what is suspicious about a study's runs, without its caveats."""
    by_arm = study.runs_by_arm(diverged=True)
    diverged = [run for runs in by_arm.values() for run in runs if has_diverged(run)]
    try:
        arms = finished_arms(study)
    except NotEnoughDataError:
        if not diverged:
            raise
        arms = {}
    findings = [
        run_finding
        for runs in arms.values()
        for run in runs
        for run_finding in run_findings(run)
    ]
    metric = study.metric
    needed = MINIMUM_RUNS if metric is None else metric.minimum_runs
    findings += arm_findings(arms, needed)
    for run in diverged:
        # It ended early: what else it lacks follows from that.
        findings += [
            run_finding
            for run_finding in run_findings(run)
            if run_finding.code == "divergence"
        ]
    return Audit(f"study {study.study_id}", findings)


def _caveats(study: Study, subject: str) -> Iterator[AuditFinding]:
    """Yield why the study's report takes its answer back, with the limits."""
    controls, untimed = (), False
    with suppress(NotEnoughDataError):  # then nothing can be compared
        report = report_of_its_kind(study)
        controls, untimed = report.controls, bool(report.untimed)
    for caveat in all_caveats(study, controls):
        evidence = f"{caveat.evidence}; limit: {LIMITS[caveat.code]}"
        is_timed = untimed and caveat.code != "missing-runs"
        claim = "rates and times" if is_timed else caveat.claim
        yield replace(caveat, subject=subject, claim=claim, evidence=evidence)


def _check(what: object, results: Sequence[object]) -> None:
    if not results:
        message = "No results to audit. Pass runs, rows, a study or a name."
        raise NotEnoughDataError(message)
    for result in results:
        if not isinstance(result, StoredRun | PublishedRow):
            message = (
                f"what={what!r:.80}: {type(result).__name__} is not a run or published "
                "row. Pass runs, rows, a study or a name."
            )
            raise ConfigError(message)


def _named(name: str) -> Sequence[Any]:
    """Return the published rows or the run of that name."""
    rows = published()
    for field in ("series", "publisher"):
        matches = [row for row in rows if getattr(row, field) == name]
        if matches:
            return matches
    try:
        return [attach(name)]
    except RunNotFoundError as error:
        publishers = sorted({row.publisher for row in rows})
        message = (
            f"what={name!r} is neither a run or study of the store nor a publisher or "
            "series of nbkit.published(). Publishers: "
            f"{', '.join(publishers)}.{suggest(name, publishers)}"
        )
        raise ConfigError(message) from error


def _name(result: StoredRun | PublishedRow) -> str:
    return result.label if isinstance(result, PublishedRow) else f"run {result.run_id}"


def _of_rows(rows: Sequence[PublishedRow]) -> Iterator[AuditFinding]:
    if not rows:
        return
    rows = list(dict.fromkeys(rows))
    labels = {row.series for row in rows if row.series is not None}
    mates = [row for row in published() if row.series in labels and row not in rows]
    for claim in claims_about(rows):
        yield from claim_findings(claim)
    yield from row_findings(rows, beside=mates)


def _arms(runs: Iterable[StoredRun]) -> dict[str, list[StoredRun]]:
    """Return runs by what was asked of them, under the name of the first of each."""
    groups: dict[str, list[StoredRun]] = {}
    for run in runs:
        fields = run.config.model_dump(mode="json", exclude=set(_OWN_FIELDS))
        groups.setdefault(json.dumps(fields, sort_keys=True), []).append(run)
    return {members[0].run_id: members for members in groups.values()}


def _of_runs(runs: Sequence[StoredRun]) -> Iterator[AuditFinding]:
    """Yield what is suspicious about runs of any arms, damaged ones among them."""
    readable = []
    for run in runs:
        try:
            findings = [*run_findings(run)]
        except (ConfigError, StoreError) as error:
            if len(runs) == 1:
                raise
            yield AuditFinding.of("damaged", _name(run), "a result", str(error))
        else:
            yield from findings
            readable.append(run)
    yield from arm_findings(_arms(readable))
