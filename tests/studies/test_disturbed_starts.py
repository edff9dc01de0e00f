"""Which disturbed starts are made once more, and what is said of those they replace."""

from __future__ import annotations

import json
import shutil

import pytest

import nbkit
from nbkit.questions.study_report import make
from nbkit.review.causes import Cause, Diagnosis
from nbkit.studies.disturbed_starts import chosen
from nbkit.studies.order import Slot
from nbkit.studies.study import Study
from tests.studies.written_study import write_runs


def starts(disturbed):
    return {Slot("a", number): number in disturbed for number in range(9)}


@pytest.mark.parametrize(
    ("disturbed", "again"),
    [([], []), ([4], [4]), ([0, 4, 8], [0, 4, 8]), ([0, 1, 2, 3], []), (range(9), [])],
)
def test_few_disturbed_starts_are_made_once_more_and_many_are_not(disturbed, again):
    assert [slot.repeat for slot in chosen(starts(disturbed))] == again


WAITED_SECONDS = 1000.0
"""For a CPU, by a run that is disturbed here; tests side by side cost a run less."""


def disturb(run):
    """Let a run say that somebody else had its CPU for half of the time."""
    lasted = 2 * WAITED_SECONDS
    worker = json.loads(run.paths.worker.read_text())
    worker["ranks"][0] |= {"step_time_seconds": lasted, "counted_seconds": lasted}
    worker["ranks"][0] |= {"cpu_seconds": 0.45 * lasted}
    worker["ranks"][0] |= {"cpu_queue_seconds": WAITED_SECONDS}
    cpus = run.record["machine"]["num_cpus"]
    worker["ranks"][0] |= {"host_cpu_seconds": lasted * cpus, "cpus": [*range(cpus)]}
    run.paths.worker.write_text(json.dumps(worker))


def interrupt(progress, count):
    raise KeyboardInterrupt


def test_a_disturbed_start_is_made_once_more_also_after_an_interrupt_and_never_again(
    small, capsys, monkeypatch
):
    limit = "nbkit.review.cpu_checks._QUEUE_SECONDS"
    monkeypatch.setattr(limit, WAITED_SECONDS)
    study = nbkit.Study.create("again", {"a": small(steps=3)}, repeats=3)
    study.run(progress=False)
    first = study.runs_by_arm()["a"]
    disturb(first[1])
    study.run()
    assert study.replaced == []  # a study that is whole is left as it is
    shutil.rmtree(first[2].paths.root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nbkit.studies.study.Progress.repeat", interrupt)
        with pytest.raises(KeyboardInterrupt):
            study.run()
    assert study.missing == []

    study.resume()

    assert "1 run was disturbed and repeated:" in capsys.readouterr().out
    counted = study.runs_by_arm()["a"]
    assert counted[0].run_id == first[0].run_id
    [replaced] = study.replaced
    assert (replaced.run.run_id, replaced.by.run_id) == (
        first[1].run_id,
        counted[1].run_id,
    )
    report = nbkit.report(study).report
    assert report.result["replaced"] == [replaced.to_dict()]
    said = f"Disturbed and repeated, 1 of 3 starts: {replaced.words}."
    assert said in report.method
    disturb(counted[1])
    assert study.disturbed == []


def test_a_study_says_how_long_it_has_waited_for_a_quiet_machine(small, monkeypatch):
    monkeypatch.setattr("nbkit.studies.quiet._LOOK_SECONDS", 0.0)
    study = nbkit.Study.create("quiet", {"a": small(steps=3)})

    study.run(progress=False, wait_for_quiet=0.01)

    [wait] = study.waits
    assert str(wait) in nbkit.report(study).report.method


def test_a_report_says_what_the_starts_that_were_replaced_would_have_given(
    store, monkeypatch
):
    base = nbkit.ExperimentConfig(model="resnet18", batch_size_per_gpu=8, steps=20)
    study = Study.create("again", {"a": base, "b": base})
    other = Study.create("other", {"b": base})
    write_runs(study, {"a": 100.0, "b": 300.0})
    write_runs(other, {"b": 150.0})
    content, more = (json.loads(one.paths.study.read_text()) for one in (study, other))
    again = {**more["runs"][0], "again": True}
    runs = [*content["runs"], again]
    study.paths.study.write_text(json.dumps({**content, "runs": runs}))

    report = make(study)

    assert "b / a = 1.500" in report.answer
    repeated, instead = report.method[-2:]
    assert repeated.startswith("Disturbed and repeated, 1 of 2 starts: b, repeat 1: ")
    assert instead.startswith(
        "With the starts that were replaced: CPU, functional: b / a = 3.000"
    )
    [replaced] = study.replaced
    held = Cause("throttled", 0.4, "Clocks were held down.", "Leave.", None)
    monkeypatch.setattr(
        "nbkit.reports.bottlenecks.diagnose",
        lambda run: Diagnosis("a run", [held] * (run.run_id == replaced.run.run_id)),
    )
    *_, instead = make(study).method
    assert "These runs cannot support an answer: " in instead
    assert "3.000" not in instead


@pytest.mark.parametrize("by_conditions", [True, False])
def test_what_a_run_has_measured_is_no_reason_to_repeat_it(
    by_conditions, store, monkeypatch
):
    base = nbkit.ExperimentConfig(model="resnet18", batch_size_per_gpu=8, steps=20)
    study = Study.create("late images", {"a": base}, repeats=3)
    write_runs(study, {"a": 100.0})
    late = study.runs_by_arm()["a"][1].run_id
    waited = Cause("other-processes", 0.2, "Others.", "Leave.", None, by_conditions)
    monkeypatch.setattr(
        "nbkit.studies.disturbed_starts.diagnose",
        lambda run: Diagnosis("a run", [waited] * (run.run_id == late)),
    )

    assert [slot.repeat for slot in study.disturbed] == [1] * by_conditions
