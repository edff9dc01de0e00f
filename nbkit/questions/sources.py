"""What the notebooks cover, and what was run here.

Printed by ``python -m nbkit.questions.sources``.

The reports that nbkit makes reproducible asked the questions; each has a notebook and
one command. What became of it is asked of the store: the newest study of that kind that
came to its end, else the newest.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from nbkit.errors import NbkitError
from nbkit.launch.devices.choice import visible_gpus
from nbkit.reports.parts import Table
from nbkit.store.paths import reports_folder, studies_folder
from nbkit.store.record import read_json
from nbkit.studies.parameters import papermill_command
from nbkit.studies.study import Study

_FILE = resources.files("nbkit.questions") / "sources.json"

_WITHOUT_STUDY = {
    "interactive": "a tour: leaves runs and no study",
}
"""By notebook, why the store has no study of it."""


@dataclass(frozen=True)
class Question:
    """What one notebook answers."""

    notebook: str
    reports: tuple[str, ...]
    """Short names of the reports that asked it."""
    question: str
    parameters: Mapping[str, Any]
    """Of the command that runs it as the reports would; those left out are open."""
    gpus: int
    """That the reports' own figures need at the least."""
    needs: str
    """What else they need; empty if nothing."""

    @property
    def command(self) -> str:
        """The one command that runs it."""
        return papermill_command(self.notebook, self.parameters)


def questions() -> list[Question]:
    """Return what the notebooks answer, in the order of their table."""
    return [
        Question(
            notebook=one["notebook"],
            reports=tuple(one["from"]),
            question=one["question"],
            parameters=one["parameters"],
            gpus=one["gpus"],
            needs=one["needs"],
        )
        for one in _content()["questions"]
    ]


def reports() -> dict[str, str]:
    """Return the titles of the reports, by their short names."""
    return _content()["reports"]


def sources_table() -> Table:
    """Return every question with its command and what became of it in this store."""
    count, studies = len(visible_gpus("auto")), _studies()
    here = f"{count} GPU{'' if count == 1 else 's'}"
    return Table(
        "What the notebooks cover",
        ["notebook", "from", "question", "command", "in this store", "not here"],
        [
            [
                one.notebook,
                ", ".join(one.reports),
                one.question,
                one.command,
                state(one.notebook, studies),
                _lacking(one, count, here) or None,
            ]
            for one in questions()
        ],
        [
            *(f"{name}: {title}." for name, title in reports().items()),
            "Not here: what the reports' own figures need and this machine lacks or "
            "does not report. Without it, a notebook runs on what is available, and "
            "says so.",
        ],
    )


def state(notebook: str, studies: Sequence[Study] | None = None) -> str:
    """Return what the newest finished study of a notebook in the store says."""
    if notebook in _WITHOUT_STUDY:
        return _WITHOUT_STUDY[notebook]
    if notebook == "machines":
        return _newest_comparison()
    every = _studies() if studies is None else studies
    kind = [one for one in every if one.kind == notebook]
    if not kind:
        return "never run here"
    # An aborted start does not undo what was measured before.
    newest = next((one for one in reversed(kind) if not one.missing), kind[-1])
    runs = [run for many in newest.runs_by_arm().values() for run in many]
    if not runs:
        return f"no run finished: {newest.study_id}"
    done = f"{len(runs)} of {len(newest.order)} runs"
    device = next((n for run in runs if (n := run.summary.device_name)), None)
    ended = max(run.record["time"]["ended"] or "" for run in runs)
    on = "CPU, functional" if _on_cpus(runs) else "GPU"
    word = "unfinished" if newest.missing else "finished"
    return f"{word} {ended[:16]}Z on {device or 'unknown'} ({on}): {done}"


def _on_cpus(runs: Sequence[Any]) -> bool:
    return all(run.summary.device_type == "cpu" for run in runs)


def _newest_comparison() -> str:
    """Return when bundles were last compared: those reports belong to no study."""
    found = sorted(reports_folder().glob("*-machines-*/result.json"))
    if not found:
        return "never run here"
    saved = read_json(found[-1]) or {}
    return f"report {found[-1].parent.name}: {saved.get('title', 'unfinished')}"


def _studies() -> list[Study]:
    """Return every study that can be opened, the oldest first."""
    found = []
    for path in sorted(studies_folder().glob("*/study.json")):
        try:
            found.append(Study.open(path.parent.name))
        except NbkitError:
            continue  # removed between the two looks
    return found


def _lacking(one: Question, count: int, here: str) -> str:
    plural = "" if one.gpus == 1 else "s"
    parts = [f"{one.gpus} GPU{plural} ({here})"] if count < one.gpus else []
    return "; ".join([*parts, *([one.needs] if one.needs else [])])


def _content() -> dict[str, Any]:
    return json.loads(_FILE.read_text(encoding="utf-8"))


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
