"""What the report of concurrent jobs says follows from what was measured."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

import nbkit
from nbkit.questions.concurrent_jobs.layouts import JobSetting, Planned
from nbkit.questions.concurrent_jobs.page import result as jobs_result
from nbkit.questions.study_report import make
from nbkit.review.causes import Cause
from nbkit.studies.parameters import Parameters
from nbkit.studies.study import Study
from tests.questions.conftest import edit_metrics
from tests.studies.written_study import write_runs

NOT_PINNED = JobSetting("shared", pinned=False)


def test_others_than_the_jobs_of_a_round_take_the_answer_back(store, monkeypatch):
    base = nbkit.ExperimentConfig(model="resnet18", batch_size_per_gpu=8, steps=20)
    planned = Planned((1, 1), NOT_PINNED)
    arms = dict.fromkeys([*planned.alone, *planned.jobs], base)
    plan = {"planned": [asdict(planned)], "chosen": {}, "threads_per_rank": 1}
    plan |= dict.fromkeys(("cpu_shares", "share_cores", "copies"), ())
    values = {"device": "cpu", "seed": 0}
    study = Study.create(
        "jobs",
        arms,
        repeats=2,
        concurrent=[planned.jobs],
        kind="concurrent_jobs",
        plan=plan,
        parameters=Parameters(values, dict.fromkeys(values, "notebook")),
    )
    write_runs(study, dict.fromkeys(arms, 100.0))
    others = Cause.of(
        "other-cpu-processes", 0.4, "Others kept 1 of 2 CPUs busy.", "", None
    )
    jobs_by_round = {}

    def others_than(jobs):
        (repeat,) = {job.record["tags"]["repeat"] for job in jobs}
        jobs_by_round[repeat] = sorted(job.record["tags"]["arm"] for job in jobs)
        return [others] if repeat == "1" else []

    file = json.loads(study.paths.study.read_text())
    # A file may have a group any number of times, and an arm in it.
    file["concurrent"] = [*file["concurrent"] * 100, [*planned.jobs, planned.jobs[0]]]
    study.paths.study.write_text(json.dumps(file))
    assert [len(jobs) for jobs in study.rounds] == [2, 2]
    first, second = (study.runs_by_arm()[job] for job in planned.jobs)
    quiet, compared = make(study), nbkit.compare(first, second)
    monkeypatch.setattr("nbkit.reports.bottlenecks.others_than", others_than)
    made = make(study)

    assert jobs_by_round == {"0": [*planned.jobs], "1": [*planned.jobs]}
    assert "slowdown" in quiet.answer
    assert made.answer == (
        "Inconclusive: others kept 1 of 2 CPUs busy (1 of 2 runs of 1,1 job 1 and 1 "
        "more arm). Measure again when nothing else runs on this machine."
    )
    assert "other-cpu-processes" in nbkit.audit(study).counts
    assert compared.ratio is not None
    disturbed = nbkit.compare(first, second)
    assert disturbed.ratio is None
    assert "others kept 1 of 2 CPUs busy" in disturbed.sentence


def test_answer_rounds_without_overlap(golden):
    study = golden("concurrent_jobs/gpu")

    def later(line):
        line["t"] += 300

    edit_metrics(study.runs_by_arm()["1,1 job 2"], later)
    found = jobs_result(study)

    assert "1,1: no result" in found.answer
    assert [job.slowdown for job in found.concurrent[0].jobs] == [None, None]
    assert any("5 of 5 rounds omitted" in note for note in found.table.notes)


def test_answer_difference_within_control(golden):
    study = golden("concurrent_jobs/cpu")

    def slower(line):
        line["step_time_seconds"] *= 1.4

    edit_metrics(study.runs_by_arm()["1 alone again"], slower)
    answer = jobs_result(study).answer

    control = "the A/A control ("
    assert f"1,1: no slowdown beyond {control}" in answer
    assert f"aggregate throughput unchanged beyond {control}" in answer
    assert f"Pinned vs. not pinned: no difference beyond {control}" in answer


@pytest.mark.nonfinite
@pytest.mark.parametrize(("which", "counts"), [("1,1 job 1", True), ("1 alone", False)])
def test_answer_job_that_is_not_finite(golden, lose, which, counts):
    study = golden("concurrent_jobs/gpu")
    lose(study.runs_by_arm()[which], ended=False)

    [one] = jobs_result(study).concurrent

    assert one.jobs[0].alone.is_valid is counts
    assert (one.aggregate_efficiency, one.fairness) == (None, None)
    assert "no comparison, because a job diverged" in jobs_result(study).answer
