"""Words of the list are found wherever a person reads, and right uses are passed."""

from __future__ import annotations

import json
import tomllib

import pytest

from tests.house.words import LIST, Words, excesses, findings

WORDS = Words(tomllib.loads(LIST.read_text()))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("It is told here.", "told"),
        ("The run goes\non.", "goes on"),
        ("What is no folder", "is no"),
        ("Anew.", "Anew"),
        ("a process of its own", "of its own"),
        ("it waits behind two runs", "behind"),
    ],
)
def test_a_word_of_the_list_is_found_in_any_case_and_over_lines(text, word):
    [(_, found, better)] = WORDS.found(text)

    assert found == word
    assert better


@pytest.mark.parametrize(
    "text",
    [
        "a server behind a reverse proxy",
        "nothing was left behind",
        "there is no GPU",
        "the run is no longer in the queue",
        "the amendment was untold",
    ],
)
def test_a_right_use_is_passed(text):
    assert list(WORDS.found(text)) == []


def test_every_right_use_is_of_a_word_of_the_list_and_has_a_reason():
    content = tomllib.loads(LIST.read_text())

    assert all(entry["reason"] for entry in content["right"])
    assert all(
        any(word in entry["use"] for word in content["words"])
        for entry in content["right"]
    )


PYTHON = '''"""Told."""

NAMES = {
    "a": f"{told} is no "
    f"{behind}"
}
told = 1  # anew,
# at
# once
def behind():
    """One line.

    It lies here.
    """
    return "in " "vain"
'''

SCRIPT = """\
// Anew, and goes
// on.
/* hence */
const told = `behind ${behind ? `anew ${told}` : 'at once'} whom`;
const text = (
  <p title="in vain">
    nobody
    {told}
  </p>
);
"""


def places(root):
    return sorted((one.area, one.place, one.word) for one in findings(root, WORDS))


def test_strings_documentation_and_names_are_distinguished_in_python(tmp_path):
    folder = tmp_path / "nbkit/launch"
    folder.mkdir(parents=True)
    (folder / "one.py").write_text(PYTHON)

    assert places(tmp_path) == [
        ("launch", "nbkit/launch/one.py:1", "Told"),
        ("launch", "nbkit/launch/one.py:13", "lies"),
        ("launch", "nbkit/launch/one.py:7", "anew"),
        ("launch", "nbkit/launch/one.py:8", "at once"),
        ("strings", "nbkit/launch/one.py:15", "in vain"),
        ("strings", "nbkit/launch/one.py:4", "is no"),
    ]


def test_strings_templates_and_text_of_a_page_are_read_in_typescript(tmp_path):
    folder = tmp_path / "labextension/src"
    folder.mkdir(parents=True)
    (folder / "one.tsx").write_text(SCRIPT)

    assert places(tmp_path) == [
        ("labextension", "labextension/src/one.tsx:1", "Anew"),
        ("labextension", "labextension/src/one.tsx:1", "goes on"),
        ("labextension", "labextension/src/one.tsx:3", "hence"),
        ("strings", "labextension/src/one.tsx:4", "anew"),
        ("strings", "labextension/src/one.tsx:4", "at once"),
        ("strings", "labextension/src/one.tsx:4", "behind"),
        ("strings", "labextension/src/one.tsx:4", "whom"),
        ("strings", "labextension/src/one.tsx:6", "in vain"),
        ("strings", "labextension/src/one.tsx:7", "nobody"),
    ]


def test_pages_cells_and_values_of_json_are_read_with_their_lines(tmp_path):
    cells = [{"source": ["# A\n", "\n", "It lies here."]}, {"source": []}]
    cells += [{"source": ["x = 1\n", "y = 2  # anew"]}]
    for folder in ("notebooks", "nbkit/study", "labextension/schema"):
        (tmp_path / folder).mkdir(parents=True)
    notebook = json.dumps({"cells": cells}, indent=1)
    (tmp_path / "notebooks/one.ipynb").write_text(notebook)
    (tmp_path / "nbkit/study/README.md").write_text("# A\n\nIt goes\non.\n")
    (tmp_path / "README.md").write_text("Told.\n")
    schema = '{\n "told": "t",\n "title": "Told"\n}\n'
    (tmp_path / "labextension/schema/one.json").write_text(schema)

    lines = notebook.splitlines()
    here, again = (
        1 + next(number for number, line in enumerate(lines) if word in line)
        for word in ("lies", "anew")
    )
    assert set(places(tmp_path)) == {
        ("Markdown", "README.md:1", "Told"),
        ("Markdown", "nbkit/study/README.md:3", "goes on"),
        ("notebooks", f"notebooks/one.ipynb:{here}", "lies"),
        ("notebooks", f"notebooks/one.ipynb:{again}", "anew"),
        ("strings", "labextension/schema/one.json:3", "Told"),
    }


def test_what_is_over_its_limit_is_named_and_without_one_that_is_none():
    assert excesses({"launch": 3, "strings": 1}, {"launch": 3}) == [
        "strings: 1 words of the list, over 0"
    ]
    assert excesses({"launch": 4}, {"launch": 3}) == [
        "launch: 4 words of the list, over 3"
    ]
