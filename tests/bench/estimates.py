"""How far the estimate of a study's duration is from what the study then takes."""

from __future__ import annotations

import os
import tempfile
import time

from nbkit.questions import scaling
from nbkit.studies.study import Study
from tests.bench.rows import Row, row
from tests.questions.conftest import notebook_parameters

REPEATS = 4
LIMIT = 1.3
"""30 % more or less."""


def estimate_row() -> Row:
    """Return how far the estimate of a study is off, after one repeat of its arms."""
    with tempfile.TemporaryDirectory() as home:
        os.environ["NBKIT_HOME"] = home
        _study(1).run(progress=False)
        study = _study(REPEATS)
        estimate = study.estimated_seconds
        assert estimate is not None
        began = time.monotonic()
        study.run(progress=False)
        taken = time.monotonic() - began
    ratio = estimate / taken
    conditions = (
        f"scaling notebook on 2 CPU processes, {REPEATS} repeats after a study of one: "
        f"estimated {estimate:.0f} s, took {taken:.0f} s: estimate / taken {ratio:.2f}"
    )
    return row(
        "study: estimate / taken", max(ratio, 1 / ratio), "-fold", LIMIT, conditions
    )


def _study(repeats: int) -> Study:
    plan = scaling.plan(notebook_parameters("scaling", gpus=2, repeats=repeats))
    return Study.create(
        "scaling",
        plan.arms,
        repeats=plan.repeats,
        unrepeated=plan.unrepeated,
        environment=plan.environment,
        kind="scaling",
        plan=plan.facts,
    )
