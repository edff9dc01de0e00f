"""Every report is what is stored of it: numbers, cells, charts, sentences."""

from __future__ import annotations

import lzma
import shutil
import textwrap

import pytest

from nbkit.reports.renderer import first_screen
from tests.golden import stored
from tests.golden.accept import main
from tests.golden.cases import CASES
from tests.golden.reports import cases, current_report
from tests.golden.studies import FOLDER, STORED, build

# Some cases show what a report makes of a training that did not stay finite.
pytestmark = pytest.mark.nonfinite

QUESTIONS = (
    *("arms", "chexnet", "concurrent_jobs", "inference", "input_pipeline", "machines"),
    *("precision", "scaling", "storage", "time_to_accuracy"),
)

FIRST_SCREENS = {f"{one}/gpu" for one in QUESTIONS} - {"arms/gpu", "machines/gpu"}
"""What is seen first of these has a place in a terminal of these lines and columns."""
LINES, COLUMNS = 24, 100


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Return a folder for images to plan with."""
    return tmp_path_factory.mktemp("data").resolve()


@pytest.mark.parametrize("case", cases())
def test_a_report_is_as_it_is_stored(case, tmp_path, data):
    seen = []
    made = current_report(case, tmp_path.resolve(), data, seen)
    before = stored.read(case)

    found = {
        name: [*stored.differences(before[name], made[name])] for name in stored.FILES
    }
    texts = [stored.describe(case, name, some) for name, some in found.items() if some]
    if texts:
        pytest.fail("\n\n".join(texts), pytrace=False)
    if case in FIRST_SCREENS:
        screen = "\n\n".join(first_screen(seen[0].to_dict()))
        lines = [textwrap.wrap(line, COLUMNS) or [""] for line in screen.splitlines()]
        assert sum(map(len, lines)) <= LINES, screen


def test_every_question_is_stored_on_gpus_and_on_cpus():
    assert {*cases()} >= {f"{one}/{on}" for one in QUESTIONS for on in ("gpu", "cpu")}


def test_every_case_has_its_bundle_and_none_is_large():
    paths = {
        path.parent.relative_to(FOLDER).as_posix(): path
        for path in FOLDER.glob(f"*/*/{STORED}")
    }

    assert paths.keys() == CASES.keys()
    assert max(path.stat().st_size for path in paths.values()) < 40_000


def test_a_case_that_is_built_twice_has_the_same_bytes(tmp_path, data):
    folders = [tmp_path / name for name in ("one", "other")]
    for folder in folders:
        folder.mkdir()

    one, other = (build("arms/cpu", CASES["arms/cpu"], f, data) for f in folders)

    assert one == other
    assert str(tmp_path).encode() not in lzma.decompress(one)


@pytest.fixture
def case(tmp_path, monkeypatch):
    """Return a case whose files may be changed: they lie in a folder of this test."""
    name = "arms/one_repeat"
    shutil.copytree(FOLDER / name, tmp_path / name)
    for module in ("reports", "stored"):
        monkeypatch.setattr(f"tests.golden.{module}.FOLDER", tmp_path)
    return name


def change(case, name, place, value):
    """Change one value of a file."""
    values = inner = stored.read(case)[name]
    *outer, last = place
    for key in outer:
        inner = inner[key]
    inner[last] = value
    stored.write(case, name, values)


def test_accept_words_alone(case):
    before = stored.read(case)
    change(case, "words.txt", ("answer", 0), "Another answer.")

    assert main([case], numbers=False) == 0

    assert stored.read(case) == before


def test_accept_numbers_only_where_they_should_change(case, capsys):
    before = stored.read(case)
    column = before["tables.csv"][0][0].index("images_per_second")
    change(case, "tables.csv", (0, 3, column), "1.5")
    change(case, "result.json", ("result", "conditions", "seed"), 1)
    change(case, "words.txt", ("answer", 0), "Another answer.")

    assert main([case], numbers=False) == 1
    said = capsys.readouterr().err
    assert "numbers have changed in arms/one_repeat." in said
    assert '(images_per_second of small again)\n    stored: "1.5"' in said
    assert "  result.conditions.seed\n    stored: 1\n    now:    0" in said
    assert stored.read(case)["words.txt"]["answer"][0] == "Another answer."

    assert main([case], numbers=True) == 0
    assert stored.read(case) == before


def test_accept_a_file_that_is_missing(case):
    before = stored.read(case)
    for name in stored.FILES:
        (stored.FOLDER / case / name).unlink()

    assert main([case], numbers=True) == 0
    assert stored.read(case) == before


def test_read_what_was_written(case):
    values = {
        "result.json": {"result": {"a": [1.5, None], "b": {"c": []}}, "plan": {}},
        "tables.csv": [[["x", "y"], ["", '1, "2"']], [[""]]],
        "charts.csv": [[["bar of rows 0", "x a"]], [["no rows"]]],
        "words.txt": {"title": ["A?", "  B."], "next": ["C\\nD"]},
    }
    for name in stored.FILES:
        stored.write(case, name, values[name])

    assert stored.read(case) == values


def test_rounding_is_no_difference_and_all_else_is():
    def differing(one, other):
        return [tuple(found) for found in stored.differences(one, other)]

    assert (
        differing({"a": [0.1 + 0.2, "0.30000000000000004"]}, {"a": [0.3, "0.3"]}) == []
    )
    assert differing({"a": [1.0]}, {"a": [1.0000001]}) == [("a[0]", 1.0, 1.0000001)]
    assert differing(["1,000"], ["1,001"]) == [("[0]", "1,000", "1,001")]
    assert differing({"a": 1}, {"a": True}) == [("a", 1, True)]
    assert differing([1], [1, 2]) == [("[1]", "(nothing)", 2)]
    assert differing({"a": None}, {}) == [("a", None, "(nothing)")]
