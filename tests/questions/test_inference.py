"""What the inference report says follows from what was measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError
from nbkit.questions.inference.evidence import _at
from nbkit.questions.inference.latency import judge_accuracy
from nbkit.questions.inference.page import InferenceResult
from nbkit.questions.inference.planning import InferencePlan
from nbkit.questions.inference.start import prepare
from nbkit.reports.arms import ArmRun, Arms
from nbkit.reports.renderer import Note
from nbkit.statistics import latency_timings
from nbkit.studies.devices import Devices
from tests.questions.test_inference_latency import saying
from tests.reports.test_energy_per_image import WATTS, write_samples
from tests.statistics.test_latency import line
from tests.widgets.stored_run import WrittenRun

RATES = {"fp32": 100.0, "fp32 again": 100.0, "bf16": 210.0, "int8": 480.0}
FACTS = {
    "fp32": {"weights": "fp32", "elsewhere": "fp32"},
    "bf16": {"weights": "cast to bf16", "elsewhere": "bf16"},
    "int8": {
        "weights": "int8",
        "library": "torch.ao.quantization",
        "library_version": "2.15",
        "backend": "x86",
        "elsewhere": "fp32",
        "int8_multiply_add_share": 0.998,
        "calibration_images": 256,
    },
}
WEIGHTS = {"source": "run", "run_id": "20260101-000000-a", "step": 75, "sha256": "ab12"}


def timed(arm, repeat, size):
    seconds = size / (RATES[arm] * size**0.5 * (1 + 0.002 * repeat))
    return line(size, [seconds] * 100, throughput_seconds=4 * seconds)


def measured(*, repeats=5, device_type="cuda", wrong=(), **plan):
    """Return a result of the formats above, at batches of 1 and 16."""
    timings = {
        arm: [
            latency_timings([timed(arm, repeat, 1), timed(arm, repeat, 16)])
            for repeat in range(repeats)
        ]
        for arm in RATES
    }
    by_size = {
        size: Arms(
            {
                arm: [
                    ArmRun(
                        run_id=f"{arm} {repeat}",
                        images_per_second=one[size].images_per_second,
                        peak_memory_bytes=2**28,
                        device_type=device_type,
                    )
                    for repeat, one in enumerate(starts)
                ]
                for arm, starts in timings.items()
            },
            "fp32",
            "fp32 again",
        )
        for size in (1, 16)
    }
    said = {arm: [saying(wrong if arm == "int8" else ())] for arm in RATES}
    return InferenceResult(
        by_batch_size=by_size,
        timings=timings,
        kept=judge_accuracy(said, dict.fromkeys(RATES, ("top1_accuracy", 0.9)), "fp32"),
        configs={
            arm: ExperimentConfig(task="inference", precision=arm.split()[0])
            for arm in RATES
        },
        workers={
            arm: {"numbers": FACTS.get(arm, FACTS["fp32"]), "weights": WEIGHTS}
            for arm in RATES
        },
        plan={"notes": ["a note"], "chosen": {}, **plan},
        repeats=repeats,
        conditions={"device_name": "Tesla V100-SXM2-16GB", "study_id": "one"},
    )


def cells(table, first, batch):
    [row] = [r for r in table.rows if (r[0], r[1]) == (first, batch)]
    return dict(zip(table.columns, row, strict=True))


def test_the_answer_and_the_accuracy_are_of_the_same_images():
    found = measured(wrong=range(60))

    assert found.answer.startswith("bf16 gives ")
    assert "2.10 times fp32 (95 % interval" in found.answer
    assert "not counted: int8 in batches of 1, 4.80 times fp32 (95 % i" in found.answer
    assert "faster; accuracy is lost (-5.0 points" in found.answer
    assert "int8: accuracy is lost (-5.0 points" in found.report().untimed
    [row] = [row for row in found.accuracy.rows if row[0] == "int8"]
    assert row[-1] == "lost"
    assert row[2] == "95.0 % (93.6 to 96.1)"
    assert row[6] == "-6.2 to -3.7"
    assert not any("too few" in note for note in found.accuracy.notes)


def test_it_is_said_how_many_images_would_do_and_why_nothing_is_judged():
    labels = ["cat"] * 48 + ["dog"] * 48
    said = {arm: [saying(labels=labels)] for arm in RATES}
    scores = dict.fromkeys(RATES, ("top1_accuracy", 1.0))

    few = replace(measured(), kept=judge_accuracy(said, scores, "fp32"))
    untaught = judge_accuracy(said, scores, "fp32", withheld="the weights are random")
    by_chance = replace(measured(), kept=untaught)

    assert "96 images are too few" in few.accuracy.notes[1]
    assert "It takes 276 if both are right on the same" in few.accuracy.notes[1]
    assert few.accuracy.rows[1][-1] == "too few images to tell"
    assert by_chance.accuracy.notes[1] == "Not judged: the weights are random."
    assert [row[-1] for row in by_chance.accuracy.rows] == [
        *("baseline", "not judged", "not judged")
    ]
    assert by_chance.accuracy.rows[1][2] == "100.0 % (96.2 to 100.0)"


@pytest.mark.parametrize(
    ("seconds", "joules"), [(6, WATTS * 6 / 1200), (4, None)], ids=["long", "short"]
)
def test_energy_per_image_is_that_of_the_passes_in_a_row(store, seconds, joules):
    written = WrittenRun(store)
    write_samples(written, counters=("GPU-a",))
    passes = {"throughput_batches": 300, "began": 110.0, "ended": 110.0 + seconds}
    [timing] = latency_timings([line(4, [0.02] * 50, **passes)]).values()

    found = _at(written.run, timing)

    # The counter grows by 300 J a second; of less than five readings nobody knows it.
    expected = None if joules is None else pytest.approx(joules)
    assert found.joules_per_image == expected


def test_it_is_said_how_many_passes_there_were_where_time_has_ended_them():
    found = measured()
    slow = {
        arm: [
            {**start, 16: replace(start[16], passes=12 + repeat)}
            for repeat, start in enumerate(starts)
        ]
        for arm, starts in found.timings.items()
    }

    [said] = set(replace(found, timings=slow).table.notes) - set(found.table.notes)

    assert said == (
        "Batches of 16: 12 to 16 timed passes a run, not 100, since a run times them "
        "for 5 s at most, whatever the format."
    )


def test_without_evaluation_images_nobody_knows_whether_accuracy_is_kept():
    found = measured()
    nothing = judge_accuracy({arm: [None] for arm in RATES}, {}, "fp32")
    found = replace(found, kept=nothing)

    assert isinstance(found.accuracy, Note)
    assert "whether it is kept is unknown" in found.report().notes[-1]
    assert "its accuracy was not compared" in found.answer


def test_the_report_says_on_what_it_was_measured_and_what_comes_next():
    report = measured(repeats=2, device_type="cpu", chosen={"batches": 9}).report()

    assert report.answer.startswith("On a CPU: int8 gives")
    assert "not enough runs for a verdict (2 an arm)" in report.answer
    assert report.next_step == (
        "papermill notebooks/inference.ipynb out.ipynb -p batches 9 -p repeats 5\n"
        "on a machine with a GPU: papermill notebooks/inference.ipynb out.ipynb -p "
        "repeats 5"
    )
    assert report.notes[0] == "a note"
    assert report.title.endswith("?")
    assert len(report.figures) == 2


def planned():
    """Return a plan of small runs with synthetic images."""
    base = ExperimentConfig(
        task="inference",
        model="tiny",
        device="cpu",
        image_size=32,
        tensorboard=False,
        compile=True,
    )
    return InferencePlan(
        arms={one: base.replace(precision=one) for one in ("fp32", "bf16", "int8")},
        training=None,
        control=None,
        devices=Devices("cpu", 2),
        repeats=1,
        accuracy_margin=0.01,
        notes=("first",),
        chosen={},
    )


def test_a_format_that_this_device_has_not_is_named_and_the_rest_goes_on(capsys):
    # torch.compile cannot take in the INT8 kernels of a CPU.
    ready = prepare(planned())

    assert list(ready.arms) == ["fp32", "bf16"]
    assert "compile=True with precision='int8' on a CPU" in ready.unavailable["int8"]
    assert ready.notes[0].startswith("int8 is not available: ")
    assert ready.facts["unavailable"] == dict(ready.unavailable)
    assert "[1/1] int8 once: failed" in capsys.readouterr().out

    alone = {arm: one for arm, one in planned().arms.items() if arm != "bf16"}
    with pytest.raises(ConfigError, match="This leaves only fp32; add a format"):
        prepare(replace(planned(), arms=alone))


@pytest.mark.parametrize("comparisons", [1, 4])
def test_verdicts_on_all_batch_sizes_are_of_one_family(comparisons):
    found = measured().among(comparisons)

    # Two formats at two sizes; the control is not among them.
    assert len(found.verdicts) == 4
    assert {one.comparisons for one in found.verdicts} == {comparisons}
    [held, runs] = found.table.notes[-2:]
    assert held.endswith("by Holm's correction.")
    assert "int8, batches of 16: 1,920, 1,924," in runs
