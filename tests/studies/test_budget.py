"""A study under a time limit measures what adds most, and says what it left out."""

from __future__ import annotations

import json
import math
import random
from itertools import pairwise
from types import SimpleNamespace

import pytest

import nbkit
from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError
from nbkit.questions.study_plan import Plan
from nbkit.questions.study_report import make
from nbkit.reports.arm_rows import ArmRun
from nbkit.reports.arms import Arms
from nbkit.store.nonfinite import NonFinite
from nbkit.store.paths import RunPaths, runs_folder
from nbkit.studies.budget import Budget, first_arms, not_measured
from nbkit.studies.durations import StartTimes
from nbkit.studies.order import Slot
from nbkit.studies.parameters import Parameters
from nbkit.studies.starts import grouped
from nbkit.studies.study import Study
from tests.studies.written_study import write_runs

BASE = ExperimentConfig(
    device="cpu", model="resnet18", batch_size_per_gpu=8, tensorboard=False
)


def execute(study, minutes, seconds, clock):
    """Return the starts of a study whose starts take these seconds, as labels."""
    times, done = StartTimes(), []
    budget = Budget(study, minutes, times, clock=lambda: clock.now)
    left = grouped(study.order, study.concurrent)
    while fitting := budget.fitting(left):
        left.remove(fitting[0])
        arm = fitting[0][0].arm
        clock.now += seconds[arm]
        times[arm] = seconds[arm]
        done.append(f"{arm}{fitting[0][0].repeat}")
    return done


@pytest.fixture
def clock():
    return SimpleNamespace(now=1000.0)


@pytest.fixture
def study(store):
    """Return a study of a baseline with its control and three other arms."""
    return Study.create("s", dict.fromkeys("abcd", BASE), repeats=5, control="a")


SECONDS = {**dict.fromkeys("abcd", 10.0), "a again": 10.0}
PAIR = "a0 b0 a again0"
VERDICT = "a again1 b1 a1 a2 b2 a again2 a again3 b3 a3 a4 b4 a again4"
JOINT = "c0 a again1 c1 b1 a1 a2 b2 c2 a again2 a again3 c3 b3 a3 a4 b4 c4 a again4"


@pytest.mark.parametrize(
    ("starts", "expected"),
    [
        (25, None),
        (2, "a0 b0"),
        (4, f"{PAIR} c0"),
        (8, f"{PAIR} c0 d0 a again1 b1 a1"),
        (17, f"{PAIR} {VERDICT} c0 d0"),
        (22, f"{PAIR} {JOINT} d0 d1"),
    ],
)
def test_fitting_narrows_from_all_arms_to_the_first_pair(
    study, clock, starts, expected
):
    done = execute(study, (starts * 10 + 1) / 60, SECONDS, clock)

    every = [f"{slot.arm}{slot.repeat}" for slot in study.order]
    assert " ".join(done) == (expected or " ".join(every))
    assert clock.now <= 1000 + 10 * starts


@pytest.mark.parametrize("starts", [21, 23])
def test_fitting_interleaves_equal_arms_so_that_drift_gives_no_verdict(
    store, clock, starts
):
    arms, false = dict.fromkeys("abcd", BASE), 0
    study = Study.create("s", arms, repeats=5, control="a")
    done = execute(study, (starts * 10 + 1) / 60, SECONDS, clock)
    for seed in range(100):
        noise, runs = random.Random(seed), {arm: [] for arm in study.arms}
        for position, start in enumerate(done):
            # 10 % slower at the end, 1 % scatter.
            rate = 100 * (1 - 0.1 * position / starts) * math.exp(noise.gauss(0, 0.01))
            runs[start[:-1]].append(ArmRun(start, rate))
        verdicts = Arms(runs, "a", "a again").verdicts
        false += any(one.verdict in ("faster", "slower") for one in verdicts)
    assert len(done) == starts
    assert false <= 5


def test_fitting_has_the_time_of_every_place(study, clock):
    times = StartTimes(SECONDS)
    starts = grouped(study.order, study.concurrent)

    alone, beside = (
        Budget(study, 41 / 60, times, places=n, clock=lambda: clock.now).fitting(starts)
        for n in (1, 4)
    )

    assert (len(alone), len(beside)) == (4, 16)
    clock.now += 35  # no start fits, whatever place is free
    assert (
        Budget(study, 5 / 60, times, places=4, clock=lambda: clock.now).fitting(
            starts[5:]
        )
        == []
    )


def test_fitting_keeps_the_verdict_of_the_pair_from_arms_that_take_longer(study, clock):
    # Unknown, c counts as the others: its five runs would fit.
    done = execute(study, 211 / 60, {**SECONDS, "c": 60.0}, clock)

    assert " ".join(done) == f"{PAIR} c0 {VERDICT}"


def test_fitting_goes_on_beside_an_arm_that_does_not_fit(store, clock):
    study = Study.create("s", dict.fromkeys("abc", BASE), repeats=7)
    done = execute(study, 241 / 60, {**SECONDS, "c": 100.0}, clock)

    assert [sum(it[0] == arm for it in done) for arm in "abc"] == [7, 7, 1]


def test_ends_round_after_the_first_pair_and_every_repeat(study, clock):
    budget = Budget(study, 221 / 60, StartTimes(SECONDS), clock=lambda: clock.now)
    fitting = budget.fitting(grouped(study.order, study.concurrent))

    ends = [one for one in pairwise(fitting[:10]) if budget.ends_round(*one)]

    assert [before for [before], _ in ends] == [
        Slot("a again", 0),
        Slot("c", 0),
        Slot("a", 1),
    ]


def test_fitting_begins_the_first_start_whatever_it_takes(study, clock):
    assert execute(study, 0.01, SECONDS, clock) == ["a0"]
    assert len(execute(study, None, SECONDS, clock)) == 25


def test_fitting_starts_jobs_of_a_group_together(store, clock):
    arms = dict.fromkeys(("alone", "job 1", "job 2", "large"), BASE)
    study = Study.create("s", arms, repeats=2, concurrent=[["job 1", "job 2"]])
    seconds = {"alone": 10.0, "job 1": 20.0, "large": 5.0}

    assert first_arms(study) == ["alone", "job 1", "job 2"]
    done = execute(study, 1, seconds, clock)
    assert done == ["alone0", "job 10", "job 11", "alone1"]


def test_first_arms_are_those_that_a_plan_names(store):
    arms = dict.fromkeys(("1 GPU", "2 GPUs", "4 GPUs"), BASE)
    parameters = Parameters({}, {})
    ends = ("1 GPU", "4 GPUs")
    plan = Plan(arms=arms, repeats=1, parameters=parameters, first_arms=ends)

    assert first_arms(Study.create("s", arms)) == ["1 GPU", "2 GPUs"]
    assert first_arms(Study.create("s", arms, plan=plan.facts)) == [*ends]


def test_start_times_of_an_unmeasured_arm_are_the_mean_of_the_others():
    times = StartTimes()
    assert times.total(["a", "b"]) is None

    times["a"], times["b"] = 10.0, 20.0

    assert times.total(["a", "c", "c"]) == 10 + 15 + 15


def limited(study, kept, minutes=0.5):
    """Keep the runs of these starts of a written study, as a time limit leaves them."""
    content = json.loads(study.paths.study.read_text())
    runs = [one for one in content["runs"] if kept(one["arm"], one["repeat"])]
    left = [slot for slot in content["order"] if not kept(*slot)]
    content |= {"runs": runs, "minutes": minutes, "not_measured": left}
    study.paths.study.write_text(json.dumps(content))


def test_a_report_lists_what_did_not_fit_and_has_its_answer(study):
    write_runs(study, {"a": 100.0, "b": 150.0, "c": 300.0, "d": 1.0, "a again": 100.0})
    pair = ("a", "b", "a again")
    limited(study, lambda arm, repeat: arm in pair or (arm, repeat) == ("c", 0))

    report = make(study)

    said = "Not measured in 0.5 min: c (4 starts, about 40 minutes more); d (5"
    assert report.notes[0].startswith(said)
    assert report.answer.startswith("CPU smoke test: b: 1.50x")
    assert report.next_step == (
        f"nbkit.Study.open('{study.study_id}').resume(minutes=0) continues the study"
    )


@pytest.mark.parametrize(("late", "apart"), [([], False), (["c"], True)])
def test_a_report_says_what_was_measured_at_another_time(study, late, apart):
    write_runs(study, {**dict.fromkeys("abcd", 100.0), "a again": 100.0})
    entries = json.loads(study.paths.study.read_text())["runs"]
    for place, entry in enumerate(entries):
        at = f"2026-01-0{1 + (entry['arm'] in late)}T00:{place:02}"
        path = RunPaths(runs_folder() / entry["run_id"]).record
        record = json.loads(path.read_text())
        times = {"started": f"{at}:00", "ended": f"{at}:59"}
        path.write_text(json.dumps({**record, "time": times}))

    notes = [one for one in make(study).notes if one.startswith("Not interleaved")]

    assert bool(notes) == apart
    assert not notes or notes[0].startswith("Not interleaved with a: c. Differences ")


@pytest.mark.parametrize("repeats", [1, 3, 4])
def test_a_report_of_few_repeats_lists_what_did_not_fit(store, repeats):
    study = Study.create("s", dict.fromkeys("ab", BASE), repeats=repeats)
    write_runs(study, {"a": 100.0, "b": 150.0})
    limited(study, lambda arm, repeat: arm == "a" or repeat < repeats - 1)

    assert not_measured(study).startswith("Not measured in 0.5 min: b (1 start, about")


def test_a_limited_study_that_was_interrupted_does_not_blame_its_limit(study):
    write_runs(study, {**dict.fromkeys("abcd", 100.0), "b": 150.0, "a again": 100.0})
    limited(study, lambda arm, _: arm not in "cd")
    content = json.loads(study.paths.study.read_text())
    study.paths.study.write_text(json.dumps({**content, "not_measured": []}))

    report = make(study)

    assert report.answer.startswith("So far, 15 of 25 planned runs have finished.")
    assert not any("Not measured" in note for note in report.notes)
    assert report.next_step.endswith(".resume() continues the study")


def test_a_report_whose_first_pair_did_not_fit_has_no_answer(study):
    write_runs(study, {**dict.fromkeys("abcd", 100.0), "a again": 100.0})
    limited(study, lambda arm, repeat: arm == "a")

    assert make(study).answer.startswith("Inconclusive: 5 of 25 planned runs")


def test_a_study_ends_early_once_every_verdict_is_settled(store, clock):
    arms = dict.fromkeys("abc", BASE)
    study = Study.create("s", arms, repeats=8, control="a", minutes=60)
    write_runs(study, {"a": 100.0, "b": 150.0, "c": 50.0, "a again": 100.0})
    budget = Budget(study, 60, StartTimes(), clock=lambda: clock.now)

    limited(study, lambda _, repeat: repeat < 5, minutes=60)
    starts = grouped(study.missing, [])
    budget.end_round(4)  # too few runs for a verdict
    assert len(budget.fitting(starts)) == 12

    budget.end_round(5)
    assert budget.fitting(starts) == []
    assert not_measured(study) == (
        "Ended early: all verdicts were final after 5 of 8 repeats."
    )


def test_settled_arms_come_last_while_a_verdict_is_open(store, clock):
    study = Study.create("s", dict.fromkeys("abc", BASE), repeats=8, minutes=1)
    # c scatters by more than it differs; write_runs makes equal repeats.
    write_runs(study, {"a": 100.0, "b": 150.0, "c": 102.0})
    limited(study, lambda _, repeat: repeat < 5)
    times = StartTimes(dict.fromkeys("abc", 10.0))
    budget = Budget(study, 1, times, clock=lambda: clock.now)
    budget.end_round(5)

    found = budget.fitting(grouped(study.missing, []))

    assert [slot for [slot] in found] == [
        *(Slot("c", 5), Slot("a", 5), Slot("a", 6), Slot("c", 6), Slot("c", 7)),
        Slot("a", 7),
    ]


@pytest.mark.parametrize(
    "compared", [{"kind": "scaling"}, {"metric": "final_loss", "better": "lower"}]
)
def test_verdicts_on_more_than_images_per_second_are_not_looked_at(
    store, clock, compared
):
    study = Study.create("s", dict.fromkeys("ab", BASE), repeats=8, **compared)
    write_runs(study, {"a": 100.0, "b": 150.0})
    limited(study, lambda _, repeat: repeat < 6)
    budget = Budget(study, 1, StartTimes(), clock=lambda: clock.now)

    budget.end_round(6)

    assert len(budget.fitting(grouped(study.missing, []))) == 4


def test_a_study_goes_on_whose_baseline_has_diverged(store, clock):
    study = Study.create("s", dict.fromkeys("ab", BASE), repeats=8, control="a")
    lost = {"a": NonFinite("loss", 3)}
    write_runs(study, {"a": 1.0, "b": 1.5, "a again": 1.0}, lost, ended=["a"])
    limited(study, lambda arm, repeat: arm != "a" or repeat == 1)
    budget = Budget(study, 1, StartTimes(), clock=lambda: clock.now)

    budget.end_round(5)

    assert len(budget.fitting(grouped(study.missing, []))) == 7


@pytest.mark.parametrize("minutes", [-1, float("nan"), float("inf"), "ten"])
def test_minutes_that_are_no_time_are_refused(store, minutes):
    with pytest.raises(ConfigError, match=r"minutes=.* not a valid time limit. Use 0"):
        Study.create("s", {"a": BASE}, minutes=minutes)


@pytest.mark.parametrize(
    ("minutes", "engine", "expected"),
    [(None, "local", 2), (3.0, "local", 3), (0, "local", None), (None, "slurm", None)],
)
def test_minutes_of_a_plan_depend_on_its_devices(minutes, engine, expected):
    config = ExperimentConfig(device="cpu", engine=engine)
    given = Parameters({"minutes": minutes}, {"minutes": "default"})
    plan = Plan(arms={"a": config}, repeats=1, parameters=given)

    assert plan.minutes == expected
    assert plan.minutes_after(60) == (expected and expected - 1)
    assert plan.minutes_after(6000) == (expected and 0.1)
    said = plan._repr_mimebundle_()["text/plain"]
    assert ("Time limit" in said) == (expected is not None)


def test_a_limited_study_says_what_is_left_and_resumes(small, capsys):
    arms = {name: small(gpus=1, steps=2, warmup_steps=1) for name in "ab"}
    study = nbkit.Study.create("demo", arms, minutes=0.0001)

    study.run()

    lines = capsys.readouterr().out.splitlines()
    assert [slot.arm for slot in study.missing] == ["b"]
    assert lines[-1].startswith("Not measured in 0.0001 min: b (1 start, about ")

    nbkit.Study.open(study.study_id).resume(minutes=0)

    said = capsys.readouterr().out
    assert study.missing == []
    assert study.minutes is None
    assert "[1/1] b, repeat 1: finished" in said
    # For who watches from elsewhere.
    shown = json.loads(study.paths.progress.read_text())
    assert shown["answer"].startswith("CPU smoke test: b: ")
    assert shown["expected_end"] is not None
    assert "Not measured" not in said
