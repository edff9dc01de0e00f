"""The report by a metric: verdicts as a closed formula has them."""

from __future__ import annotations

import json
import math
import statistics

import pytest
from scipy import stats

import nbkit
from nbkit.errors import DivergedError
from nbkit.questions.study_report import make
from nbkit.questions.trial import Trial
from nbkit.store.metrics import to_json_line
from nbkit.store.nonfinite import NonFinite
from nbkit.store.record import write_json
from nbkit.studies.given_up import GivenUp
from tests.studies.written_study import write_runs


def study_of(small, rates, *, better="higher", repeats=5, control=None, margin=0.0):
    arms = {name: small() for name in rates}
    study = nbkit.Study.create(
        "rates",
        arms,
        metric="images_per_second",
        better=better,
        margin=margin,
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
    assert "would allow a verdict" not in made.answer  # 1% is excluded
    assert [row["verdict"] for row in made.result["rows"]] == [
        "base",
        "no difference shown",
        "control",
    ]


@pytest.mark.parametrize("plan", [{}, {"change": "of nbkit try"}])
def test_metric_report_states_how_many_starts_a_difference_needs(small, plan):
    rates = {"base": 100.0, "new": 100.02}
    study = study_of(small, rates, margin=0.0025, repeats=6)
    content = json.loads(study.paths.study.read_text())
    del content["runs"][-1]
    study.paths.study.write_text(json.dumps({**content, "plan": plan}))

    made = make(study)

    base, new = (row["values"] for row in made.result["rows"])
    needed = nbkit.statistics.runs_needed(new, base, margin=0.0025).runs
    assert needed > 5
    sentence = (
        f" {needed} starts per arm ({needed - 5} more) would allow a verdict on a "
        "difference of 0.25%."
    )
    assert (sentence in made.answer) == (not plan)
    assert ("would allow a verdict" in made.answer) == (not plan)
    assert "No difference shown: new / base" in made.answer


def test_metric_report_of_few_starts_gives_no_verdict(small):
    made = make(study_of(small, {"base": 100.0, "new": 110.0}, repeats=4))

    assert made.result["rows"][1]["verdict"] == "not enough runs"


def logged(small, losses, **fields):
    """Return a study whose runs logged these losses, one for each repeat."""
    repeats = max(1, *map(len, losses.values()))
    fields = {"metric": "val_loss", "better": "lower", "repeats": repeats, **fields}
    arms = {arm: small() for arm in losses if not arm.endswith(" again")}
    study = nbkit.Study.create("loss", arms, **fields)
    write_runs(study, dict.fromkeys(losses, 100.0))
    content = json.loads(study.paths.study.read_text())
    runs = content["runs"]
    content["runs"] = [one for one in runs if one["repeat"] < len(losses[one["arm"]])]
    study.paths.study.write_text(json.dumps(content))
    for arm, runs in study.runs_by_arm().items():
        for run, loss in zip(runs, losses[arm], strict=True):
            line = {"kind": "log", "attempt": 0, "step": 20, "t": 1.0}
            with run.paths.metrics.open("a") as file:
                file.write(to_json_line({**line, "values": {"val_loss": loss}}))
    return study


LOSSES = [2.0, 2.01, 2.02, 1.99, 1.98]
LOWER = [0.8 * loss for loss in LOSSES]
NAN = math.nan


def test_metric_report_keeps_the_other_arms_of_one_that_diverged(small):
    losses = {"base": LOSSES, "new": LOWER, "lost": [NAN] * 5}

    made = make(logged(small, losses))

    assert made.answer.startswith("new is better than base: val_loss 1.6 vs. 2,")
    assert made.answer.endswith(" lost: not finite in 5 of 5 runs.")
    assert [row["arm"] for row in made.result["rows"]] == ["base", "new"]


def test_metric_report_of_a_training_that_goes_on_without_a_finite_loss(small):
    arms = {name: small() for name in ("base", "new", "lost")}
    fields = {"metric": "final_loss", "better": "lower", "repeats": 5}
    study = nbkit.Study.create("loss", arms, **fields)
    write_runs(study, dict.fromkeys(arms, 100.0), {"lost": NonFinite("loss", 2)})
    for run in study.runs_by_arm()["lost"]:
        lines = [{**line, "loss": None} for line in run.metrics()]
        run.paths.metrics.write_text("".join(map(to_json_line, lines)))

    made = make(study)

    assert "lost: not finite in 5 of 5 runs." in made.answer
    assert [row["arm"] for row in made.result["rows"]] == ["base", "new"]


def test_trial_withholds_a_verdict_that_its_control_denies(small):
    base, again = [2.0, 2.3, 1.8, 2.2, 1.9], [2.6, 2.4, 2.5, 2.8, 2.7]
    losses = {"base": base, "new": [0.5 * loss for loss in base], "base again": again}

    trial = Trial.of(logged(small, losses, control="base"))

    assert str(trial).startswith("Inconclusive: A/A control differs by 30.0%")
    assert trial.verdict == "withheld"


def test_trial_of_a_loss_that_varies_has_a_verdict(small):
    base, again = [2.0, 2.3, 1.8, 2.2, 1.9], [2.6, 1.9, 2.5, 2.3, 2.0]
    losses = {"base": base, "new": [0.5 * loss for loss in base], "base again": again}
    study = logged(small, losses, control="base", discard_floors=1)

    trial = Trial.of(study)

    assert (trial.verdict, str(trial)[:13]) == ("better", "new is better")
    for worse in ([3.8, 4.1, 3.6, 4.0, 3.7], [3.8, 4.1, NAN, 4.0, 3.7]):
        study = logged(
            small, {**losses, "new": worse}, control="base", discard_floors=1
        )
        assert "discarded" not in str(make(study).tables[0].notes)
    study = logged(small, {**losses, "base again": again[:1]}, control="base")
    assert Trial.of(study).verdict == "withheld"


def test_metric_report_keeps_the_other_arms_of_one_that_fails(small):
    study = logged(small, {"base": LOSSES, "new": LOWER, "big": LOWER})
    for run in study.runs_by_arm()["big"]:
        failed = {**run.record, "state": "failed", "cause": {"kind": "rank"}}
        write_json(run.paths.record, failed)

    made = make(study)

    assert made.answer.startswith("So far, 10 of 15 planned runs have finished")
    assert "new is better than base: val_loss 1.6 vs. 2," in made.answer


@pytest.mark.parametrize(
    ("diverged", "factor", "answer"),
    [
        ("new", 0.8, "Verdict withheld: new / base"),
        ("new", 1.2, "new is worse than base"),
        ("base", 0.8, "new is better than base"),
        ("base", 1.2, "Verdict withheld: new / base"),
    ],
)
def test_metric_report_does_not_favour_the_runs_that_are_left(
    small, diverged, factor, answer
):
    base = [*LOSSES, 2.0]
    losses = {"base": base, "new": [factor * loss for loss in base]}
    losses[diverged] = [*losses[diverged][:5], NAN]

    made = make(logged(small, losses))

    assert made.answer.startswith(answer)
    assert f" {diverged}: not finite in 1 of 6 runs." in made.answer


def test_metric_report_answers_by_an_arm_with_a_verdict(small):
    losses = {"base": LOSSES, "new": LOWER, "once": [1.0], "wide": [1, 2, 4, 1, 1.5]}

    made = make(logged(small, losses))

    assert " new is better than base: val_loss 1.6 vs. 2," in made.answer
    assert "Best of 2 arms." in made.answer


@pytest.mark.parametrize(("again", "verdict"), [(2.2, "withheld"), (2.0005, "worse")])
def test_metric_report_by_its_control(small, again, verdict):
    scatter = [0.999, 0.9995, 1.0, 1.0005, 1.001]
    medians = {"base": 2.0, "new": 2.1, "base again": again}
    losses = {arm: [it * loss for it in scatter] for arm, loss in medians.items()}

    made = make(logged(small, losses, control="base", discard_floors=5))

    assert {it["arm"]: it["verdict"] for it in made.result["rows"]}["new"] == verdict
    # A control that differs makes more than rates and times unreliable.
    assert made.answer.startswith("Inconclusive") == (verdict == "withheld")
    assert "base again: discarded" not in str(made.tables[0].notes)


def test_metric_report_without_a_base_has_no_comparison(small):
    study = logged(small, {"base": [NAN], "new": [1.0]}, minimum_runs=2)

    assert make(study).answer.startswith("new: val_loss 1, n=1. base: not finite")
    assert nbkit.audit(study).counts


def test_audit_takes_the_runs_that_a_study_needs(small):
    study = logged(small, {"base": LOSSES[:3], "new": LOWER[:3]}, minimum_runs=3)

    assert "few-runs" not in nbkit.audit(study).counts


def test_metric_report_names_the_best_of_better_arms(small):
    lowest = [0.9 * loss for loss in LOWER]

    made = make(logged(small, {"base": LOSSES, "new": LOWER, "newest": lowest}))

    assert made.answer.startswith("newest is better than base")


def test_given_up_keeps_a_study_of_which_an_arm_diverges(small):
    losses = {"base": LOSSES, "new": LOWER, "lost": [NAN] * 2}
    given_up = GivenUp(logged(small, {arm: [] for arm in losses}))
    study = logged(small, losses)
    one, other = study.runs_by_arm()["lost"]
    given_up.check("lost", one)
    given_up.check("lost", other)

    given_up.raise_for_arms()
    given_up.check("base", one)
    with pytest.raises(DivergedError, match=r"'val_loss' of run .* is not finite"):
        given_up.check("base", other)


def test_given_up_goes_on_where_an_interrupted_study_was(small):
    study = logged(small, {"base": [NAN] * 2, "new": LOWER[:2]})
    given_up = GivenUp(study)
    one, other = study.runs_by_arm()["base"]

    given_up.check("base", one)
    with pytest.raises(DivergedError):
        given_up.check("base", other)


def test_metric_report_of_many_arms_with_an_outlier(small):
    losses = {f"arm {number}": [2.0 + number / 100, 2.1] for number in range(20)}

    made = make(logged(small, {**losses, "wild": [2.2, 4e4]}))

    assert {row["verdict"] for row in made.result["rows"][1:]} == {"not enough runs"}


def test_given_up_takes_a_run_that_was_ended_as_diverged(small):
    arms = {name: small() for name in ("base", "new", "lost")}
    study = nbkit.Study.create("loss", arms, metric="final_loss", better="lower")
    given_up = GivenUp(study)
    lost = {"lost": NonFinite("loss", 2)}
    write_runs(study, dict.fromkeys(arms, 1.0), lost, ended=["lost"])

    for _ in range(2):
        given_up.check("lost", study.failed["lost"][0])

    assert given_up.arms == {"lost"}
    given_up.raise_for_arms()


def test_metric_report_of_one_seed_says_how_to_vary_it(small):
    arms = {name: small() for name in ("base", "new")}
    study = nbkit.Study.create("seeds", arms, metric="error", better="lower", repeats=5)
    line = {"kind": "log", "attempt": 0, "step": 1, "t": 1.0, "values": {"error": 0.5}}
    write_runs(study, dict.fromkeys(arms, 100.0), lines=[line])

    answer = make(study).answer

    assert answer.startswith("No difference shown: new / base: error 0.5 vs. 0.5")
    assert "No run-to-run scatter in base, new. Vary the seed" in answer
