"""What the input pipeline report says follows from what was measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from nbkit.config import ExperimentConfig
from nbkit.config.pipeline import PIPELINES
from nbkit.questions.input_pipeline.page import PipelineResult
from nbkit.questions.input_pipeline.tables import cores_table, tuning_table
from nbkit.questions.input_pipeline.trials import Grid, Setting, Trial, Tuning, tune
from nbkit.reports.arm_rows import ArmRun
from nbkit.reports.arms import Arms
from nbkit.store.nonfinite import NonFinite
from nbkit.store.summary import summarise_run

DEMAND = 432.0
"""Images/s of one emulated GPU."""

RATES = {
    "chexnet_old, 1 rank": 240.0,
    "chexnet_old, 2 ranks": 250.0,
    "chexnet_new, 1 rank": 400.0,
    "chexnet_new, 2 ranks": 700.0,
    "naive, 2 ranks": 320.0,
    "tuned, 2 ranks": 850.0,
}


def run(rate, size, cpu_ms, config):
    """Return a stand-in for a finished run, whose steps mostly find a batch."""
    images = 16 * size
    seconds = 10 * images / rate
    # Nine steps find a full buffer, the tenth waits: its median is not its rate.
    times = [0.02] * 9 + [seconds - 0.18]
    waits = [0.0] * 9 + [seconds - 0.2]
    lines = [
        {
            "kind": "step",
            "attempt": 0,
            "step": number,
            "t": float(number),
            "images": images,
            "loss": None,
            "step_time_seconds": time,
            "data_wait_seconds": wait,
            "compute_seconds": 0.02,
            "communication_exposed_seconds": 0.0,
            "warmup": False,
        }
        for number, (time, wait) in enumerate(zip(times, waits, strict=True), start=1)
    ]
    worker = {"task": "load", "device_type": "cpu", "world_size": size}
    return SimpleNamespace(
        summary=summarise_run(lines, worker, {}),
        record={},
        metrics=lambda _: lines,
        paths=SimpleNamespace(root=Path("nowhere")),
        cpu_ms=cpu_ms,
        config=config,
    )


def config(arm, *, emulated=True):
    name, _, size = arm.partition(", ")
    steps = PIPELINES.get(name)
    return ExperimentConfig(
        task="load" if emulated else "train",
        loader="tfrecord" if steps else "naive" if name == "naive" else "torch",
        loader_config={"pipeline": steps} if steps else {},
        gpus=int(size.split()[0]),
        device="cpu",
    )


def measured(*, emulated=True, tuned=True):
    """Return a result of the arms above."""
    repeats = 5
    configs = {arm: config(arm, emulated=emulated) for arm in RATES}
    runs = {
        arm: [
            run(rate * (1 + 0.002 * repeat), configs[arm].gpus, 2.5, configs[arm])
            for repeat in range(repeats)
        ]
        for arm, rate in RATES.items()
    }
    largest = {
        arm: [
            ArmRun(
                f"{arm} {number}",
                one.summary.images_per_second,
                data_wait_share=one.summary.data_wait_share,
                cpu_ms_per_image=one.cpu_ms,
                device_type="cpu",
            )
            for number, one in enumerate(many)
        ]
        for arm, many in runs.items()
        if configs[arm].gpus == 2
    }
    grid = Grid(["torch", "tfrecord"], [1, 2, 4], [2, 4, 8])
    tuning = tune(
        grid, Setting(1, 2, "torch"), lambda s, _: Trial(s, 100.0 * s.workers, 0.3, 2.0)
    )
    values = {
        "images_per_second": DEMAND,
        "gpu_name": "V100-32GB",
        "source": "a table",
        "title": "NVIDIA, a table",
        "url": "https://example.com",
        "seconds": 0.04,
    }
    return PipelineResult(
        arms=Arms(largest, "chexnet_old, 2 ranks"),
        configs=configs,
        runs=runs,
        plan={
            "baseline": "chexnet_old, 2 ranks",
            "gpus": 2,
            "cores": 2.0,
            "emulated": values if emulated else None,
            "tuning": tuning.to_dict() if tuned else None,
            "notes": ["said first"],
            "chosen": {"gpus": 2},
        },
        repeats=repeats,
        conditions={"steps": 10, "study_id": "a-study"},
    )


def cells(table, first):
    """Return a row by column, of the first row whose first cell is this."""
    row = next(row for row in table.rows if row[0] == first)
    return dict(zip(table.columns, row, strict=True))


def test_a_rate_is_that_of_the_whole_window_and_not_of_the_median_step():
    result = measured()

    new = cells(result.table, "chexnet_new, 2 ranks")
    assert new["images/s"] == "702.8"
    assert (new["verdict"], new["GPU at 0 %"]) == ("faster", "–")
    # Nine steps behind the first one take 435 ms, and 40 ms of each are computing.
    assert new["AU"] == "82.7 %"
    assert result.runs["naive, 2 ranks"][0].summary.images_per_second_median == 1600
    assert result.table.caption.startswith("Input measured, GPUs emulated")
    assert any("images / time" in line for line in result.report().method)


def test_cores_needed_are_demand_over_the_rate_of_a_core():
    naive = cells(measured().cores_table, "naive, 2 ranks")

    # 864 images/s of 2.5 ms each.
    assert naive["images/s of a core"] == "400.0"
    assert naive["cores needed"] == "2.2"
    assert naive["2 are enough"] == "no"


@pytest.mark.parametrize(
    ("of_job", "said", "enough"), [(8.0, "8 are enough", "yes"), (None, "enough", None)]
)
def test_cores_of_a_job_are_those_its_runs_recorded_and_not_those_of_the_login_node(
    of_job, said, enough
):
    here = measured(emulated=False)
    queued = replace(
        here,
        configs={arm: one.replace(engine="slurm") for arm, one in here.configs.items()},
        conditions={**here.conditions, "usable_cpus": of_job},
    )

    assert cells(queued.cores_table, "naive, 2 ranks")[said] == enough


def test_a_lower_bound_never_shows_that_cores_are_enough():
    of_two = {"naive": (1000.0, 1.0), "slow": (1000.0, 3.0)}

    loading, training = (cores_table(of_two, 2, trains=t).rows for t in (False, True))

    assert [row[-1] for row in loading] == [None, "no"]
    assert [row[-1] for row in training] == ["yes", "no"]


def test_only_what_loads_and_nothing_else_bounds_the_cores_from_below():
    loading, training = (
        measured(emulated=e).cores_table.notes[0] for e in (True, False)
    )

    assert "lower bound" in loading
    assert "lower bound" not in training
    assert "the input alone needs fewer" in training


def test_real_gpus_ask_for_what_they_compute_when_they_do_not_wait():
    result = measured(emulated=False)

    least = min(one.summary.data_wait_share for one in result.runs["tuned, 2 ranks"])
    rate = max(one.summary.images_per_second for one in result.runs["tuned, 2 ranks"])
    assert result.demand(2) == pytest.approx(rate / (1 - least), rel=0.01)
    assert "emulated" not in result.answer


def test_what_failed_and_whether_noise_was_measured_stand_below_the_trials():
    grid = Grid(["torch", "tfrecord"], [1, 2, 4], [2, 4, 8])
    first = Setting(1, 2, "torch")

    def measure(setting, why):
        if setting.loader == "tfrecord":
            return Trial(setting, 0.0, run_id="a-run", cause="no space left")
        return Trial(setting, 100.0)

    measured_twice = tuning_table(tune(grid, first, measure))
    once = tuning_table(tune(grid, first, measure, most_trials=3))

    row = cells(measured_twice, "3")
    assert (row["images/s"], row[""]) == ("–", "failed")
    assert measured_twice.notes[-1] == "Trial 3 failed: no space left"
    assert "measured twice, differed from itself by 0.0 %" in measured_twice.notes[1]
    assert measured_twice.values["images_per_second"][2] is None
    assert "noise not measured, differences up to 2.0 % are ignored" in once.notes[1]


def test_a_choice_by_disturbed_trials_is_said_to_be_not_reliable():
    others = "Others kept 1.0 of 2 CPUs busy, the run 1.0."
    grid, first = Grid(["torch"], [1, 2], [2]), Setting(1, 2, "torch")

    def noted(disturbed):
        trials = tune(
            grid,
            first,
            lambda s, _: Trial(s, 1.0, disturbed=others if s in disturbed else None),
            most_trials=2,
        )
        return tuning_table(Tuning.from_dict(trials.to_dict())).notes[0]

    assert noted([]).startswith("Chosen: ")
    assert noted([Setting(2, 2, "torch")]) == (
        "Not reliable: 1 of 2 trials were disturbed. Trial 2: Others kept 1.0 of 2 "
        "CPUs busy, the run 1.0. Tune again when nothing else uses this machine."
    )


def test_the_report_keeps_measured_emulated_and_published_apart():
    report = measured().report()

    assert report.notes[0] == "said first"
    chart = json.dumps(report.figures[0].chart.to_dict())
    assert "Asked for, emulated" in chart
    assert '"title": "Measured"' in chart
    result = json.loads(json.dumps(report.to_dict()))["result"]
    assert result["emulated"]["gpu_name"] == "V100-32GB"
    assert result["idle_sample_share"]["naive, 2 ranks"] is None
    assert [row["world_size"] for row in result["sizes"]] == [1, 2]
    assert "https://example.com" in {source.url for source in report.sources}


def test_an_input_whose_training_is_not_finite_is_not_the_fastest():
    result = measured(tuned=False)
    best = result.answer.partition(", ")[2].partition(" delivers")[0]
    arm = f"{best}, 2 ranks"

    lost = {arm: NonFinite("loss", 3)}
    arms = replace(result.arms, not_finite=lost)
    found = replace(result, arms=arms, not_finite=lost)
    base = {"chexnet_old, 2 ranks": NonFinite("loss", 3)}
    none = replace(result, arms=replace(result.arms, not_finite=base))

    assert not found.answer.partition(", ")[2].startswith(best)
    assert cells(found.table, arm)["verdict"] == "loss not finite at step 3"
    assert none.answer.startswith("Nothing is compared")
    old = replace(result, not_finite=base)
    assert [row.ratio is None for row in old.sizes if row.world_size == 2] == [True]


def test_a_ratio_that_the_control_covers_is_not_told():
    result = measured()
    base = result.arms.baseline
    twice = [
        replace(one, images_per_second=3 * (one.images_per_second or 0))
        for one in result.arms.runs[base]
    ]
    runs = {**result.arms.runs, f"{base} again": twice}
    arms = replace(result.arms, runs=runs, control=f"{base} again")

    assert "delivers 2.80 times" in result.answer
    assert replace(result, arms=arms).answer.endswith(
        "; the new pipeline of the CheXNet report (chexnet_new) differs from the old "
        "one (chexnet_old) by no more than chexnet_old twice differed (200.0 %)."
    )


def test_the_next_step_has_no_sizes_that_were_for_cpus():
    chosen = {"gpus": 2, "steps": 6, "image_size": 32, "device": "cpu"}
    result = measured()

    report = replace(result, plan={**result.plan, "chosen": chosen}).report()

    assert report.next_step.startswith("on a machine with GPUs: papermill ")
    assert report.next_step.endswith("out.ipynb -p gpus 2")


def test_the_next_step_keeps_the_sizes_of_gpus_that_were_to_be_emulated():
    chosen = {"emulated_gpu": "A100", "batch_size_per_gpu": 256}
    result = measured()

    report = replace(result, plan={**result.plan, "chosen": chosen}).report()

    assert report.next_step.endswith("-p emulated_gpu A100 -p batch_size_per_gpu 256")


def test_the_smaller_sizes_are_of_one_family_with_the_arms():
    found = measured().among(4)

    # Three arms at the largest size, and the new pipeline at the smaller one.
    assert len(found.verdicts) == 4
    assert {row.ratio.comparisons for row in found.sizes} == {4}
    [held, runs] = found.sizes_table.notes[-2:]
    assert held.endswith("by Holm's correction.")
    assert "chexnet_new, 1 rank: 400.0, 400.8," in runs
