"""Two arms side by side: the ratio, and every recorded fact that differs."""

from __future__ import annotations

import pytest

from nbkit.errors import NotEnoughDataError
from nbkit.reproduction.differences import (
    Difference,
    RunFacts,
    compare_arms,
    rates_in_words,
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


def test_the_same_values_in_another_order_of_runs_are_no_difference():
    a, b = ([facts(devices={"bound_to": cpus}) for cpus in two] for two in ("xy", "yx"))

    assert compare_arms(a, b).differences == ()


def test_other_arguments_and_other_code_are_differences():
    a = RunFacts("a", 1.0, {"entry": {"pickle_sha256": "1"}}, {"cells/f.py": "x = 1"})
    b = RunFacts("b", 1.0, {"entry": {"pickle_sha256": "2"}}, {"cells/f.py": "x = 2"})
    same = RunFacts("c", 1.0, a.parts, b.code)

    both, code = compare_arms([a], [b]), compare_arms([a], [same])

    assert both.differences == (Difference("entry", "pickle_sha256", "1", "2"),)
    assert code.differences == ()
    assert "Nothing else" not in str(code)
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
    assert "Nothing else that is recorded differs" in str(comparison)


def test_five_runs_an_arm_have_a_verdict_and_one_has_not_even_an_interval():
    fast = [facts(200.0 + n) for n in range(5)]
    slow = [facts(100.0 + n) for n in range(5)]

    many = compare_arms(fast, slow, "fp16", "fp32")
    one = compare_arms(fast[:1], slow[:1])

    assert many.ratio.verdict == "faster"
    assert many.sentence.startswith("fp16 / fp32 = 1.98")
    assert one.ratio.verdict == "not enough runs"
    assert one.ratio.ci_low is None


def test_runs_that_measured_nothing_have_no_ratio_and_still_differ():
    a, b = facts(None, configuration={"gpus": 1}), facts(configuration={"gpus": 2})

    comparison = compare_arms([a], [b])

    assert comparison.ratio is None
    assert "no measured steps" in str(comparison)
    assert len(comparison.differences) == 1


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


def test_a_run_that_logged_a_rate_of_nothing_still_differs():
    found = compare_arms([facts(0.0, data={"a": 1})], [facts(5.0, data={"a": 2})])

    assert found.ratio is None
    assert found.sentence.startswith(
        "No ratio: a run has 0 images/s. Images/s: A 0.000"
    )
    assert found.differences == (Difference("data", "a", "1", "2"),)


def test_rates_say_of_how_many_steps_or_runs_they_are():
    assert rates_in_words("fp16", 5210, 1, None) == "fp16 5,210.0"
    assert rates_in_words("fp16", 5210, 1, 9) == "fp16 5,210.0 (over 9 steps)"
    assert rates_in_words("fp16", 5210, 3, 9) == "fp16 5,210.0 (median of 3 runs)"
