"""The machines notebook under plain papermill, from its parameters to its report."""

from __future__ import annotations

import json
from pathlib import Path

from nbkit.reports.headline import headline
from nbkit.store.paths import runs_folder, studies_folder
from tests.notebooks.executing import execute


def test_without_parameters_the_example_and_published_rows_are_compared(tmp_path):
    done = execute("machines", tmp_path / "out.ipynb")

    done.assert_complete()
    assert "No bundles given" in done.text
    assert "two-cpu-vm / one-cpu-vm" in done.text
    assert "virtualization" in done.reported
    text = done.answer["text/plain"]
    assert text.startswith("CPU smoke test: two-cpu-vm / one-cpu-vm: ")
    assert "Published: A100 / V100 = " in text
    report = done.report
    assert report["title"].startswith("Machines: ")
    assert report["result"]["is_smoke_test"] is True
    assert json.loads(Path(report["result_file"]).read_text())["answer"]
    assert "data:image/png;base64," in Path(report["page"]).read_text()
    assert report["answer"] in headline(done.path)
    assert not runs_folder().exists()
    assert not studies_folder().exists()
