"""The page beside the code: its example says what the code says."""

from __future__ import annotations

import doctest
from pathlib import Path

import nbkit.statistics
from nbkit.statistics import MINIMUM_RUNS, PRACTICAL_MARGIN
from tests.house.documents import blocks

PAGE = Path(nbkit.statistics.__file__).with_name("README.md").read_text()


def test_the_example_gives_the_numbers_that_the_page_shows():
    example = "".join(block.text for block in blocks(PAGE, "pycon"))
    test = doctest.DocTestParser().get_doctest(example, {}, "README.md", None, 0)

    said: list[str] = []
    found = doctest.DocTestRunner().run(test, out=said.append)

    assert found.attempted == 10
    assert found.failed == 0, "".join(said)


def test_the_page_has_the_numbers_of_the_code():
    warmup = nbkit.ExperimentConfig().warmup_steps

    assert MINIMUM_RUNS == 5
    assert "with five runs of each arm" in PAGE
    assert f"beyond {PRACTICAL_MARGIN * 100:g}%" in PAGE
    assert f"`warmup_steps` (default: {warmup})" in PAGE
