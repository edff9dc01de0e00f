"""What the report of concurrent jobs says follows from what was measured."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest

import nbkit
from nbkit import statistics
from nbkit.questions.concurrent_jobs.layouts import Planned, Setting
from nbkit.questions.concurrent_jobs.page import ConcurrentResult
from nbkit.questions.concurrent_jobs.page import result as jobs_result
from nbkit.questions.concurrent_jobs.rounds import Measured
from nbkit.questions.concurrent_jobs.slowdown import (
    AloneRuns,
    Job,
    Overlap,
    Round,
    Together,
    overlap,
)
from nbkit.questions.study_report import make
from nbkit.reports.page import Evidence
from nbkit.review.causes import Cause
from nbkit.store.nonfinite import NonFinite
from nbkit.studies.study import Study
from tests.studies.written_study import write_runs

NOT_PINNED, PINNED = Setting("shared", pinned=False), Setting("shared", pinned=True)
WOBBLE = (1.0, 1.004, 0.996, 1.002, 0.998)


def rates(base):
    """Return five numbers around one."""
    return {repeat: base * factor for repeat, factor in enumerate(WOBBLE)}


def steps(rate, begin=0.0):
    """Return ten seconds of steps of one second at a rate."""
    return tuple(
        {
            "kind": "step",
            "t": begin + number + 1,
            "step_time_seconds": 1.0,
            "images": rate,
            "warmup": False,
        }
        for number in range(10)
    )


def jobs_at_once(setting, base, kept, *, late=0.0):
    """Return five rounds of two jobs that keep so much of their rate alone."""
    planned = Planned((1, 1), setting)
    alone = AloneRuns(planned.alone[0], rates(base))
    rounds = tuple(
        Round(
            repeat,
            (f"run-{setting.name}-{repeat}-1", f"run-{setting.name}-{repeat}-2"),
            overlap([steps(rate * kept[0]), steps(rate * kept[1], late)]),
        )
        for repeat, rate in rates(base).items()
    )
    counted = [one.rates for one in rounds if one.counts]
    jobs = tuple(
        Job(arm, 1, alone, tuple(one[place] for one in counted))
        for place, arm in enumerate(planned.jobs)
    )
    return alone, Together(planned.name, setting.name, jobs, rounds)


def measured(*, late=0.0, pinned=True):
    plain, first = jobs_at_once(NOT_PINNED, 100, (0.8, 0.9), late=late)
    own, second = jobs_at_once(PINNED, 102, (0.98, 0.99))
    settings = [NOT_PINNED, PINNED] if pinned else [NOT_PINNED]
    wholes = [AloneRuns(Planned((2,), one).alone[0], rates(150)) for one in settings]
    found = Measured(
        planned=[Planned(sizes, one) for one in settings for sizes in ((1, 1), (2,))],
        together=[first, second] if pinned else [first],
        alone={one.arm: one for one in (plain, *([own] if pinned else []), *wholes)},
        control=statistics.noise_floor([100, 101, 99], [100, 101, 99], name="1 alone"),
        places={f"run-pinned-0-{n}": f"CPU {n - 1}" for n in (1, 2)},
    )
    study, facts = SimpleNamespace(kind="concurrent_jobs"), {"study_id": "a-study"}
    plan = {"notes": ["said first"], "chosen": {"layout": [1, 1], "device": "cpu"}}
    evidence = Evidence(study, {}, {}, facts, plan, repeats=5, is_cpu=True)
    return ConcurrentResult(evidence, found)


def cells(table, first, more=None):
    """Return a row by column, by its first cells."""
    row = next(
        row for row in table.rows if row[0] == first and (more is None or more in row)
    )
    return dict(zip(table.columns, row, strict=True))


def test_rounds_that_hardly_overlap_are_left_out_and_it_is_said():
    result = measured(late=6.0)

    assert cells(result.rounds, "1,1 (left out)", "1")["share"] == "40.0 %"
    assert "1,1 concurrently: no result" in result.answer
    left_out = "1,1: 5 of 5 rounds are omitted"
    assert any(note.startswith(left_out) for note in result.table.notes)
    assert cells(result.table, "1,1 job 1")["slowdown"] is None
    assert cells(result.totals, "1,1")["over the sum"] is None


def test_a_round_without_a_step_at_once_has_no_rate():
    never = Round(0, ("a", "b"), overlap([steps(10.0), ()]))

    assert never.overlap == Overlap(0.0, 0.0, ((), ()))
    assert not never.counts


@pytest.mark.parametrize("which", ["among others", "alone"])
def test_a_job_that_is_not_finite_has_no_slowdown_and_its_round_no_verdict(which):
    result = measured(pinned=False)
    [one] = result.together
    first = one.jobs[0]
    lost = (
        replace(first, counts=False)
        if which == "among others"
        else replace(first, alone=replace(first.alone, counts=False))
    )

    at_once = replace(one, jobs=(lost, *one.jobs[1:]))
    found = replace(result, measured=replace(result.measured, together=[at_once]))

    assert found.answer.endswith("no comparison, because a job is not finite.")
    row = cells(found.table, first.arm)
    assert row["images/s"] is not None
    assert (row["slowdown"], row["verdict"]) == (None, None)
    assert (at_once.total_kept, at_once.fairness) == (None, None)


def test_the_jobs_of_a_study_that_are_not_finite_are_told_by_their_runs(store):
    base = nbkit.ExperimentConfig(model="resnet18", batch_size_per_gpu=8, steps=20)
    planned = Planned((1, 1), NOT_PINNED)
    arms = dict.fromkeys([*planned.alone, *planned.jobs], base)
    plan = {"planned": [asdict(planned)], "notes": [], "chosen": {}}
    study = Study.create("jobs", arms, together=[planned.jobs], plan=plan)
    write_runs(
        study, dict.fromkeys(arms, 100.0), {planned.jobs[0]: NonFinite("loss", 3)}
    )

    found = jobs_result(study)

    assert [job.counts for job in found.together[0].jobs] == [False, True]
    assert "no comparison" in found.answer


def test_others_than_the_jobs_of_a_round_take_the_answer_back(store, monkeypatch):
    base = nbkit.ExperimentConfig(model="resnet18", batch_size_per_gpu=8, steps=20)
    planned = Planned((1, 1), NOT_PINNED)
    arms = dict.fromkeys([*planned.alone, *planned.jobs], base)
    plan = {"planned": [asdict(planned)], "notes": [], "chosen": {}}
    study = Study.create(
        "jobs",
        arms,
        repeats=2,
        together=[planned.jobs],
        kind="concurrent_jobs",
        plan=plan,
    )
    write_runs(study, dict.fromkeys(arms, 100.0))
    others = Cause("other-processes", 0.4, "Others kept 1 of 2 CPUs busy.", "", None)
    jobs_by_round = {}

    def others_than(jobs):
        (repeat,) = {job.record["tags"]["repeat"] for job in jobs}
        jobs_by_round[repeat] = sorted(job.record["tags"]["arm"] for job in jobs)
        return [others] if repeat == "1" else []

    file = json.loads(study.paths.study.read_text())
    # A file may have a group any number of times, and an arm in it.
    file["together"] = [*file["together"] * 100, [*planned.jobs, planned.jobs[0]]]
    study.paths.study.write_text(json.dumps(file))
    assert [len(jobs) for jobs in study.rounds] == [2, 2]
    first, second = (study.runs_by_arm()[job] for job in planned.jobs)
    quiet, compared = make(study), nbkit.compare(first, second)
    monkeypatch.setattr("nbkit.reports.bottlenecks.others_than", others_than)
    made = make(study)

    assert jobs_by_round == {"0": [*planned.jobs], "1": [*planned.jobs]}
    assert "slowdown" in quiet.answer
    assert made.answer == (
        "These runs cannot support an answer: others kept 1 of 2 CPUs busy (1 of 2 "
        "runs of 1,1 job 1 and 1 more arm). Measure again when nothing else runs on "
        "this machine."
    )
    assert "other-cpu-processes" in nbkit.audit(study).counts
    assert compared.ratio is not None
    disturbed = nbkit.compare(first, second)
    assert disturbed.ratio is None
    assert "others kept 1 of 2 CPUs busy" in disturbed.sentence


def test_what_the_control_covers_is_not_told_as_a_slowdown():
    result = measured()
    floor = statistics.noise_floor([100.0], [70.0])
    together = [
        replace(
            one,
            noise_floor=floor,
            jobs=tuple(replace(job, noise_floor=floor) for job in one.jobs),
        )
        for one in result.together
    ]
    found = replace(result.measured, together=together, control=floor)

    answer = replace(result, measured=found).answer

    twice = "what a job alone twice differed by (30.0 %)"
    assert "1,1 concurrently: slowdown 1.11 to 1.25" in result.answer
    assert f"1,1 concurrently: no slowdown beyond {twice}, fairness 0." in answer
    assert f"no difference of the total beyond {twice}" in answer
    assert f"Pinned over not pinned: no difference beyond {twice}." in answer
    assert " / " not in answer


def test_the_next_step_on_gpus_has_no_sizes_that_were_for_cpus():
    chosen = {"layout": [1, 1], "device": "cpu", "steps": 6, "image_size": 32}
    result = measured()
    evidence = replace(result.evidence, plan={"chosen": chosen})

    assert replace(result, evidence=evidence).report().next_step == (
        "on a machine with GPUs: papermill notebooks/concurrent_jobs.ipynb out.ipynb "
        "-p layout 1,1"
    )


@pytest.mark.parametrize(("pinned", "verdicts"), [(False, 4), (True, 11)])
def test_every_verdict_of_concurrent_jobs_is_of_one_family(pinned, verdicts):
    found = measured(pinned=pinned)
    held = found.measured.among(verdicts)

    assert len(found.measured.verdicts) == verdicts
    assert {one.comparisons for one in held.verdicts} == {verdicts}
    needed = [job.needed for one in held.together for job in one.jobs]
    assert {one.confidence for one in needed} == {1 - 0.05 / verdicts}
    notes = found.table.notes
    assert any("by Holm's correction" in note for note in notes)
    [runs] = [note for note in notes if "each run" in note]
    assert "1 alone: 99.6, 99.8, 100.0, 100.2, 100.4;" in runs
    assert "; 1,1 job 1: 79.7, 79.8, 80.0, 80.2, 80.3;" in runs
    assert any("1,1: 169.3, 169.7," in note for note in found.totals.notes)
