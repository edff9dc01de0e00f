"""One report for notebooks, files and the terminal."""

from __future__ import annotations

import csv
import html
import io
import json
import re
import traceback
from dataclasses import replace
from html.parser import HTMLParser

import nbformat
import pytest

from nbkit.errors import StoreError
from nbkit.reports.bandwidth import Bandwidth
from nbkit.reports.headline import headline, main
from nbkit.reports.parts import escape
from nbkit.reports.renderer import REPORT_MIME, Note, Report, Source, Table
from nbkit.statistics import allreduce_timing
from nbkit.studies.stored_study import StoredStudy, resume_hint

TABLE = Table(
    "Measured <b>",
    ["arm", "images/s"],
    [["fp32, 1 GPU", "371.2"], ["a & b", None]],
    ["a < b"],
    {"images_per_second": [371.23, None]},
)
MESSAGE = {"message_bytes": 2**20, "world_size": 2, "times_seconds": [1e-3] * 3}
[FIGURE] = Bandwidth([allreduce_timing(MESSAGE)], 2, "cpu").figures
REPORT = Report(
    title="How fast?",
    answer="It is 371.2 images/s.",
    notes=["CPU, functional."],
    tables=[TABLE],
    figures=[FIGURE],
    method=["Median of three."],
    sources=[Source("A <paper>", "https://example.org/?a=1&b=2"), Source("A book")],
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


def test_table_to_html_escapes():
    page = TABLE.to_html()

    assert ">Measured &lt;b&gt;</caption>" in page
    assert ">a &amp; b</td>" in page
    assert ">–</td>" in page
    assert "<p>a &lt; b</p>" in page


def test_table_to_html_alignment():
    rows = [["a", "nbkit", "1.5", None], ["b", None, "baseline", "–"]]

    page = Table("t", ["arm", "source", "speed", "n"], rows).to_html()

    assert page.count('style="text-align: left">nbkit<') == 1
    for name, side in (("source", "left"), ("speed", "right"), ("n", "right")):
        assert f'<th scope="col" style="text-align: {side}">{name}</th>' in page
    assert 'style="text-align: right; white-space: nowrap">baseline<' in page


@pytest.mark.parametrize(
    ("cell", "is_number"),
    [
        *((one, True) for one in ("1,582", "+0.2 %", "−3", "< 0.01", "≥5", "(5)")),
        *((one, False) for one in ("A100: 1,582", "cold", "over 9", "~/data", "-p")),
    ],
)
def test_table_to_html_number_cells(cell, is_number):
    page = Table("t", ["a", "b"], [["a", cell]]).to_html()

    assert (f'nowrap">{escape(cell)}<' in page) is is_number


def test_table_to_html_accessible():
    opened = '<div class="wide" tabindex="0" role="region" aria-label="Measured &lt;b'

    assert TABLE.to_html().startswith(opened)
    assert TABLE.to_html(with_notes=False) in REPORT.to_html()


def test_figure_alt_text(tmp_path):
    """nbconvert's classic template reads it there; Lab draws the chart itself."""
    from nbconvert.exporters import HTMLExporter

    data, metadata = FIGURE._repr_mimebundle_()
    output = nbformat.v4.new_output("display_data", data=data, metadata=metadata)
    cell = nbformat.v4.new_code_cell(outputs=[output])
    notebook = nbformat.v4.new_notebook(cells=[cell])

    page, _ = HTMLExporter(template_name="classic").from_notebook_node(notebook)

    assert f'alt="{FIGURE.caption}"' in page


def test_table_to_text_aligned():
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


def test_table_to_text_max_width():
    text = TABLE.to_text(max_width=12)

    assert "371.2" not in text
    assert "(1 more column in the report)" in text
    assert TABLE.to_text(max_width=25) == TABLE.to_text()


def test_note_to_html():
    assert Note(["a < b"]).to_html() == "<p>a &lt; b</p>"
    assert Note(["one", "two"]).to_html() == "<ul><li>one</li><li>two</li></ul>"


class _Page(HTMLParser):
    """What a page loads, and where it leads."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        for name, value in attrs:
            if name in ("src", "srcset", "data", "poster", "background"):
                self.loaded.append(value)
            if name == "href":
                (self.links if tag == "a" else self.loaded).append(value)


def test_page_loads_nothing():
    page = REPORT.to_html()

    found = _Page(page)
    assert found.tags.isdisjoint({"script", "link", "iframe", "object", "base"})
    assert len(found.loaded) == 1
    assert found.loaded[0].startswith("data:image/png;base64,")
    assert found.links == ["https://example.org/?a=1&b=2"]
    style = page.partition("<style>")[2].partition("</style>")[0]
    assert "url(" not in style
    assert "@import" not in style
    parts = ("How fast?", "It is 371.2", "CPU, functional.", "Median of three.")
    for part in (*parts, "A &lt;paper&gt;", "A book", "try more GPUs"):
        assert part in page


@pytest.mark.parametrize(
    ("said", "blocks"),
    [
        ("lower learning_rate", ["<p>lower learning_rate</p>"]),
        (
            'on 8 GPUs: papermill a.ipynb out.ipynb -p x \'{"a": "b; c <d"}\'',
            [
                "<p>on 8 GPUs:</p>",
                "<pre><code>papermill a.ipynb out.ipynb -p x "
                "&#x27;{&quot;a&quot;: &quot;b; c &lt;d&quot;}&#x27;</code></pre>",
            ],
        ),
        (
            "nbkit.Study.open('s').resume() continues the study",
            [
                "<pre><code>nbkit.Study.open(&#x27;s&#x27;).resume()</code></pre>",
                "<p>continues the study</p>",
            ],
        ),
        (
            "`nbkit try a.py --metric x -- ...` continues the study",
            [
                "<pre><code>nbkit try a.py --metric x -- ...</code></pre>",
                "<p>continues the study</p>",
            ],
        ),
    ],
    ids=["prose", "a command", "Python", "a command in quotes"],
)
def test_next_step_commands(said, blocks, tmp_path):
    report = replace(REPORT, next_step=said, figures=[])

    page = report.to_html()
    shown = report.save(tmp_path).bundle()["text/html"]

    assert f"<h2>Next</h2>{''.join(blocks)}" in page
    # In a notebook the first sentence begins with a word more.
    for block in blocks:
        assert block.removeprefix("<p>") in shown


def test_page_control_characters():
    table = Table("a\x1b[2J", ["b\u202e"], [["c\x07"]])

    page = Report("t\x1b", "d\x1b", notes=["e\u202e"], tables=[table]).to_html()

    assert not set(page) & set("\x1b\x07\u202e")
    for shown in ("t\\x1b", "d\\x1b", "e\\u202e", "a\\x1b[2J", "b\\u202e", "c\\x07"):
        assert shown in page


def test_source_to_html_other_scheme():
    source = Source("odd", "javascript:alert(1)")

    assert source.to_html() == "odd, javascript:alert(1)"


def test_table_to_csv():
    table = replace(TABLE, rows=[['a "b", c', "1,234.5"], ["–\nd", None]])

    text = table.to_csv()

    assert text.splitlines()[0] == "arm,images/s,images_per_second"
    assert text.count("\r\n") == 3
    assert list(csv.reader(io.StringIO(text, newline="")))[1:] == [
        ['a "b", c', "1,234.5", "371.23"],
        ["–\nd", "", ""],
    ]


def test_save_files(tmp_path):
    report = replace(REPORT, tables=[TABLE, TABLE])

    saved = report.save(tmp_path / "new" / "folder")

    [picture] = saved.figures
    assert picture.name == "all-reduce-bus-bandwidth-by-message-size.png"
    assert picture.read_bytes() == FIGURE.png
    assert [path.name for path in saved.tables] == [
        "measured-b.csv",
        "measured-b-2.csv",
    ]
    for path in saved.tables:
        assert path.read_bytes().decode() == TABLE.to_csv()
    files = json.loads(saved.result.read_text())["files"]
    assert {str(saved.page.parent / name) for name in files} == {
        str(path) for path in (*saved.figures, *saved.tables, saved.page)
    }
    assert f"{saved.result}, figures/*.png, tables/*.csv\n" in repr(saved)


def test_save_replaces_earlier_files(tmp_path):
    REPORT.save(tmp_path)
    own = tmp_path / "tables" / "own.csv"
    own.write_text("kept")

    saved = replace(REPORT, tables=[replace(TABLE, caption="New")], figures=[]).save(
        tmp_path
    )

    assert sorted(path.name for path in own.parent.iterdir()) == ["new.csv", "own.csv"]
    assert not (tmp_path / "figures").exists()
    assert saved.figures == ()


@pytest.mark.parametrize(
    "name", ["../kept.csv", "tables/../../kept.csv", "kept.csv", "tables/..", 3]
)
def test_save_foreign_file_names(tmp_path, name):
    kept = tmp_path / "kept.csv"
    kept.write_text("kept")
    folder = tmp_path / "a"
    saved = REPORT.save(folder)
    values = json.loads(saved.result.read_text())
    saved.result.write_text(json.dumps({**values, "files": [name]}))
    (folder / "kept.csv").write_text("kept")

    REPORT.save(folder)

    assert kept.exists()
    assert (folder / "kept.csv").exists()
    assert saved.tables[0].exists()


@pytest.mark.parametrize("content", ['{"mine": 1}', "[1]", "no JSON"])
def test_save_foreign_result(tmp_path, content):
    foreign = tmp_path / "result.json"
    foreign.write_text(content)

    with pytest.raises(StoreError):
        REPORT.save(tmp_path)

    assert foreign.read_text() == content
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


def test_save_undrawable_chart(tmp_path):
    saved = REPORT.save(tmp_path)
    before = {path: path.read_bytes() for path in (saved.page, saved.result)}

    with pytest.raises(AttributeError):
        replace(REPORT, answer="new", figures=[replace(FIGURE, chart=None)]).save(
            tmp_path
        )

    assert {path: path.read_bytes() for path in before} == before


def test_bundle_result(saved_notebook):
    output = json.loads(saved_notebook.read_text())["cells"][0]["outputs"][0]

    assert output["data"][REPORT_MIME]["result"] == {"rows": [1.5, None]}
    assert "It is 371.2 images/s." in "".join(output["data"]["text/html"])


def test_headline_first_screen(saved_notebook, tmp_path):
    text = headline(saved_notebook)

    assert text.startswith("It is 371.2 images/s.\n\nMeasured <b>\n")
    assert "fp32, 1 GPU     371.2" in text
    assert "\n- CPU, functional.\n" in text
    assert str(tmp_path / "report.html") in text
    assert str(saved_notebook) in text
    assert "try more GPUs" in text


def test_headline_unfinished_notebook(tmp_path, capsys):
    path = tmp_path / "out.ipynb"
    nbformat.write(nbformat.v4.new_notebook(), path)

    assert main([str(path)]) == 1
    told = capsys.readouterr().err
    assert "Run all cells of the notebook, or report the finished runs with" in told
    assert main([str(tmp_path / "none.ipynb")]) == 1
    assert main([]) == 2


def test_headline_interrupted_notebook(tmp_path):
    root = tmp_path / "20260101-000000-demo-ab12"
    root.mkdir()
    (root / "study.json").write_text('{"plan": null}')
    study = StoredStudy(root)
    (root / "study.json").write_text("{")  # it may be the file that has failed
    error = KeyboardInterrupt()
    error.add_note(resume_hint(study))
    shown = traceback.format_exception(error)
    output = nbformat.v4.new_output("error", ename="KeyboardInterrupt", traceback=shown)
    cell = nbformat.v4.new_code_cell("study.run()", outputs=[output])
    path = tmp_path / "out.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)

    with pytest.raises(StoreError, match="`nbkit report 20260101-000000-demo-ab12`"):
        headline(path)


def test_save_unwritable_folder(tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(StoreError, match="cannot be written"):
        REPORT.save(tmp_path / "file" / "folder")


def test_bundle_link_to_the_whole(tmp_path):
    saved = replace(REPORT, figures=[]).save(tmp_path / "a folder")

    page = (tmp_path / "a folder" / "report.html").as_uri()
    assert f'<a href="{page}">' in saved.bundle()["text/html"]
    shown = replace(saved, study_id="20260101-000000-s-bbbb").bundle()["text/html"]
    # What JupyterLab makes a command of, in an output that is trusted.
    [link] = re.findall(r"<a [^>]*>", shown)
    assert f'href="{page}"' in link
    attributes = dict(re.findall(r'(data-[\w-]+)="([^"]*)"', link))
    assert attributes["data-commandlinker-command"] == "nbkit:open-report"
    arguments = json.loads(html.unescape(attributes["data-commandlinker-args"]))
    assert arguments == {"id": "20260101-000000-s-bbbb"}
