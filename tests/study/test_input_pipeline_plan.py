"""What the input pipeline notebook will measure is decided, and said, beforehand."""

from __future__ import annotations

import pytest

from nbkit.analysis.tuning import Setting, Trial, tune
from nbkit.config.pipeline import PIPELINES, pipeline_steps
from nbkit.datasets import pack
from nbkit.errors import ConfigError, NotEnoughDataError
from nbkit.study import input_pipeline_plan
from nbkit.study.input_pipeline_plan import LADDER, plan, with_setting
from nbkit.study.parameters import Parameters
from tests.telemetry.fake_nvml.fake_driver import FakeGpu
from tests.worker.images import write_classes

OPEN = {
    "arms": None,
    "data": "photos",
    "model": "resnet50",
    "precision": None,
    "emulated_gpu": None,
    "batch_size_per_gpu": None,
    "image_size": 224,
    "gpus": None,
    "workers": None,
    "loaders": None,
    "trials": None,
    "steps": None,
    "warmup_steps": None,
    "repeats": None,
    "control": None,
    "seed": 0,
    "device": "cpu",
    "engine": "local",
}


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """A few images in one TFRecord file."""
    root = tmp_path_factory.mktemp("shards")
    write_classes(root / "flat")
    return pack(root / "flat", root / "packed", "tfrecord", on_progress=lambda *_: None)


@pytest.fixture
def parameters(shards):
    """Return parameters as the notebook would, for CPUs unless said otherwise."""

    def make(**values):
        merged = {**OPEN, "data": str(shards), **values}
        origins = dict.fromkeys(OPEN, "default") | dict.fromkeys(values, "papermill")
        return Parameters(merged, origins)

    return make


def cpus(monkeypatch, count):
    monkeypatch.setattr(input_pipeline_plan, "usable_cpus", lambda: float(count))


def test_without_a_gpu_its_computing_is_emulated_and_the_plan_says_so_first(parameters):
    planned = plan(parameters())

    assert planned.notes[0].startswith("Emulated: device=cpu was asked for")
    assert "432 images/s of resnet50 on one V100-32GB" in planned.notes[0]
    for config in planned.arms.values():
        assert config.task == "load"
        assert config.emulated_step_seconds == pytest.approx(16 / 432)
    assert planned.facts(None)["emulated"]["images_per_second"] == 432


def test_both_pipelines_are_measured_at_every_size_and_the_others_at_the_largest(
    parameters,
):
    planned = plan(parameters(gpus=4))

    assert list(planned.arms) == [
        *(f"chexnet_old, {n}" for n in ("1 rank", "2 ranks", "4 ranks")),
        *(f"chexnet_new, {n}" for n in ("1 rank", "2 ranks", "4 ranks")),
        "naive, 4 ranks",
        "rule, 4 ranks",
    ]
    assert planned.baseline == "chexnet_old, 4 ranks"
    assert [config.gpus for config in planned.arms.values()] == [1, 2, 4, 1, 2, 4, 4, 4]
    assert "-p arms all measures them" in " ".join(planned.notes)


def test_all_arms_are_the_ladder_from_old_to_new_one_change_an_arm(parameters):
    planned = plan(parameters(arms=["all"], gpus=1))

    row = [PIPELINES["chexnet_old"], *LADDER.values(), PIPELINES["chexnet_new"]]
    for name, pipeline in LADDER.items():
        config = planned.arms[f"{name}, 1 rank"]
        assert config.loader_config.pipeline == pipeline
    assert len(set(map(pipeline_steps, row))) == len(row) == 7
    assert not any("Not measured" in note for note in planned.notes)


@pytest.mark.parametrize(
    ("count", "gpus", "workers", "said"),
    [(2, 2, 1, "give -3 loading processes a rank, which cannot be"), (40, 4, 6, "6")],
)
def test_the_rule_of_the_guide_is_an_arm(
    parameters, monkeypatch, count, gpus, workers, said
):
    cpus(monkeypatch, count)

    planned = plan(parameters(gpus=gpus))

    rule = planned.arms[f"rule, {gpus} ranks"]
    assert (rule.loader, rule.loader_config.num_workers) == ("torch", workers)
    assert any("Rule of Dell's guide" in n and said in n for n in planned.notes)


def test_the_grid_doubles_workers_up_to_twice_a_ranks_cores(parameters, monkeypatch):
    cpus(monkeypatch, 64)

    planned = plan(parameters(gpus=4, trials=100))

    assert planned.grid.workers == [1, 2, 4, 8, 16, 32]
    assert planned.start == Setting(8, 2, "torch")
    assert planned.most_trials == 12  # a third of 36, however many are asked for


def test_what_the_tuner_chose_becomes_an_arm(parameters):
    planned = plan(parameters(gpus=1))
    tuning = tune(planned.grid, planned.start, lambda s, _: Trial(s, 10.0 * s.workers))

    tuned = planned.arms_with(tuning)["tuned, 1 rank"]

    assert tuned.loader_config.num_workers == tuning.chosen.workers > 1
    assert tuned.replace(loader="naive", loader_config={}) == planned.arms[
        "naive, 1 rank"
    ].replace(name=tuned.name, loader_config={})
    assert planned.facts(tuning)["tuning"]["chosen"]["loader"] == tuning.chosen.loader
    assert planned.arms_with(None) == planned.arms


def test_a_rule_that_gives_the_tuned_setting_is_not_measured_twice(parameters):
    planned = plan(parameters(gpus=1))
    tuning = tune(planned.grid, planned.start, lambda s, _: Trial(s, 100.0, 0.0))
    assert tuning.chosen == planned.rule

    arms = planned.arms_with(tuning)

    assert "rule, 1 rank" in planned.arms
    assert "rule, 1 rank" not in arms
    assert arms["tuned, 1 rank"] == planned.arms["rule, 1 rank"]
    assert "measured as that" in planned.facts(tuning)["notes"][-1]


def test_a_setting_means_what_each_loader_calls_so(parameters):
    config = plan(parameters()).arms["naive, 2 ranks"]

    dali = with_setting(config, Setting(3, 8, "dali")).loader_config
    torch = with_setting(config, Setting(3, 8, "torch")).loader_config

    assert (dali.num_workers, dali.dali.prefetch_queue_depth) == (3, 8)
    assert (torch.num_workers, torch.prefetch_factor) == (3, 8)


def test_on_gpus_the_arms_train(parameters, drive):
    drive(FakeGpu("GPU-a"), FakeGpu("GPU-b"))

    planned = plan(parameters(device="auto"))

    assert planned.emulated is None
    assert planned.gpus == 2
    assert planned.control == "chexnet_old, 2 ranks"
    assert {config.task for config in planned.arms.values()} == {"train"}
    assert {config.precision for config in planned.arms.values()} == {"fp16"}


def test_a_gpu_nobody_owns_can_be_emulated_where_others_are(parameters, drive):
    drive(FakeGpu("GPU-a"))

    planned = plan(parameters(device="auto", emulated_gpu="H200"))

    assert planned.notes[0].startswith("Emulated: emulated_gpu was asked for")
    assert {config.task for config in planned.arms.values()} == {"load"}


@pytest.mark.parametrize(("steps", "warmup"), [(4, 1), (8, 2), (100, 4)])
def test_a_short_run_still_has_something_to_measure(parameters, steps, warmup):
    planned = plan(parameters(steps=steps))

    assert {config.warmup_steps for config in planned.arms.values()} == {warmup}


def test_what_cannot_be_is_refused_before_anything_starts(parameters, tmp_path):
    with pytest.raises(ConfigError, match="Did you mean 'chexnet_old'"):
        plan(parameters(arms=["chexnet_odl"]))
    with pytest.raises(ConfigError, match=r"repeats=0 is below 1"):
        plan(parameters(repeats=0))
    with pytest.raises(NotEnoughDataError, match=r"'K80' has 0 published"):
        plan(parameters(emulated_gpu="K80"))
    folder = write_classes(tmp_path / "folder")
    with pytest.raises(ConfigError, match=r"is of kind image folder.*pack it"):
        plan(parameters(data=str(folder)))
