"""Every report is what is stored of it: numbers, cells, charts, sentences."""

from __future__ import annotations

import lzma
import shutil

import pytest

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


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Return a folder for images to plan with."""
    return tmp_path_factory.mktemp("data").resolve()


@pytest.mark.parametrize("case", cases())
def test_a_report_is_as_it_is_stored(case, tmp_path, data):
    made, before = current_report(case, tmp_path.resolve(), data), stored.read(case)

    found = {
        part: [*stored.differences(before[part], made[part])] for part in stored.PARTS
    }
    texts = [stored.describe(case, part, some) for part, some in found.items() if some]
    if texts:
        pytest.fail("\n\n".join(texts), pytrace=False)


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


def change(case, part, name, value):
    values = stored.read(case)[part]
    values[name] = value
    stored.write(case, part, values)


def test_words_are_accepted_and_nothing_else_is_written(case):
    before = stored.read(case)
    change(case, "words", "answer", "Another answer.")

    assert main([case], numbers=False) == 0

    assert stored.read(case) == before


def test_changed_numbers_are_refused_with_their_case_unless_they_should_be(
    case, capsys
):
    before = stored.read(case)
    tables = stored.read(case)["numbers"]["tables"]
    column = tables[0][0].index("images_per_second")
    tables[0][3][column] = "1.5"
    change(case, "numbers", "tables", tables)
    change(case, "words", "answer", "Another answer.")

    assert main([case], numbers=False) == 1
    said = capsys.readouterr().err
    assert "numbers have changed in arms/one_repeat" in said
    assert '(images_per_second of small again)\n    stored: "1.5"' in said
    assert stored.read(case)["words"]["answer"] == "Another answer."

    assert main([case], numbers=True) == 0
    assert stored.read(case) == before


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
