"""How far the estimates of the notebooks' studies are from what the studies take."""

from __future__ import annotations

import datetime
import os
import tempfile
from pathlib import Path

from nbkit.store.paths import study_folders
from nbkit.studies.starts import grouped
from nbkit.studies.study import Study
from tests.bench.rows import Row, row
from tests.notebooks.executing import execute

LIMIT = 1.3
"""30 % more or less."""
NOTEBOOKS = (
    *("scaling", "precision", "storage", "input_pipeline", "concurrent_jobs"),
    *("inference", "time_to_accuracy", "chexnet"),
)
"""Those that start runs as a study."""


def estimate_row() -> Row:
    """Return by how much the estimate before a second study is off, at its worst."""
    ratios, texts = [], []
    for name in NOTEBOOKS:
        with tempfile.TemporaryDirectory() as home:
            os.environ["NBKIT_HOME"] = home
            output = Path(home) / "out.ipynb"
            assert execute(name, output).returncode == 0
            estimate = _estimated_seconds()
            assert execute(name, output).returncode == 0
            taken = _taken_seconds(_newest_study())
        ratios.append(estimate / taken)
        texts.append(f"{name} {estimate:.0f} / {taken:.0f} s")
    worst = max(max(ratio, 1 / ratio) for ratio in ratios)
    conditions = "defaults on CPUs, second study in a store: " + ", ".join(texts)
    return row("notebooks: estimate / taken", worst, "-fold", LIMIT, conditions)


def _newest_study() -> Study:
    return Study(study_folders()[-1])


def _estimated_seconds() -> float:
    """Return what the newest study would be estimated to take once more."""
    study = _newest_study()
    arms = (start[0].arm for start in grouped(study.order, study.concurrent))
    seconds = study.earlier_times.total(arms)
    assert seconds is not None
    return seconds if study.minutes is None else min(seconds, 60 * study.minutes)


def _taken_seconds(study: Study) -> float:
    times = [
        datetime.datetime.fromisoformat(run.record["time"][moment])
        for runs in study.runs_by_arm().values()
        for run in runs
        for moment in ("submitted", "ended")
    ]
    return (max(times) - min(times)).total_seconds()
