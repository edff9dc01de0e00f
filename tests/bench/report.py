"""What a report costs: files opened and seconds, for a study of 40 runs.

The store of a cluster is often on a file server, where each open is a round trip.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time

import nbkit
from nbkit.questions.study_report import make
from tests.bench.rows import Row, row
from tests.studies.written_study import write_runs

ARMS, REPEATS = 8, 5
MOST_OPENS_PER_RUN = 20
LIMIT_SECONDS = 2.0


def report_rows() -> list[Row]:
    """Return the files that a report opens for each run, and its seconds."""
    opened: list[str] = []
    with tempfile.TemporaryDirectory() as home:
        os.environ["NBKIT_HOME"] = home

        def count(event: str, arguments: tuple[object, ...]) -> None:
            if event == "open" and str(arguments[0]).startswith(home):
                opened.append(str(arguments[0]))

        base = nbkit.ExperimentConfig(device="cpu", steps=20, warmup_steps=2)
        arms = {
            f"arm {n}": base.replace(learning_rate=0.01 * n) for n in range(1, ARMS + 1)
        }
        study = nbkit.Study.create("bench", arms, repeats=REPEATS)
        write_runs(study, {arm: 100.0 + n for n, arm in enumerate(arms)})
        sys.addaudithook(count)
        make(study)  # imports and fonts
        opened.clear()
        started = time.monotonic()
        make(study)
        seconds, opens = time.monotonic() - started, len(opened)
    runs = ARMS * REPEATS
    said = f"{ARMS} arms x {REPEATS} repeats"
    return [
        row("report: opens a run", opens / runs, "files", MOST_OPENS_PER_RUN, said),
        row("report of 40 runs", seconds, "s", LIMIT_SECONDS, said),
    ]
