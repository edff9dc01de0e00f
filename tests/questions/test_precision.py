"""What the precision report says follows from what was measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

import nbkit
from nbkit.config import ExperimentConfig
from nbkit.questions.precision.answers import judge_answers
from nbkit.questions.precision.layouts import Format
from nbkit.questions.precision.page import PrecisionResult
from nbkit.references.rows import published
from nbkit.reports.arms import ArmRun, Arms
from nbkit.reports.renderer import Note, Table
from nbkit.review.bounds import resnet50_bound
from nbkit.review.findings import codes
from nbkit.store.summary import summarise_run

GPU = "NVIDIA A100-SXM4-80GB"
RATES = {
    Format("fp32", "channels_last"): 400.0,
    Format("fp16", "channels_last"): 2400.0,
    Format("fp16", "channels_first"): 1400.0,
    Format("fp16", "channels_last", True): 2500.0,
}
AGAIN = "fp32, channels_last again"


def trained(final, weights_finite=True):
    """Return the summary of a run that ended at a loss."""
    lines = [
        {
            "kind": "step",
            "step": number,
            "images": 256,
            "loss": loss,
            "step_time_seconds": 0.1,
            "data_wait_seconds": 0.0,
            "compute_seconds": 0.1,
            "communication_exposed_seconds": 0.0,
            "warmup": False,
        }
        for number, loss in enumerate([7.0, 5.0, final], start=1)
    ]
    return summarise_run(lines, {"weights_finite": weights_finite}, {})


def measured(*, device_type="cuda", finals=None, has_control=True, **facts):
    """Return a result of the arms above, and of the control."""
    repeats = 5
    formats = {one.name: one for one in RATES} | {
        AGAIN: Format("fp32", "channels_last")
    }
    runs = {
        arm: [
            ArmRun(
                run_id=f"{arm} {repeat}",
                images_per_second=RATES[one] * (1 + 0.002 * (repeat - 2)),
                data_wait_share=0.01,
                peak_memory_bytes=22 * 2**30,
                cpu_ms_per_image=1.25,
                seconds=60.0,
                device_type=device_type,
            )
            for repeat in range(repeats)
        ]
        for arm, one in formats.items()
    }
    answers = judge_answers(
        {
            arm: {n: trained((finals or {}).get(arm, 2.0)) for n in range(repeats)}
            for arm in formats
        },
        "fp32, channels_last",
        control=AGAIN if has_control else None,
        tolerance=0.05,
    )
    configs = {
        arm: ExperimentConfig(
            precision=one.precision,
            memory_format=one.memory_format,
            compile=one.compile,
            batch_size_per_gpu=256,
        )
        for arm, one in formats.items()
    }
    return PrecisionResult(
        arms=Arms(runs, "fp32, channels_last", AGAIN),
        configs=configs,
        answers=answers,
        plan={"loss_tolerance": 0.05, "notes": ["said first"], "chosen": {}},
        repeats=repeats,
        conditions={
            "model": "resnet50",
            "image_size": 224,
            "steps": 3,
            "device_name": GPU if device_type == "cuda" else "a CPU",
            **facts,
        },
    )


def cells(table, arm):
    """Return a row by column, of the first row whose first cell is this."""
    row = next(row for row in table.rows if row[0] == arm)
    return dict(zip(table.columns, row, strict=True))


def test_formats_whose_batch_normalisation_is_of_others_get_a_footnote():
    names = ["cudnn", "native", "native", "inductor"]
    norms = dict(zip([one.name for one in RATES], names, strict=True))

    noted = replace(measured(), batch_norms=norms)

    said = "by cuDNN in fp32, channels_last, by torch's own kernels in fp16, channels_l"
    assert said in noted.table.to_text().replace("\n", " ")
    assert noted.report().result["batch_norms"] == norms
    assert "atch normalisation" not in measured().table.to_text()


def test_a_suspect_answer_is_told_in_the_table_and_keeps_its_arm_from_the_headline():
    compiled = "fp16, channels_last, compiled"
    result = measured(finals={compiled: 6.5})

    assert cells(result.table, compiled)["loss"] == "6.500, wrong answer?"
    assert any(
        note.startswith(f"{compiled}: wrong answer?") for note in result.table.notes
    )
    assert "above the baseline's by 64 % of the first loss" in str(result.table.notes)
    assert cells(result.answer_table, compiled)["finding"] == "wrong answer?"
    assert result.answer.startswith("fp16, channels_last trains 2,400")
    assert f"not counted: {compiled}" in result.answer
    assert f"{compiled}: wrong answer?" in result.report().untimed
    assert "fp16, channels_last: nothing suspicious" in result.untimed


def test_an_answer_that_only_the_control_could_judge_is_not_called_wrong():
    compiled, first = "fp16, channels_last, compiled", "fp16, channels_first"
    result = measured(finals={compiled: 3.0, first: 3.0}, has_control=False)

    assert cells(result.table, compiled)["loss"] == "3.000, not judged"
    assert cells(result.answer_table, compiled)["finding"] == "not judged"
    assert "wrong answer?" not in result.table.to_text()
    [note] = [one for one in result.table.notes if one.startswith(f"{compiled}: ")]
    assert note.endswith("measure with control=True.")
    assert result.answer.startswith("fp16, channels_last trains 2,400")
    assert "whose answer is not judged without the control (its" in result.answer
    assert isinstance(result.layout, Note)
    assert f"{first} is omitted: its answer is not judged" in str(result.layout)


def test_a_loss_that_is_not_finite_is_said_so():
    result = measured(finals={"fp16, channels_last": None})

    assert cells(result.table, "fp16, channels_last")["loss"] == (
        "not finite, wrong answer?"
    )
    assert (
        cells(result.answer_table, "fp16, channels_last")["against the baseline"]
        is None
    )


@pytest.mark.parametrize(
    "wrong", ["fp16, channels_last", "fp16, channels_first", "fp32, channels_last"]
)
def test_the_layout_gives_no_speed_up_to_a_wrong_answer(wrong):
    result = measured(finals={wrong: None})

    assert isinstance(result.layout, Note)
    [said] = result.layout.sentences
    assert wrong in said
    assert "omitted" in said
    report = result.report()
    assert report.notes.count(said) == 1
    assert report.to_dict()["result"]["layouts"] == []


def test_ratios_of_layouts_stand_under_their_table_alone():
    result = measured()
    said = result.layout.notes[0]

    assert "The layout alone: " in said
    # Notes stay where the answer is taken back.
    assert said not in result.report().notes


def test_how_close_to_the_bound_others_came_is_what_they_published():
    shares = {}
    for row in published():
        if row.model != "resnet50" or row.phase != "train" or row.publisher == "ffcv":
            continue
        if row.images_per_second and row.gpu_name and row.precision == "fp16":
            bound = resnet50_bound(row.gpu_name, row.precision, "fused")
            if bound is not None:
                rate = row.images_per_second / row.world_size
                share = rate / bound.images_per_second
                shares[row.gpu_name] = max(share, shares.get(row.gpu_name, 0.0))

    h200, l40s = shares["H200-SXM-141GB"], shares["L40S"]
    said = f"{h200 * 100:.0f} % (H200) to {l40s * 100:.0f} % (L40S)"
    assert l40s == max(shares.values())
    assert isinstance(bounds := measured().bounds, Table)
    assert said in bounds.notes[0]
    assert said in codes()["near-bound"].why


@pytest.mark.parametrize("change", [{"gpus": 4}, {"image_size": 128}])
def test_rates_of_several_gpus_or_another_size_stand_beside_no_published_one(change):
    result = measured()
    configs = {arm: one.replace(**change) for arm, one in result.configs.items()}

    assert result.published
    assert replace(result, configs=configs).published == {}


def test_every_arm_is_held_against_the_bound_of_its_kernels():
    bounds = measured().bounds

    assert isinstance(bounds, Table)
    assert GPU in bounds.caption
    eager = cells(bounds, "fp16, channels_last")
    assert (eager["kernels"], eager["share"]) == ("eager", "64.3 %")
    assert cells(bounds, "fp16, channels_last, compiled")["kernels"] == "fused"
    assert AGAIN not in [row[0] for row in bounds.rows]


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"device_name": "Imaginary 9000"}, "peaks of Imaginary 9000 are not known"),
        ({"device_type": "cpu"}, "no GPU was measured"),
    ],
)
def test_where_no_bound_is_known_it_is_said(facts, said):
    bounds = measured(**facts).bounds

    assert isinstance(bounds, Note)
    assert said in bounds.sentences[0]


@pytest.mark.nonfinite
def test_gradients_that_overflow_in_a_real_run_are_skipped_counted_and_recorded(small):
    fields = {"model": "overflows_once", "gpus": 1}

    half = nbkit.launch(small(precision="fp16", **fields)).wait()
    single = nbkit.launch(small(precision="fp32", **fields)).wait()

    skipped = [line["step"] for line in half.metrics() if line["update_skipped"]]
    assert skipped == [3]
    assert (half.summary.updates_skipped, half.summary.loss_scale) == (1, 32768.0)
    assert half.summary.loss_not_finite_at_step is None
    assert half.summary.weights_finite is True
    assert half.worker["weights_finite"] is True
    assert single.summary.loss_not_finite_at_step == 4
    assert single.summary.final_loss is None
    assert single.summary.weights_finite is False
    assert "update_skipped" not in single.metrics()[0]


def test_the_layouts_verdicts_are_of_one_family_with_those_of_the_arms():
    found = measured()
    held = found.among(4)

    # The effect on fp16 is a comparison of its own; that on the baseline is an arm's.
    assert len(found.verdicts) == 4
    assert {one.comparisons for one in held.verdicts} == {4}
    assert held.layouts[0].effect.comparisons == 4
    assert any("by Holm's correction" in note for note in held.layout.notes)
