"""Caveats for which a study cannot support its answer; its report starts with them.

The reasons come from what was recorded during the runs, and the limits are those below,
whatever the runs have given: the answer cannot be chosen by choosing the reasons.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain

from nbkit.errors import StoreError
from nbkit.plural import plural
from nbkit.reports.bottlenecks import ArmBottlenecks
from nbkit.reports.renderer import Report
from nbkit.review.causes import DISTURBANCES, WORTH_A_WORD
from nbkit.review.cpu_checks import NO_CPU_SHARE
from nbkit.review.findings import AuditFinding
from nbkit.review.usable_arms import no_verdict_sentence
from nbkit.statistics import NoiseFloor
from nbkit.store.nonfinite import NonFinite
from nbkit.store.paths import is_study
from nbkit.store.record import report_corruption
from nbkit.store.stored_runs import StoredRun
from nbkit.studies.budget import first_arms
from nbkit.studies.stored_study import StoredStudy

CONTROL_LIMIT = WORTH_A_WORD
"""What one configuration may differ from itself by, as a part, where its runs are too
few to show a difference. Beyond it nothing that is compared with it means anything."""

_TIME = f"{WORTH_A_WORD * 100:g}% of the time"
_HALF = "in half of an arm's runs"
LIMITS = {
    "missing-runs": "1 finished run of every arm",
    "control-differs": f"{CONTROL_LIMIT * 100:g}%, or a CI beyond the margin",
    "other-gpu-processes": f"{WORTH_A_WORD * 100:g}% of the samples, {_HALF}",
    "other-cpu-processes": f"{_TIME}, {_HALF}; {NO_CPU_SHARE * 100:g}% on GPUs where "
    "ranks do not wait for images",
    "throttled": f"{WORTH_A_WORD * 100:g}% of the rate, {_HALF}",
    "no-cpu": f"{NO_CPU_SHARE * 100:g}% of the time, {_HALF}",
}
"""Limit of each caveat, by its code: beyond it a result is not reliable."""


def caveats(
    controls: Sequence[NoiseFloor], bottlenecks: ArmBottlenecks
) -> list[AuditFinding]:
    """Return why a result is not reliable, the most important reason first."""
    differing = [*control_caveats(controls)]
    # A process that only holds memory changes nothing. A control shows that of one that
    # was there in its runs, and so in the runs of every arm.
    code = "other-gpu-processes"
    is_clear = controls and not differing and bottlenecks.in_every_arm(code)
    return [*differing, *_of_disturbances(bottlenecks, [code] if is_clear else [])]


def without_runs(study: StoredStudy) -> list[AuditFinding]:
    """Return a caveat if an arm without a run prevents the comparison."""
    missing = study.missing
    others = {slot.arm for slot in {*study.order} - {*missing}} | {*study.unrepeated}
    if study.metric is not None:
        # What is left can be compared without an arm that always fails.
        others |= {*study.failed} - {study.base, *(study.control or ())}
    without = dict.fromkeys(slot.arm for slot in missing if slot.arm not in others)
    if study.minutes is not None and without.keys().isdisjoint(first_arms(study)):
        return []  # what did not fit into the time limit is listed, and not compared
    if not without:
        return []
    arms = f"{'arm' if len(without) == 1 else 'arms'} {'; '.join(without)}"
    reason = f"{_finished(study)}, but no run of {arms}"
    return [_caveat("missing-runs", "; ".join(without), reason)]


def progress_text(study: StoredStudy) -> str:
    """Return the progress of a study in words; empty if all runs have finished."""
    return f"So far, {_finished(study)}." if study.missing else ""


def _finished(study: StoredStudy) -> str:
    finished = sum(map(len, study.runs_by_arm(diverged=True).values()))
    have = "has" if finished == 1 else "have"
    return f"{finished} of {len(study.order)} planned runs {have} finished"


def run_caveat_text(
    runs_by_arm: Mapping[str, Sequence[StoredRun]], lost: Mapping[str, NonFinite]
) -> str:
    """Return the caveats of runs without a study; empty if they are reliable."""
    shared = {a: {*map(_shared_in, runs)} - {None} for a, runs in runs_by_arm.items()}
    concurrent_arms = {arm for arm, studies in shared.items() if studies}
    rounds = [*chain(*map(_rounds_of, {*chain(*shared.values())}))]
    reasons = caveats([], ArmBottlenecks(runs_by_arm, concurrent_arms, rounds))
    if not reasons:
        return ""
    warned = prepend_caveats(Report("", ""), lost, reasons)
    return " ".join([warned.answer, *warned.notes])


def _shared_in(run: StoredRun) -> str | None:
    """Return the study that started a run together with others; None if alone."""
    with report_corruption(run.paths.root):
        tags = run.record.get("tags") or {}
        return str(tags.get("study")) if tags.get("concurrent") else None


def _rounds_of(study_id: str | None) -> Sequence[Sequence[StoredRun]]:
    if study_id is None or not is_study(study_id):
        return []  # its runs were imported without it, or it was removed
    with suppress(StoreError):
        study = StoredStudy.open(study_id)
        with report_corruption(study.paths.root):
            return study.rounds
    return []


def all_caveats(
    study: StoredStudy, controls: Sequence[NoiseFloor]
) -> list[AuditFinding]:
    """Return the `caveats` of a study, read from the store."""
    runs = study.runs_by_arm()
    arms = {
        arm: finished
        for arm, finished in runs.items()
        if finished and arm not in study.unrepeated
    }
    bottlenecks = ArmBottlenecks(arms, study.concurrent_arms, study.rounds)
    return [*without_runs(study), *caveats(controls, bottlenecks)]


def _with_rate_caveats(report: Report, caveats: Sequence[AuditFinding]) -> Report:
    """Return a report whose answer stands, with caveats beside its rates alone."""
    notes = [
        f"Rates and times are not reliable: {o.evidence}. {o.action}" for o in caveats
    ]
    reasons = [f"Not reliable: {caveat.evidence}." for caveat in caveats]
    tables = [
        replace(table, notes=[*reasons, *table.notes])
        if "images/s" in table.columns
        else table
        for table in report.tables
    ]
    result = {**report.result, "rate_caveats": [caveat.to_dict() for caveat in caveats]}
    return replace(report, notes=[*report.notes, *notes], tables=tables, result=result)


def _of_disturbances(
    bottlenecks: ArmBottlenecks, cleared: Collection[str]
) -> Iterator[AuditFinding]:
    """Yield each kind once, of the arm that it has cost most."""
    disturbed = bottlenecks.disturbed(without=cleared)
    for code in DISTURBANCES:
        causes_by_arm = {
            arm: causes
            for arm, runs in disturbed.items()
            if (
                causes := [cause for run in runs for cause in run if cause.code == code]
            )
        }
        if not causes_by_arm:
            continue
        worst = {
            arm: max(causes, key=lambda cause: cause.weight)
            for arm, causes in causes_by_arm.items()
        }
        arm = max(worst, key=lambda arm: worst[arm].weight)
        more = len(causes_by_arm) - 1
        more_arms = f" and {plural(more, 'more arm')}" if more else ""
        runs = plural(bottlenecks.runs_of(arm), "run")
        runs = f"{len(causes_by_arm[arm])} of {runs} of {arm}"
        evidence = worst[arm].evidence.rstrip(".")
        reason = f"{evidence[0].lower()}{evidence[1:]} ({runs}{more_arms})"
        yield _caveat(code, arm, reason)


def control_caveats(controls: Sequence[NoiseFloor]) -> Iterator[AuditFinding]:
    """Yield the caveat of the control that differs most from its baseline."""
    differing = [
        control
        for control in controls
        if control.shows_difference or abs(control.ratio.estimate - 1) > CONTROL_LIMIT
    ]
    if differing:
        worst = max(differing, key=lambda floor: abs(floor.ratio.estimate - 1))
        yield _caveat("control-differs", "A/A control", worst.in_brief.rstrip("."))


def _caveat(code: str, subject: str, evidence: str) -> AuditFinding:
    """Return a caveat; its evidence is text after a colon."""
    return AuditFinding.of(code, subject, "a comparison", evidence)


def prepend_caveats(
    report: Report,
    lost: Mapping[str, NonFinite],
    reasons: Sequence[AuditFinding] = (),
    unfinished: str = "",
    *,
    first: str = "",
) -> Report:
    """Return a report that begins with its first caveat.

    The notes state how many follow. Order: divergence (NaN/Inf), caveats, then missing
    runs that do not affect the result.
    """
    is_untimed = bool(report.untimed) and all(
        caveat.code != "missing-runs" for caveat in reasons
    )
    if is_untimed and reasons and report.untimed == report.answer:
        report, reasons = _with_rate_caveats(report, reasons), ()
    if not (lost or reasons or unfinished):
        return report
    lead = [*filter(None, [first or no_verdict_sentence(lost)])]
    pending = [*filter(None, [unfinished])]
    verdict = "Rates and times are inconclusive" if is_untimed else "Inconclusive"
    opening, *_ = [
        *lead,
        *(f"{verdict}: {caveat.evidence}." for caveat in reasons),
        *pending,
    ]
    caveat_notes = [
        f"Warning: {caveat.evidence}. {caveat.action}" for caveat in reasons
    ]
    _, *below = [*lead, *caveat_notes, *pending]
    after = report.answer
    if reasons:
        after = f"{verdict}." if lead else reasons[0].action
        after += f" Not affected: {report.untimed}" if is_untimed else ""
    if below:
        more = plural(len(below), "more reason" if reasons else "more note")
        opening = f"{opening.removesuffix('.')}; {more} below."
    warnings = [f"{arm} diverged ({at}); no verdict." for arm, at in lost.items()]
    warnings += [f"Not reliable: {caveat.evidence}." for caveat in reasons]
    tables = list(report.tables)
    if tables:
        tables[0] = replace(tables[0], notes=[*warnings, *tables[0].notes])
    result = dict(report.result)
    if lost:
        result["diverged"] = {arm: at.to_dict() for arm, at in lost.items()}
    if reasons:
        result["caveats"] = [caveat.to_dict() for caveat in reasons]
    return replace(
        report,
        answer=f"{opening} {after}".rstrip(),
        notes=[*below, *report.notes],
        tables=tables,
        result=result,
    )
