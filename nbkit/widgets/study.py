"""A study as a page: the progress of each arm, and the results of its runs."""

from __future__ import annotations

from nbkit import statistics
from nbkit.launch.run import Run
from nbkit.reports.parts import Note, Table
from nbkit.statistics.quantities import UNKNOWN, figures
from nbkit.studies.stored_study import resume_command
from nbkit.studies.study import Study


def study_html(study: Study) -> str:
    """Return a page's part that needs neither a style sheet nor a kernel."""
    planned = {
        arm: 1 if arm in study.unrepeated else study.repeats for arm in study.arms
    }
    ended = study.runs_by_arm(diverged=True)
    rows: list[list[str]] = []
    for arm, runs in study.runs_by_arm().items():
        lost = len(ended[arm]) - len(runs)
        mark = f", {lost} not finite" if lost else ""
        rows.append([arm, f"{len(runs)} of {planned[arm]}{mark}", *_rates(runs)])
    resume = resume_command(study, "" if study.minutes is None else "minutes=0")
    what_next = (
        f"Missing runs: {missing}. {resume} continues the study."
        if (missing := len(study.missing))
        else "All runs have ended: nbkit.report(study) shows the results."
    )
    caption = f"{study.name} ({study.study_id})"
    columns = ["arm", "finished", "images/s (median)", "lowest", "highest"]
    return Table(caption, columns, rows).to_html() + Note([what_next]).to_html()


def _rates(runs: list[Run]) -> list[str]:
    rates = (run.summary.images_per_second for run in runs)
    known = [rate for rate in rates if rate is not None]
    if not known:
        return [UNKNOWN] * 3
    summary = statistics.summarise(known)
    return [figures(summary.median), figures(summary.minimum), figures(summary.maximum)]
