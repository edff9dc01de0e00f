"""One report for notebooks, files and the terminal."""

from __future__ import annotations

import json

import nbformat
import pytest

from nbkit.errors import StoreError
from nbkit.study.headline import headline, main
from nbkit.study.report import REPORT_MIME, Note, Report, Table

TABLE = Table(
    "Measured <b>",
    ["arm", "images/s"],
    [["fp32, 1 GPU", "371.2"], ["a & b", None]],
    ["a < b"],
)
REPORT = Report(
    title="How fast?",
    answer="It is 371.2 images/s.",
    notes=["CPU, functional."],
    tables=[TABLE],
    result={"rows": [1.5, None]},
    next_step="try more GPUs",
)


@pytest.fixture
def saved_notebook(tmp_path):
    """Return a notebook whose last cell showed the report."""
    saved = REPORT.save(tmp_path)
    output = nbformat.v4.new_output("display_data", data=saved.bundle())
    cell = nbformat.v4.new_code_cell("report", outputs=[output])
    path = tmp_path / "out.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
    return path


def test_a_table_in_html_is_escaped_and_shows_unknown_as_a_dash():
    page = TABLE.to_html()

    assert ">Measured &lt;b&gt;</caption>" in page
    assert ">a &amp; b</td>" in page
    assert ">–</td>" in page
    assert "<p>a &lt; b</p>" in page


def test_a_table_in_text_has_aligned_columns():
    assert TABLE.to_text().splitlines() == [
        "Measured <b>",
        "",
        "arm          images/s",
        "---------------------",
        "fp32, 1 GPU     371.2",
        "a & b               –",
        "",
        "a < b",
    ]


def test_one_sentence_is_a_paragraph_and_several_are_a_list():
    assert Note(["a < b"]).to_html() == "<p>a &lt; b</p>"
    assert Note(["one", "two"]).to_html() == "<ul><li>one</li><li>two</li></ul>"


def test_the_page_needs_no_network(tmp_path):
    page = REPORT.save(tmp_path).page.read_text()

    assert "http://" not in page
    assert "https://" not in page
    assert "<script" not in page
    for part in ("How fast?", "It is 371.2", "CPU, functional.", "try more GPUs"):
        assert part in page


def test_the_result_is_written_beside_the_page(tmp_path):
    result = json.loads(REPORT.save(tmp_path).result.read_text())

    assert result["result"] == {"rows": [1.5, None]}
    assert result["tables"][0]["rows"][1] == ["a & b", None]


def test_a_saved_notebook_carries_the_result_alone(saved_notebook):
    output = json.loads(saved_notebook.read_text())["cells"][0]["outputs"][0]

    assert output["data"][REPORT_MIME]["result"] == {"rows": [1.5, None]}
    assert "It is 371.2 images/s." in "".join(output["data"]["text/html"])


def test_the_headline_has_table_answer_report_and_next_step(saved_notebook, tmp_path):
    text = headline(saved_notebook)

    assert "fp32, 1 GPU     371.2" in text
    assert "It is 371.2 images/s." in text
    assert str(tmp_path / "report.html") in text
    assert str(saved_notebook) in text
    assert "try more GPUs" in text


def test_the_headline_of_an_unfinished_notebook_says_so(tmp_path, capsys):
    path = tmp_path / "out.ipynb"
    nbformat.write(nbformat.v4.new_notebook(), path)

    assert main([str(path)]) == 1
    assert "run the notebook to its end" in capsys.readouterr().err
    assert main([str(tmp_path / "none.ipynb")]) == 1
    assert main([]) == 2


def test_a_report_that_cannot_be_written_says_what_to_do(tmp_path):
    with pytest.raises(StoreError, match="cannot be written"):
        REPORT.save(tmp_path / "none")
