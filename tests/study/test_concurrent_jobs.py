"""What the report of concurrent jobs says follows from what was measured."""

from __future__ import annotations

import json

import pytest

from nbkit import statistics
from nbkit.analysis.concurrent import AloneRuns, Job, Overlap, Round, Together, overlap
from nbkit.study.concurrent_jobs import ConcurrentResult
from nbkit.study.concurrent_layouts import Planned, Setting
from nbkit.study.concurrent_rounds import Measured
from nbkit.study.report import Note, Table

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


def measured(*, late=0.0, pinned=True, is_cpu=True, repeats=5):
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
    return ConcurrentResult(
        measured=found,
        notes=["said first"],
        chosen={"layout": [1, 1], "device": "cpu"},
        repeats=repeats,
        is_cpu=is_cpu,
        conditions={"model": "resnet18", "study_id": "a-study"},
    )


def cells(table, first, more=None):
    """Return a row by column, by its first cells."""
    row = next(
        row for row in table.rows if row[0] == first and (more is None or more in row)
    )
    return dict(zip(table.columns, row, strict=True))


def test_the_headline_is_the_slowdown_of_every_job():
    table = measured().table

    assert [row[0] for row in table.rows] == [
        *("1,1 job 1", "1,1 job 2", "1,1 job 1 (pinned)", "1,1 job 2 (pinned)")
    ]
    slowed = cells(table, "1,1 job 1")
    assert (slowed["images/s"], slowed["alone"]) == ("80.0", "100.0")
    assert (slowed["slowdown"], slowed["verdict"]) == ("1.250", "slower")
    kept = cells(table, "1,1 job 2 (pinned)")
    assert (kept["slowdown"], kept["verdict"]) == ("1.010", "no difference shown")
    assert any(note.startswith("Control: 1 alone twice") for note in table.notes)
    assert table.values["slowdown_estimate"][0] == pytest.approx(1.25)


def test_all_jobs_stand_against_their_sum_and_against_one_job():
    found = cells(measured().totals, "1,1")

    assert (found["images/s"], found["over the sum"]) == ("170.0", "0.850")
    assert (found["verdict"], found["over 1 job on all"]) == ("slower", "1.133")
    assert float(found["fairness"]) == pytest.approx(1.7**2 / (2 * 1.45), abs=1e-4)
    assert found["fastest / slowest"] == "1.125"


def test_pinning_is_told_of_jobs_together_and_alone():
    settings = measured().settings

    assert isinstance(settings, Table)
    assert cells(settings, "1,1 together")["ratio"] == "1.182"
    assert cells(settings, "1,1 together")["verdict"] == "faster"
    assert cells(settings, "1 alone")["ratio"] == "1.020"
    assert cells(settings, "2 alone")["verdict"] == "no difference shown"


def test_one_setting_has_nothing_to_compare():
    result = measured(pinned=False)

    assert isinstance(result.settings, Note)
    assert "pinned=false,true compares two" in result.settings.sentences[0]
    assert "Pinned" not in result.answer


def test_the_answer_is_computed_and_says_on_what():
    answer = measured().answer

    assert answer.startswith(
        "CPU, functional: 1,1 at once: slowdown 1.11 to 1.25 against the same job alone"
    )
    assert "1,1 together / the sum of the jobs alone = 0.850" in answer
    assert "1,1 together is slower than the sum of the jobs alone." in answer
    assert "Pinned over not pinned: 1,1 (pinned) together / 1,1 together = 1.18" in (
        answer
    )


def test_rounds_that_hardly_overlap_are_left_out_and_it_is_said():
    result = measured(late=6.0)

    assert cells(result.rounds, "1,1 (left out)", "1")["share"] == "40.0 %"
    assert "1,1 at once: nothing is shown" in result.answer
    left_out = "1,1: 5 of 5 rounds are left out"
    assert any(note.startswith(left_out) for note in result.table.notes)
    assert cells(result.table, "1,1 job 1")["slowdown"] is None
    assert cells(result.totals, "1,1")["over the sum"] is None


def test_every_round_tells_where_it_was_and_which_runs_it_had():
    found = cells(measured().rounds, "1,1 (pinned)", "1")

    assert (found["seconds"], found["share"]) == ("10.0", "100.0 %")
    assert (found["steps"], found["on"]) == ("10 + 10", "CPU 0 + CPU 1")
    assert found["runs"] == "run-pinned-0-1 run-pinned-0-2"


def test_published_jobs_stand_in_tables_of_their_own():
    result = measured()

    found = cells(result.published, "NetApp: 5 jobs of 8 GPUs on shared storage")
    assert (found["slowdown"], found["over the sum"]) == ("0.949 to 1.021", "1.015")
    assert result.published.caption.startswith("Published by others")
    assert cells(result.published_jobs, "NetApp, job 2")["slowdown by time"] == "1.042"
    measured_names = {row[0] for row in result.table.rows}
    assert not measured_names & {row[0] for row in result.published.rows}


def test_the_report_says_what_to_try_and_keeps_every_number():
    report = measured(repeats=2).report()

    assert report.notes[0] == "said first"
    assert report.next_step == (
        "on a machine with GPUs: papermill notebooks/concurrent_jobs.ipynb out.ipynb "
        "-p layout 1,1 -p repeats 5"
    )
    kept = json.loads(json.dumps(report.to_dict()))["result"]
    assert kept["together"][0]["jobs"][0]["slowdown"][0] == pytest.approx(1.25)
    assert len(kept["together"][0]["rounds"]) == 5
    assert kept["published"][0]["rates"] == [21764, 23438, 22556, 22564, 22547]
    assert "DEC-TR-301" in str(report.sources)


def test_on_gpus_nothing_is_functional_and_the_assumption_is_told():
    result = measured(is_cpu=False)

    assert result.answer.startswith("1,1 at once: slowdown")
    assert "on GPUs" in result.table.caption
    assert "equally fast is assumed" in str(result.table.notes)
    assert result.figure.chart.to_dict()["title"]["subtitle"].startswith("measured")


def test_a_round_without_a_step_at_once_has_no_rate():
    never = Round(0, ("a", "b"), overlap([steps(10.0), ()]))

    assert never.overlap == Overlap(0.0, 0.0, ((), ()))
    assert not never.counts
