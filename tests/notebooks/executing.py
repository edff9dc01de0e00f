"""Plain papermill, and what it leaves behind."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook

import nbkit
from nbkit import registry
from nbkit.reports.renderer import REPORT_MIME
from nbkit.studies.parameters import Parameters, check_parameters

UNLIMITED = ("-p", "minutes", "0")
"""Parameters of a notebook that measures all of its plan, however busy the CPUs are."""

QUICK = ("-p", "device", "cpu", "-p", "steps", "4", "-p", "repeats", "1", *UNLIMITED)
"""Parameters of a notebook that two busy CPUs execute in a moment."""


TAGS = ("parameters", "injected-parameters")
"""Of the cells that declare parameters and that papermill adds."""


def assert_answer(report: dict[str, Any], start: str, *parts: str) -> None:
    """Check how an answer begins, and what it has.

    Where others compute, as other tests do, runs cannot support one, and it says so.
    The answers themselves are in tests/golden.
    """
    answer, starts = report["answer"], (start,)
    if report["result"].get("caveats"):
        starts, parts = ("Inconclusive: ", "Rates and times are inconclusive: "), ()
    assert answer.startswith(starts), answer
    assert [part for part in parts if part not in answer] == [], answer


def papermill_argv(notebook: str, output: Path, *parameters: str) -> list[str]:
    """Return the command line of a user who executes a canonical notebook."""
    source = str(nbkit.notebook(notebook))
    return [sys.executable, "-m", "papermill", source, str(output), *parameters]


@dataclass(frozen=True)
class Executed:
    """A notebook that papermill wrote."""

    path: Path
    returncode: int
    terminal: str

    @property
    def cells(self) -> list[Any]:
        """Code cells with their outputs."""
        cells = nbformat.read(self.path, as_version=4).cells
        return [cell for cell in cells if cell.cell_type == "code"]

    @property
    def outputs(self) -> list[Any]:
        """Every output, in order."""
        return [output for cell in self.cells for output in cell.outputs]

    @property
    def text(self) -> str:
        """Everything a reader of the plain text sees."""
        return "\n".join(map(_text, self.outputs))

    def assert_complete(self) -> None:
        """Check that it came to its end, without a warning and without a widget."""
        assert self.returncode == 0, f"{self.terminal}\n{self.text}"
        assert not [one for one in self.outputs if one.get("name") == "stderr"]
        kinds = {kind for output in self.outputs for kind in output.get("data", {})}
        assert "application/vnd.jupyter.widget-view+json" not in kinds

    @property
    def reported(self) -> str:
        """Everything that its report says, as one text."""
        return json.dumps(self.report, ensure_ascii=False)

    @property
    def answer(self) -> dict[str, Any]:
        """What the last cell shows of a report, with a chart if it has an answer."""
        *charts, answer = (output.data for output in self.cells[-1].outputs)
        has_answer = not answer[REPORT_MIME]["result"].get("caveats")
        kinds = {"application/vnd.vegalite.v5+json", "image/png"}
        assert [kinds <= set(chart) for chart in charts] == [True] * has_answer
        return answer

    @property
    def report(self) -> dict[str, Any]:
        """The report that the notebook carries."""
        return self.answer[REPORT_MIME]


def execute(notebook: str, output: Path, *parameters: str) -> Executed:
    """Execute a canonical notebook to its end, whatever that is."""
    done = subprocess.run(
        papermill_argv(notebook, output, *parameters),
        cwd=output.parent,
        capture_output=True,
        text=True,
    )
    return Executed(output, done.returncode, done.stdout + done.stderr)


def as_papermill_gives_them(notebook: str, **texts: str) -> Parameters:
    """Return a notebook's parameters as if papermill executed it, in this process."""
    source = load_notebook_node(str(nbkit.notebook(notebook)))
    cells = parameterize_notebook(source, texts).cells
    ran = [cell.source for cell in cells if {*TAGS} & {*cell.metadata.get("tags", [])}]
    namespace: dict[str, Any] = {}
    exec("\n".join(ran), namespace)
    question = notebook if notebook in registry.names("questions") else None
    return check_parameters(ran, namespace, question)


def _text(output: Any) -> str:
    if output.output_type == "stream":
        return output.text
    if output.output_type == "error":
        return f"{output.ename}: {output.evalue}"
    return output.data.get("text/plain", "")
