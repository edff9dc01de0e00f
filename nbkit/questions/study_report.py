"""`report`: the report of a study, made from the store alone.

A study knows its kind, and the module of that kind makes its report. No kernel, no
notebook and none of the machine's devices are asked, so that a study can be reported
long after it ran, and where it was imported. A study of no kind gets the report of any
arms.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import chain

from nbkit.errors import ConfigError, NbkitError, NotEnoughDataError, RunNotFoundError
from nbkit.reading import expanded
from nbkit.reports.arm_charts import step_time_figures
from nbkit.reports.arms import apart_sentence, finished_arms
from nbkit.reports.auditor import findings_of, findings_table
from nbkit.reports.bottlenecks import ArmBottlenecks
from nbkit.reports.caveats import caveats, prepend_caveats, progress_text, without_runs
from nbkit.reports.conditions import conditions_line
from nbkit.reports.finite_arms import all_diverged_report, diverged_arms
from nbkit.reports.renderer import Report, SavedReport, first_screen
from nbkit.store.nonfinite import NonFinite
from nbkit.store.paths import study_folders
from nbkit.store.record import read_json, report_corruption
from nbkit.store.stored_runs import StoredRun, find_run_folder
from nbkit.studies.budget import not_measured
from nbkit.studies.kinds import plan_notes, report_of_its_kind
from nbkit.studies.snapshot import StudySnapshot
from nbkit.studies.stored_study import resume_command
from nbkit.studies.study import Study

_IN_AUDIT = {"input": "input-bound"}
"""What an audit calls a bottleneck, where it has another name for it."""


def report(
    study: Study | str, *, folder: str | os.PathLike[str] | None = None
) -> SavedReport:
    """Create the report of a study and save it; replaces an earlier report.

    A notebook's study gets the notebook's report, other studies a comparison of arms.
    All reports include the audit and the bottleneck of each arm.

    Parameters
    ----------
    study
        A study or its id. It may be imported or unfinished.
    folder
        Folder for the files, created if needed; None for the study's folder.

    Returns
    -------
    SavedReport
        Displayed as chart and answer in a notebook; printed as the answer and the paths
        of the files: ``page``, ``result``, ``figures`` (PNG) and ``tables`` (CSV).

    Raises
    ------
    ConfigError
        If ``study`` is a run, the id of a run, or of another type.
    StoreError
        If there is no such study, or the folder cannot be written.
    NotEnoughDataError
        If no run of the baseline has finished, or a run has no measured step or metric.

    Examples
    --------
    >>> nbkit.report(study).page  # doctest: +SKIP
    """
    opened = _opened(study)
    target = opened.paths.root if folder is None else expanded(folder, "folder")
    saved = make(opened).save(target)
    return replace(saved, study_id=opened.study_id)


def _opened(study: object) -> Study:
    """Return the study that is meant, unless it is a run or of another type."""
    if isinstance(study, Study):
        return study
    if isinstance(study, str) and not _is_run(study):
        return Study.open(study)
    run_id = study.run_id if isinstance(study, StoredRun) else study
    if isinstance(run_id, str):
        message = (
            f"study={run_id!r} is a run, not a study. Pass a study or its id, or show "
            f"the run with `nbkit show {run_id}`."
        )
    else:
        message = (
            f"study={study!r:.80} has type {type(study).__name__}. Pass a study "
            "(nbkit.Study) or its id."
        )
    raise ConfigError(message)


def _is_run(name: str) -> bool:
    """Tell the id of a run, or the end of one, that no study has."""
    if not name or study_folders(name):
        return False
    with suppress(RunNotFoundError):
        return bool(find_run_folder(name))
    return False


def headline(study: Study) -> str:
    """Return the first screen of what has finished of a study."""
    try:
        return "\n\n".join(first_screen(make(study).to_dict()))
    except NbkitError:
        return progress_text(study)  # nothing can be compared yet


def make(study: Study) -> Report:
    """Return the report of a study as its kind makes it, as of now."""
    study = StudySnapshot(study.paths.root)
    lost = diverged_arms(study)
    try:
        report = report_of_its_kind(study)
    except NotEnoughDataError:
        if not lost:
            raise
        report = all_diverged_report(study)
    with report_corruption(study.paths.root):
        notes = plan_notes(study)
    report = replace(report, method=[*notes, *report.method])
    by_arm = study.runs_by_arm().items()
    if runs := [
        run for arm, runs in by_arm if arm not in study.unrepeated for run in runs
    ]:
        report = replace(report, conditions=conditions_line(runs))
    report = _with_checks(report, study, lost)
    origin = read_json(study.paths.imported)
    if origin is None:
        return report
    sentence = (
        f"Imported on {origin['time']} from a bundle exported on host {origin['host']} "
        f"on {origin['exported']}."
    )
    return replace(report, method=[*report.method, sentence])


def _with_checks(report: Report, study: Study, lost: Mapping[str, NonFinite]) -> Report:
    """Return a report with its audit and bottlenecks, and its caveats first."""
    arms = {arm: runs for arm, runs in study.runs_by_arm().items() if runs}
    if set(arms) <= set(study.unrepeated):
        return prepend_caveats(report, lost)  # there are no runs to check
    findings = findings_of(study)  # a report begins with its caveats anyway
    answered = report.answered_causes
    answered_codes = [_IN_AUDIT.get(code, code) for code in answered]
    finished = finished_arms(study)
    bottlenecks = ArmBottlenecks(finished, study.concurrent_arms, study.rounds)
    tables = (bottlenecks.table(answered), findings_table([findings], answered_codes))
    finite = {arm: runs for arm, runs in finished.items() if arm not in lost}
    lacking, limited = without_runs(study), not_measured(study)
    doubtful = [*lacking, *caveats(report.controls, bottlenecks)]
    method, next_step = [*report.method], report.next_step
    if not doubtful and (disturbed := bottlenecks.disturbed_runs):
        count = f"{len(disturbed)} of {sum(map(len, finished.values()))} runs"
        method.append(
            f"Disturbed: {count} ({', '.join(disturbed)}). Medians are valid, because "
            "fewer than half of each arm's runs were disturbed. To repeat these runs, "
            "remove their folders and call resume()."
        )
    first = [apart_sentence(study)]
    if study.missing:
        first.insert(0, limited)
        resume = resume_command(study, "minutes=0" if limited else "")
        next_step = f"{resume} continues the study"
    notes = [report.notes, findings.summary(without=answered_codes)]
    if not findings.is_clean:
        notes.reverse()  # what makes the answer doubtful, before what was left out
    report = replace(
        report,
        notes=[*filter(None, first), *chain(*notes), *bottlenecks.summary(answered)],
        tables=[*report.tables, *(table for table in tables if table is not None)],
        figures=[*report.figures, *step_time_figures(finite)],
        method=[*method, *map(str, study.waits)],
        result={
            **report.result,
            "audit": findings.to_dicts(),
            "diagnosis": bottlenecks.to_dict(),
        },
        next_step=next_step,
    )
    rest = "" if lacking or limited else progress_text(study)
    return prepend_caveats(report, lost, doubtful, rest)
