"""A comparison in a notebook: the ratio, what else is different, and the code."""

from __future__ import annotations

from nbkit.reproduction.differences import RunFacts, compare_arms
from nbkit.widgets.comparison import comparison_html


def facts(run_id: str, rate: float, code: str, **configuration: object) -> RunFacts:
    parts = {"configuration": configuration}
    return RunFacts(run_id, rate, parts, {"source/cell.py": code})


def test_the_ratio_stands_above_the_differences_and_the_code_is_folded():
    a = facts("run-a", 200.0, "x = 1\nprint('<b>')\n", precision="bf16", tags="t" * 500)
    b = facts("run-b", 100.0, "x = 2\nprint('<b>')\n", precision="fp32", tags="u" * 500)

    comparison = compare_arms([a], [b])
    page = comparison_html(comparison)

    assert page.index(comparison.sentence) < page.index("precision")
    assert ">bf16</td>" in page
    # Twice folded: both long values, and the code.
    assert page.count("<details>") == 3
    assert "t" * 60 + "…</summary>" in page
    assert "run-a/source/cell.py" in comparison.code_diff
    assert ">-x = 1</span>" in page
    assert ">+x = 2</span>" in page
    assert "<b>" not in page


def test_equal_runs_are_said_to_be_equal():
    a, b = (facts(name, 100.0, "x = 1", precision="bf16") for name in ("a", "b"))

    page = comparison_html(compare_arms([a], [b]))

    assert "No other recorded value differs." in page
    assert "<details>" not in page
