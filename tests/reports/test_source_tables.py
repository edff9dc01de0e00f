"""The same runs by the statistics of others, as a report prints it."""

from __future__ import annotations

from dataclasses import replace

from nbkit.reports.source_statistics import SourceStatistic
from nbkit.reports.source_tables import audit_notes, statistics_table
from nbkit.review.findings import Audit, Finding

OURS = SourceStatistic(
    label="median step",
    source="nbkit",
    url=None,
    value=100.0,
    unit="images/s",
    against_ours=1.0,
    difference="data wait included",
    n_runs=3,
)
OTHERS = replace(
    OURS,
    label="compute_ips",
    source="somebody",
    url="https://example.org/rates",
    value=125.0,
    against_ours=1.25,
    difference="data wait excluded",
)
UNKNOWN = replace(
    OTHERS, label="mean GPU utilization", value=None, unit="%", against_ours=None
)


def test_two_arms_stand_beside_each_other_with_their_ratio_by_each_statistic():
    fast = [OURS, replace(OTHERS, value=250.0, against_ours=2.5), UNKNOWN]
    slow = [replace(OURS, value=50.0), OTHERS, UNKNOWN]

    table = statistics_table({"bf16": fast, "fp32": slow})

    assert table.columns == [
        *("statistic", "source"),
        *("bf16", "times nbkit's", "runs", "fp32", "times nbkit's", "runs", "ratio"),
    ]
    assert table.rows == [
        ["median step", "nbkit", "100.0", "1.000", "3", "50.0", "1.000", "3", "2.000"],
        [
            *("compute_ips", "somebody"),
            *("250.0", "2.500", "3", "125.0", "1.250", "3", "2.000"),
        ],
    ]
    assert table.values["value of bf16"] == [100.0, 250.0]
    assert "compute_ips: data wait excluded." in table.notes
    assert "Unknown for these runs: mean GPU utilization." in table.notes
    assert "bf16 over fp32" in table.notes[-1]


def test_statistics_whose_names_have_commas_are_listed_apart():
    lacking = replace(UNKNOWN, label="mean of step rates, last step in")

    table = statistics_table({"fp32": [OURS, UNKNOWN, lacking]})

    unknown = "mean GPU utilization; mean of step rates, last step in."
    assert f"Unknown for these runs: {unknown}" in table.notes


def test_one_arm_has_no_ratio_and_what_one_side_lacks_is_a_dash():
    alone = statistics_table({"fp32": [OURS, UNKNOWN]})
    beside = statistics_table(
        {"a": [OURS, replace(UNKNOWN, value=93.2)], "b": [OURS, UNKNOWN]}
    )

    assert [row[2:] for row in alone.rows] == [["100.0", "1.000", "3"]]
    assert beside.rows[1][2:] == ["93.2 %", None, "3", None, None, "3", None]


def test_rates_have_a_ratio_and_nothing_else_has():
    busy = replace(UNKNOWN, value=90.0)

    table = statistics_table({"a": [OURS, busy], "b": [OURS, busy]}, "fp32")

    assert [row[-1] for row in table.rows] == ["1.000", None]
    assert table.caption.startswith("fp32: the same runs")


def test_an_audit_is_a_sentence_for_each_kind_of_finding():
    finding = Finding("layout", "run 1", "fp16", "fp16 in channels_first on V100")
    again = replace(finding, subject="run 2")

    [clean] = audit_notes(Audit("study x", []))
    few = Finding("few-runs", "run 1", "a rate", "one run")
    found, mild = audit_notes(Audit("study x", [few, finding, again]))

    assert clean == "Audit of study x: nothing suspicious."
    assert found.startswith("Audit of study x, warning, 2 times: ")
    assert "run 1: fp16 in channels_first on V100. " in found
    assert found.endswith(finding.action)
    assert mild == f"Audit of study x, notes: {few.kind.title}."
