"""What is made of a stored study, by the file in which it is stored."""

from __future__ import annotations

import csv
import io
import json
import lzma
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from nbkit.questions import machines
from nbkit.questions.study_report import make
from nbkit.reports.renderer import Report
from nbkit.store.bundle_import import import_bundle
from nbkit.store.record import read_json
from nbkit.studies.study import Study
from tests.golden.hosts import A100_NODE, CPU_HOST
from tests.golden.plans import plan_of
from tests.golden.planted import Planted, planted
from tests.golden.studies import FOLDER, STORED

__all__ = ["BUNDLES", "cases", "current_report", "imported"]

BUNDLES = "bundles.json"
"""Of a case of machines: the cases whose bundles it compares; None is those that come
with nbkit."""

_TEXTS = {
    *("action", "bottleneck", "change", "claim", "conclusion", "conditions", "caveat"),
    *("evidence", "how", "interval", "needed", "reason", "sentence", "source"),
    *("statistic", "statistic_detail", "subject", "suspicions", "title", "unknown"),
    *("where", "why"),
}
"""Names in a result of what a person reads."""

_PLANNED = {"gpu": A100_NODE, "cpu": CPU_HOST}
"""Cases whose parameters are planned anew, and on what."""


def cases() -> list[str]:
    """Return every stored case, such as ``scaling/gpu``."""
    found = [*FOLDER.glob(f"*/*/{STORED}"), *FOLDER.glob(f"*/*/{BUNDLES}")]
    return sorted(path.parent.relative_to(FOLDER).as_posix() for path in found)


def current_report(
    case: str, folder: Path, data: Path, seen: list[Report] | None = None
) -> dict[str, Any]:
    """Return what is made of a case now, by file; append the report to what is seen."""
    question, name = case.split("/")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NBKIT_HOME", str(folder / "store"))
        if question == "machines":
            report, planned = _of_machines(case, name, folder, data)
        else:
            study = imported(case, folder)
            report, planned = make(study), None
            if name in _PLANNED and question != "arms":
                content = read_json(study.paths.study) or {}
                with planted(_PLANNED[name], data) as here:
                    planned = plan_of(here, question, _chosen(question, content))
    if seen is not None:
        seen.append(report)
    found = json.dumps(_files(report, *(planned or (None, []))))
    # A next step names the files that are to be read again.
    return json.loads(Planted(folder).back(found))


def imported(case: str, folder: Path) -> Study:
    """Return the stored study of a case, imported into the current store."""
    study_id = import_bundle(_unpacked(case, folder)).study_id
    assert study_id is not None
    return Study.open(study_id)


def _unpacked(case: str, folder: Path) -> Path:
    path = folder / f"{case.replace('/', '-')}.zip"
    path.write_bytes(lzma.decompress((FOLDER / case / STORED).read_bytes()))
    return path


def _of_machines(
    case: str, name: str, folder: Path, data: Path
) -> tuple[Report, tuple[Any, Any] | None]:
    """Return the report on two machines, and what would be measured here."""
    named = json.loads((FOLDER / case / BUNDLES).read_text())
    chosen = {}
    if named is not None:
        paths = [_unpacked(one, folder) for one in named]
        chosen = {"bundles": [str(path) for path in paths]}
    here = Planted(folder)
    plan = machines.plan(here.parameters("machines", chosen))
    report = machines.result(plan, None).report()
    if name not in _PLANNED:
        return report, None
    with planted(_PLANNED[name], data) as there:
        return report, plan_of(there, "machines", {**chosen, "measure": True})


def _chosen(question: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return with which parameters a study's question is planned anew.

    With the notebook's own: of what was chosen only on what, and of which images.
    """
    parameter_sources, parameters = content["parameter_sources"], content["parameters"]
    # An epoch of the usual batches has more images than a test can make.
    names = parameters if question == "input_pipeline" else ("data", "device")
    return {
        name: parameters[name]
        for name in names
        if parameter_sources.get(name, "default") != "default"
    }


# Apart


def _files(report: Report, plan: Any, plan_notes: list[str]) -> dict[str, Any]:
    values = json.loads(json.dumps(report.to_dict()["result"]))
    of_result: dict[str, list[str]] = {}
    result = {"result": _without_texts(values, "", of_result)}
    charts = [figure.chart for figure in report.figures]
    sources = [f"{one.text} {one.url or ''}".strip() for one in report.sources]
    texts = {
        "title": [report.title],
        "answer": [report.answer],
        "conditions": [report.conditions],
        "notes": report.notes,
        **{
            f"table {n}": [one.caption, *one.notes] for n, one in _from_1(report.tables)
        },
        **{f"chart {n}": _titles(one) for n, one in _from_1(report.figures)},
        "method": [text for text in report.method if not _is_of_import(text)],
        "sources": sources,
        "next": [report.next_step],
        **{f"result, {name}": found for name, found in of_result.items()},
        "plan": plan_notes,
    }
    lines = {
        name: [line for text in some for line in _sentences(text)]
        for name, some in texts.items()
    }
    return {
        "result.json": result if plan is None else {**result, "plan": plan},
        "tables.csv": [[*csv.reader(io.StringIO(it.to_csv()))] for it in report.tables],
        "charts.csv": [block for chart in charts for block in _plotted(chart)],
        "words.txt": {name: some for name, some in lines.items() if some},
    }


def _from_1(values: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    return enumerate(values, start=1)


def _sentences(text: str | None) -> list[str]:
    """Return a line for each sentence of a text; all but the first are indented."""
    line = (text or "").replace("\n", "\\n")
    return re.sub(r"(?<=[.?!]) (?=[A-Z])", "\n  ", line).splitlines()


def _is_of_import(text: str) -> bool:
    """Return whether a sentence has the moment at which this test imported."""
    return text.startswith("Imported on ")


def _without_texts(value: Any, key: str, texts: dict[str, list[str]]) -> Any:
    """Return JSON values without what a person reads, which is put into `texts`.

    There each text stands once, under its name: findings of equal runs are alike.
    """
    if isinstance(value, dict):
        kept = {k: _without_texts(v, k, texts) for k, v in value.items()}
        return {k: v for k, v in kept.items() if v is not _TEXT}
    if isinstance(value, list):
        each = [_without_texts(one, key, texts) for one in value]
        return [one for one in each if one is not _TEXT]
    if isinstance(value, str) and key in _TEXTS:
        known = texts.setdefault(key, [])
        if value not in known:
            known.append(value)
        return _TEXT
    return value


_TEXT = object()


def _plotted(chart: Any) -> list[list[list[str]]]:
    """Return which fields a chart's marks draw of which rows, and these rows.

    Rows that several marks share stand once.
    """
    marks: list[list[str]] = []
    rows: list[Any] = []
    for part, data in _parts(chart, None):
        values = [] if data is None else data.values
        if values not in rows:
            rows.append(values)
        encoding = part.encoding.to_dict(validate=False, context={})
        drawn = [
            f"{channel} {one.get('field', one.get('aggregate', ''))}"
            for channel, one in sorted(encoding.items())
            if isinstance(one, dict) and "field" in one
        ]
        mark = part.mark if isinstance(part.mark, str) else part.mark.type
        marks.append([f"{mark} of rows {rows.index(values)}", *drawn])
    return [marks, *map(_cells, rows)]


def _cells(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Return rows of a chart as those of a CSV, their fields first."""
    fields = [*dict.fromkeys(field for row in rows for field in row)] or ["no rows"]
    return [fields, *([_cell(row.get(field, "")) for field in fields] for row in rows)]


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _parts(chart: Any, data: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every chart of one mark, with the data that it draws."""
    own = getattr(chart, "data", None)
    data = own if hasattr(own, "values") else data
    for name in ("layer", "hconcat", "vconcat", "concat"):
        parts = getattr(chart, name, None)
        if isinstance(parts, list):
            for part in parts:
                yield from _parts(part, data)
            return
    yield chart, data


def _titles(figure: Any) -> list[str]:
    """Return a figure's caption, its chart's title and what stands below that."""
    title = getattr(figure.chart, "title", None)
    found = [getattr(title, "text", title), getattr(title, "subtitle", None)]
    texts = [one if isinstance(one, list) else [one] for one in found]
    below = [one for some in texts for one in some if isinstance(one, str)]
    return [figure.caption, *below]
