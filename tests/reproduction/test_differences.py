"""Two arms side by side: the ratio, and every recorded fact that differs."""

from __future__ import annotations

import pytest

from nbkit.errors import NotEnoughDataError
from nbkit.reproduction.differences import (
    Difference,
    RunFacts,
    compare_arms,
)


def facts(rate=100.0, run_id="r", **parts):
    return RunFacts(run_id, rate, parts)


def test_only_what_differs_is_listed_in_the_order_of_its_parts():
    a = facts(machine={"cpu_model": "X"}, configuration={"lr": 0.1, "model": "m"})
    b = facts(machine={"cpu_model": "Y"}, configuration={"lr": 0.2, "model": "m"})

    assert compare_arms([a], [b]).differences == (
        Difference("configuration", "lr", "0.1", "0.2"),
        Difference("machine", "cpu_model", "X", "Y"),
    )


def test_what_is_unknown_is_a_dash_and_nested_facts_have_dotted_names():
    a = facts(environment={"packages": {"torch": "2.9", "dali": None}})
    b = facts(environment={"packages": {"torch": "2.10", "dali": "1.50"}})

    assert compare_arms([a], [b]).differences == (
        Difference("environment", "packages.torch", "2.9", "2.10"),
        Difference("environment", "packages.dali", "–", "1.50"),
    )


def test_values_that_vary_inside_of_an_arm_are_all_named():
    a = [facts(configuration={"seed": seed}) for seed in (1, 2, 2)]
    b = [facts(configuration={"seed": 1})]

    assert compare_arms(a, b).differences == (
        Difference("configuration", "seed", "1 | 2", "1"),
    )
    assert compare_arms(a, [a[2], a[0], a[1]]).differences == ()


def test_other_arguments_and_other_code_are_differences():
    a = RunFacts("a", 1.0, {"entry": {"pickle_sha256": "1"}}, {"cells/f.py": "x = 1"})
    b = RunFacts("b", 1.0, {"entry": {"pickle_sha256": "2"}}, {"cells/f.py": "x = 2"})
    same = RunFacts("c", 1.0, a.parts, b.code)

    both, code = compare_arms([a], [b]), compare_arms([a], [same])

    assert both.differences == (Difference("entry", "pickle_sha256", "1", "2"),)
    assert code.differences == ()
    assert "No other recorded" not in str(code)
    assert "+x = 2" in str(code)


def test_what_names_a_run_or_its_place_is_no_difference():
    a = facts(
        code={"diff": "code/diff.patch", "commit": "1"}, configuration={"name": 1}
    )
    b = facts(
        code={"diff": None, "commit": "1"},
        configuration={"name": 2},
        storage={"free_bytes": 7},
    )

    comparison = compare_arms([a], [b])

    assert comparison.differences == ()
    assert "No other recorded differences" in str(comparison)


def test_long_values_are_cut_in_the_table_only():
    a, b = (facts(configuration={"data": letter * 200}) for letter in "ab")

    comparison = compare_arms([a], [b], "first", "second")

    assert comparison.differences[0].a == "a" * 200
    lines = str(comparison).splitlines()
    assert lines[2].split() == ["first", "second"]
    assert "…" in lines[3]
    assert max(map(len, lines[2:])) < 160


def test_an_arm_without_runs_is_refused():
    with pytest.raises(NotEnoughDataError):
        compare_arms([], [facts()])


def test_a_run_without_a_rate_still_differs():
    found = compare_arms([facts(0.0, data={"a": 1})], [facts(5.0, data={"a": 2})])
    unknown = compare_arms([facts(None)], [facts(5.0)])

    assert found.ratio is None
    assert found.sentence.startswith(
        "No ratio: a run measured 0 images/s. Images/s: A 0.000"
    )
    assert found.differences == (Difference("data", "a", "1", "2"),)
    assert unknown.ratio is None
    assert "not every run has images/s" in str(unknown)
