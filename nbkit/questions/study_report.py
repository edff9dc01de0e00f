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

from nbkit.errors import (
    ConfigError,
    NbkitError,
    NotEnoughDataError,
    RunNotFoundError,
)
from nbkit.reading import expanded
from nbkit.reports.arms import finished_arms
from nbkit.reports.auditor import findings_of
from nbkit.reports.bottlenecks import ArmsBoundBy
from nbkit.reports.conditions import conditions_line
from nbkit.reports.doubts import (
    doubts,
    so_far,
    told_first,
    without_runs,
)
from nbkit.reports.finite_arms import not_finite, without_a_verdict
from nbkit.reports.renderer import Report, SavedReport
from nbkit.store.nonfinite import NonFinite
from nbkit.store.paths import study_folders
from nbkit.store.record import read_json
from nbkit.store.stored_runs import StoredRun, find_run_folder
from nbkit.studies.budget import not_measured
from nbkit.studies.kinds import report_of_its_kind
from nbkit.studies.snapshot import StudySnapshot
from nbkit.studies.study import Study


def report(
    study: Study | str, *, folder: str | os.PathLike[str] | None = None
) -> SavedReport:
    """Make the report of a study and save it, over an earlier one in that folder.

    A study of a notebook gets that notebook's report, any other study a report of its
    arms; all have the audit and what bounds each arm.

    Parameters
    ----------
    study
        A study, or its id; it may be imported or unfinished.
    folder
        Folder of the files, created if it does not exist; None is the study's own.

    Returns
    -------
    SavedReport
        Displays chart and answer in a notebook, prints the answer and the paths of the
        files: ``page``, ``result``, ``figures`` (PNG) and ``tables`` (CSV).

    Raises
    ------
    ConfigError
        If it is a run or the id of one, or of another type.
    StoreError
        If there is no such study, or the folder cannot be written.
    NotEnoughDataError
        If no run of the study has finished, or a run has no measured step.

    Examples
    --------
    >>> nbkit.report(study).page  # doctest: +SKIP
    """
    opened = _opened(study)
    target = opened.paths.root if folder is None else expanded(folder, "folder")
    return make(opened).save(target)


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
    """Return the answer and first table of what has finished of a study."""
    try:
        report_so_far = make(study)
    except NbkitError:
        return so_far(study)  # nothing can be compared yet
    tables = [] if report_so_far.has_no_answer else report_so_far.tables[:1]
    return "\n\n".join([report_so_far.answer, *(table.to_text() for table in tables)])


def make(study: Study) -> Report:
    """Return the report of a study as its kind makes it, as of now."""
    study = StudySnapshot(study.paths.root)
    lost = not_finite(study)
    try:
        made = report_of_its_kind(study)
    except NotEnoughDataError:
        if not lost:
            raise
        made = without_a_verdict(study)
    runs = [run for many in study.runs_by_arm().values() for run in many]
    if runs:
        made = replace(made, conditions=conditions_line(runs))
    return _with_origin(_with_checks(made, study, lost), study)


def _with_checks(made: Report, study: Study, lost: Mapping[str, NonFinite]) -> Report:
    """Return a report with its audit, what bounds its arms, and its doubts first."""
    arms = {arm: runs for arm, runs in study.runs_by_arm().items() if runs}
    if set(arms) <= set(study.once):
        return told_first(made, lost)  # there are no runs to check
    findings = findings_of(study)  # a report begins with its doubts anyway
    notes = findings.in_brief
    bound_by = ArmsBoundBy(finished_arms(study), study.at_once, study.rounds)
    made = replace(
        made,
        # What makes the answer doubtful comes before what was left out.
        notes=[
            *([*made.notes, *notes] if findings.is_clean else [*notes, *made.notes]),
            *bound_by.notes(),
        ],
        result={
            **made.result,
            "audit": findings.to_dicts(),
            "diagnosis": bound_by.to_dict(),
        },
    )
    lacking = without_runs(study)
    doubtful = [*lacking, *doubts(made.controls, bound_by)]
    if not doubtful and (disturbed := bound_by.disturbed_runs):
        count = f"{len(disturbed)} of {len(study.order)} runs"
        sentence = (
            f"Disturbed, {count}: {', '.join(disturbed)}. Medians tolerate fewer than "
            "half; to repeat them, remove their folders and call study.resume()."
        )
        made = replace(made, method=[*made.method, sentence])
    if study.waits:
        made = replace(made, method=[*made.method, *map(str, study.waits)])
    limited = not_measured(study)
    if study.missing:
        how = "minutes=0" if limited else ""
        resume = f"nbkit.Study.open({study.study_id!r}).resume({how})"
        notes = [*filter(None, [limited]), *made.notes]
        made = replace(made, notes=notes, next_step=f"{resume} runs what is missing")
    rest = "" if lacking or limited else so_far(study)
    return told_first(made, lost, doubtful, rest)


def _with_origin(made: Report, study: Study) -> Report:
    """Return a report that says where it was imported from, if it was."""
    origin = read_json(study.paths.imported)
    if origin is None:
        return made
    sentence = (
        f"Imported on {origin['time']} from a bundle exported on host {origin['host']} "
        f"on {origin['exported']}."
    )
    return replace(made, method=[*made.method, sentence])
