"""What the notebooks cover, and what was run here.

Printed by ``python -m nbkit.questions.sources``.

The reports that nbkit makes reproducible asked the questions; each has a notebook and
one command. What became of it is asked of the store: the newest study of that kind that
came to its end, else the newest.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from nbkit.errors import NbkitError
from nbkit.launch.devices.choice import visible_gpus
from nbkit.plural import plural
from nbkit.questions.question import TOUR, Question, notebooks_of_questions
from nbkit.reports.parts import Table
from nbkit.store.paths import reports_folder, studies_folder
from nbkit.store.record import read_json
from nbkit.studies.study import Study

REPORTS = {
    "NetApp": "NetApp ONTAP AI with Lenovo ThinkSystem SR670 V2 and AFF A400 (2023)",
    "Dell guide": (
        "Dell EMC Ready Solutions for AI: Deep Learning with NVIDIA, architecture "
        "guide (2018)"
    ),
    "CheXNet": "Dell: optimising CheXNet training on C4140 with V100 (2019)",
    "Paddle": "PaddlePaddle: NGC PyTorch ResNet-50 v1.5 reproduced (2023)",
    "vSphere": "Dell: multi-node training with VMware vSphere on R750xa, A100 (2022)",
}
"""Titles of the reports that nbkit makes reproducible, by their short names."""


def sources_table() -> Table:
    """Return every question with its command and what became of it in this store."""
    count, studies = len(visible_gpus("auto")), _studies()
    here = plural(count, "GPU")
    return Table(
        "What the notebooks cover",
        ["notebook", "from", "question", "command", "in this store", "missing"],
        [
            [
                question.name,
                ", ".join(question.reports),
                question.text,
                question.command,
                state(question.name, studies),
                _lacking(question, count, here) or None,
            ]
            for question in notebooks_of_questions()
        ],
        [
            *(f"{name}: {title}." for name, title in REPORTS.items()),
            "Missing: GPUs or data behind the reports' figures that this machine lacks "
            "or does not report. A notebook then runs on what is available.",
        ],
    )


def state(notebook: str, studies: Sequence[Study] | None = None) -> str:
    """Return what the newest finished study of a notebook in the store says."""
    if notebook == TOUR.name:
        return "tour: creates runs, but no study"
    if notebook == "machines":
        return _newest_comparison()
    known = _studies() if studies is None else studies
    kind = [study for study in known if study.kind == notebook]
    if not kind:
        return "not run yet"
    # An aborted start does not undo what was measured before.
    newest = next((study for study in reversed(kind) if not study.missing), kind[-1])
    runs = [run for finished in newest.runs_by_arm().values() for run in finished]
    if not runs:
        return f"no run finished: {newest.study_id}"
    done = f"{len(runs)} of {len(newest.order)} runs"
    device = next((n for run in runs if (n := run.summary.device_name)), None)
    ended = max(run.record["time"]["ended"] or "" for run in runs)
    is_cpu = all(run.summary.device_type == "cpu" for run in runs)
    on = "CPU smoke test" if is_cpu else "GPU"
    word = "unfinished" if newest.missing else "finished"
    return f"{word} {ended[:16]}Z on {device or 'unknown'} ({on}): {done}"


def _newest_comparison() -> str:
    """Return when bundles were last compared: those reports belong to no study."""
    results = sorted(reports_folder().glob("*-machines-*/result.json"))
    if not results:
        return "not run yet"
    saved = read_json(results[-1]) or {}
    return f"report {results[-1].parent.name}: {saved.get('title', 'unfinished')}"


def _studies() -> list[Study]:
    """Return every study that can be opened, the oldest first."""
    studies = []
    for path in sorted(studies_folder().glob("*/study.json")):
        try:
            studies.append(Study.open(path.parent.name))
        except NbkitError:
            continue  # removed between the two looks
    return studies


def _lacking(question: Question, count: int, here: str) -> str:
    parts = (
        [f"{plural(question.gpus, 'GPU')} ({here})"] if count < question.gpus else []
    )
    return "; ".join([*parts, *([question.needs] if question.needs else [])])


def main(arguments: Sequence[str]) -> int:
    """Print every question, one block each; return the exit status."""
    if arguments:
        sys.stderr.write("usage: python -m nbkit.questions.sources\n")
        return 2
    table = sources_table()
    for row in table.rows:
        cells = zip(table.columns, row, strict=True)
        lines = [f"{name:13}  {cell or '–'}" for name, cell in cells]
        sys.stdout.write("\n".join(lines) + "\n\n")
    sys.stdout.write("\n".join(table.notes) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
