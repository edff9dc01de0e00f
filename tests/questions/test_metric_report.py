"""The report by a metric: verdicts as a closed formula has them."""

from __future__ import annotations

import math
import statistics

import pytest
from scipy import stats

import nbkit
from nbkit.questions.study_report import make
from tests.studies.written_study import write_runs


def study_of(small, rates, *, better="higher", repeats=5, control=None):
    arms = {name: small() for name in rates}
    study = nbkit.Study.create(
        "rates",
        arms,
        metric="images_per_second",
        better=better,
        repeats=repeats,
        control=control,
    )
    if control:
        rates = {**rates, f"{control} again": rates[control] * 1.0005}
    write_runs(study, rates)
    return study


@pytest.mark.parametrize(
    ("better", "verdict"), [("higher", "better"), ("lower", "worse")]
)
def test_metric_report_verdict_follows_its_direction(small, better, verdict):
    study = study_of(small, {"base": 100.0, "new": 110.0}, better=better)

    made = make(study)

    row = made.result["rows"][1]
    assert row["verdict"] == verdict
    assert f"new is {verdict} than base: images_per_second" in made.answer
    logs = [[math.log(v) for v in one["values"]] for one in made.result["rows"]]
    interval = stats.ttest_ind(logs[1], logs[0], equal_var=False).confidence_interval(
        0.95
    )
    assert row["ratio"]["ci_low"] == pytest.approx(math.exp(interval.low))
    assert row["ratio"]["ci_high"] == pytest.approx(math.exp(interval.high))
    assert row["ratio"]["estimate"] == pytest.approx(
        statistics.median(row["values"])
        / statistics.median(made.result["rows"][0]["values"])
    )


def test_metric_report_is_not_decided_by_noise(small):
    study = study_of(small, {"base": 100.0, "new": 100.02}, control="base")

    made = make(study)

    assert made.answer.startswith("No difference shown: new / base")
    assert "A/A noise floor" in made.answer
    assert [row["verdict"] for row in made.result["rows"]] == [
        "base",
        "no difference shown",
        "control",
    ]


def test_metric_report_of_few_starts_gives_no_verdict(small):
    made = make(study_of(small, {"base": 100.0, "new": 110.0}, repeats=4))

    assert made.result["rows"][1]["verdict"] == "not enough runs"


def test_metric_report_of_one_seed_says_how_to_vary_it(small):
    arms = {name: small() for name in ("base", "new")}
    study = nbkit.Study.create("seeds", arms, metric="error", better="lower", repeats=5)
    line = {"kind": "log", "attempt": 0, "step": 1, "t": 1.0, "values": {"error": 0.5}}
    write_runs(study, dict.fromkeys(arms, 100.0), lines=[line])

    answer = make(study).answer

    assert answer.startswith("No difference shown: new / base: error 0.5 vs. 0.5")
    assert "All runs of base, new have the same value. Vary the seed" in answer
