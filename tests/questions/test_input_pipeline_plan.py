"""What the input pipeline notebook will measure is decided, and said, beforehand."""

from __future__ import annotations

from functools import partial

import pytest

from nbkit.config.pipeline import PIPELINES, pipeline_steps
from nbkit.datasets import pack, packing
from nbkit.datasets.find import find
from nbkit.errors import ConfigError, NotEnoughDataError
from nbkit.questions.input_pipeline import packs as input_pipeline_data
from nbkit.questions.input_pipeline import planning as input_pipeline_plan
from nbkit.questions.input_pipeline.planning import (
    LADDER,
    plan,
    with_setting,
    with_tuning,
)
from nbkit.questions.input_pipeline.trials import LoaderSetting, Trial, tune
from nbkit.studies import photo_copies
from tests.datasets.images import jpeg
from tests.questions.conftest import notebook_parameters
from tests.telemetry.fake_nvml.fake_driver import FakeGpu
from tests.worker.images import write_classes

IMAGES = 800
FILES = 40


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """As many images as four ranks need in ten batches, in files of twenty."""
    root = tmp_path_factory.mktemp("shards")
    bound = write_copies(root / "flat", IMAGES // 10) * IMAGES / FILES
    with pytest.MonkeyPatch.context() as patch:
        # Sizes count in millions of bytes, far above these.
        patch.setattr(packing, "SHARD_MEGABYTES", bound / 1e6)
        pack(root / "flat", root / "packed", "tfrecord", on_progress=lambda *_: None)
    assert len(list((root / "packed").glob("train-*.tfrecord"))) == FILES
    return root / "packed"


def write_copies(folder, copies):
    """Write one picture of each class so many times; return the bytes of each."""
    for first in write_classes(folder).glob("*/*"):
        first.write_bytes(jpeg(1))
        for number in range(1, copies):
            first.with_stem(f"{number}").hardlink_to(first)
    return len(jpeg(1))


@pytest.fixture
def parameters(shards):
    """Return parameters as the notebook would, for CPUs unless said otherwise."""

    return partial(notebook_parameters, "input_pipeline", data=str(shards))


def cpus(monkeypatch, count):
    monkeypatch.setattr(input_pipeline_plan, "usable_cpus", lambda: float(count))


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
    [
        (2, 2, 1, "2 ranks give no worker, so 1 worker per rank is measured."),
        (5, 1, 1, "5 cores and 1 rank give 1 worker per rank."),
        (40, 4, 6, "give 6 workers per rank."),
    ],
)
def test_the_rule_of_the_guide_is_an_arm(
    parameters, monkeypatch, count, gpus, workers, said
):
    cpus(monkeypatch, count)

    planned = plan(parameters(gpus=gpus))

    rule = planned.arms[f"rule, {gpus} {'rank' if gpus == 1 else 'ranks'}"]
    assert (rule.loader, rule.loader_config.num_workers) == ("torch", workers)
    assert any("Dell guide's rule" in n and said in n for n in planned.notes)


def test_the_grid_doubles_workers_up_to_twice_a_ranks_cores(parameters, monkeypatch):
    cpus(monkeypatch, 64)

    planned = plan(parameters(gpus=4, trials=100, steps=1024))

    assert planned.grid.workers == [1, 2, 4, 8, 16, 32]
    assert planned.start == LoaderSetting(8, 2, "torch")
    assert planned.most_trials == 12  # a third of 36, however many are asked for
    assert not any("tuner skips" in note for note in planned.notes)


def test_settings_that_load_a_quarter_of_a_run_ahead_are_left_out(
    parameters, monkeypatch
):
    cpus(monkeypatch, 64)

    planned = plan(parameters(gpus=4, steps=110))

    settings = planned.grid.settings
    assert max(one.workers * one.prefetch for one in settings) == 16
    assert planned.start == LoaderSetting(8, 2, "torch")
    assert len(settings) == 18
    assert any("skips 18 settings" in note for note in planned.notes)
    # Two batches ahead are the fewest there are.
    assert [one.workers for one in plan(parameters(steps=4)).grid.settings] == [1, 1]


def test_what_the_tuner_chose_becomes_an_arm(parameters):
    planned = plan(parameters(gpus=1, steps=96))
    tuning = tune(planned.grid, planned.start, lambda s, _: Trial(s, 10.0 * s.workers))

    with_tuned = with_tuning(planned, tuning, planned.tuned)
    tuned = with_tuned.arms["tuned, 1 rank"]

    assert tuned.loader_config.num_workers == tuning.chosen.workers > 1
    assert tuned.replace(loader="naive", loader_config={}) == planned.arms[
        "naive, 1 rank"
    ].replace(name=tuned.name, loader_config={})
    chosen = with_tuned.facts["tuning"]["chosen"]
    assert chosen["loader"] == tuning.chosen.loader


def test_a_rule_that_gives_the_tuned_setting_is_not_measured_twice(parameters):
    planned = plan(parameters(gpus=1))
    tuning = tune(planned.grid, planned.start, lambda s, _: Trial(s, 100.0, 0.0))
    assert tuning.chosen == planned.rule

    with_tuned = with_tuning(planned, tuning, planned.tuned)
    arms = with_tuned.arms

    assert "rule, 1 rank" in planned.arms
    assert "rule, 1 rank" not in arms
    assert arms["tuned, 1 rank"] == planned.arms["rule, 1 rank"]
    same = "The rule and the tuner give the same setting, which is measured once."
    assert same not in planned.notes
    assert same in with_tuned.notes


def test_a_setting_means_what_each_loader_calls_so(parameters):
    config = plan(parameters()).arms["naive, 2 ranks"]

    dali = with_setting(config, LoaderSetting(3, 8, "dali")).loader_config
    torch = with_setting(config, LoaderSetting(3, 8, "torch")).loader_config

    assert (dali.num_workers, dali.dali.prefetch_queue_depth) == (3, 8)
    assert (torch.num_workers, torch.prefetch_factor) == (3, 8)


def test_a_gpu_nobody_owns_can_be_emulated_where_others_are(parameters, drive):
    drive(FakeGpu("GPU-a"))

    planned = plan(
        parameters(device="auto", emulated_gpu="H100-SXM-80GB", batch_size_per_gpu=16)
    )

    assert planned.notes[0].startswith("Emulated GPU: emulated_gpu is set")
    assert {config.task for config in planned.arms.values()} == {"load"}


def test_what_cannot_be_is_refused_before_anything_starts(parameters, tmp_path):
    with pytest.raises(ConfigError, match="Did you mean 'chexnet_old'"):
        plan(parameters(arms=["chexnet_odl"]))
    with pytest.raises(ConfigError, match=r"repeats=0 is below 1"):
        plan(parameters(repeats=0))
    with pytest.raises(ConfigError, match=r"steps=0 is below 1"):
        plan(parameters(steps=0))
    with pytest.raises(ConfigError, match=r"workers=-1 is not between 0 and 256"):
        plan(parameters(workers=-1))
    with pytest.raises(ConfigError, match=r"loaders=torch,naive: 'naive' has no work"):
        plan(parameters(loaders=["torch", "naive"]))
    with pytest.raises(ConfigError, match=r"Did you mean 'torch'"):
        plan(parameters(loaders=["tfrecord", "trch"]))
    with pytest.raises(NotEnoughDataError, match=r"'K80' cannot be emulated: no pub"):
        plan(parameters(emulated_gpu="K80"))
    folder = write_classes(tmp_path / "folder")
    with pytest.raises(ConfigError, match=r"is of kind image folder.*Pack it"):
        plan(parameters(data=str(folder)))


def test_arms_that_follow_from_the_cores_of_another_machine_are_refused(
    parameters, shards, cluster, monkeypatch
):
    cpus(monkeypatch, 64)
    cluster("(null)")
    queued = {"engine": "slurm", "gpus": 2}

    with pytest.raises(
        ConfigError, match=r"engine='slurm': .* for arms=tuned,rule\. Use arms=naive"
    ):
        plan(parameters(**queued))

    planned = plan(parameters(**queued, arms=["naive"], device="auto"))
    assert planned.facts["cores"] is None
    # The folder's name has digits of its own.
    assert "64" not in " ".join(planned.notes).replace(str(shards), "")
    assert planned.notes[0].startswith("Emulated GPU: there is no GPU on these nodes")


def test_images_that_last_for_a_few_batches_are_refused(parameters):
    with pytest.raises(ConfigError, match=r"800 training .* 8 batches .*minimum 10"):
        plan(parameters(gpus=1, batch_size_per_gpu=100))

    assert plan(parameters(gpus=1, batch_size_per_gpu=80)).arms


def test_files_that_ranks_cannot_share_are_refused(parameters, tmp_path):
    write_copies(tmp_path / "flat", 8)
    pack(tmp_path / "flat", tmp_path / "one", "tfrecord", on_progress=lambda *_: None)

    with pytest.raises(ConfigError, match=r"1 TFRecord file for .* 2 ranks"):
        plan(parameters(data=str(tmp_path / "one"), gpus=2, batch_size_per_gpu=1))


@pytest.fixture
def few_photos(tmp_path, monkeypatch):
    """Let the built-in set be small here, and its files too."""
    folder = tmp_path / "photos"
    write_copies(folder / "train", 4)
    monkeypatch.setattr(photo_copies, "photos_folder", lambda: folder)
    monkeypatch.setattr(input_pipeline_data, "cache_path", lambda _: folder)
    monkeypatch.setattr(packing, "SHARD_MEGABYTES", 0.2)
    monkeypatch.setattr(input_pipeline_data, "pack", lambda *given, **_: pack(*given))
    return folder


def test_the_built_in_set_is_copied_until_the_gpus_defaults_can_run(
    parameters, few_photos, drive, monkeypatch
):
    drive(FakeGpu("GPU-a"))

    planned = plan(parameters(device="auto", data="photos"))

    config = planned.arms["chexnet_old, 1 rank"]
    assert config.batch_size_per_gpu == 256
    assert len(find(config.data).contents.train) == 77 * 40 >= 12 * 256
    assert any("photos (77 copies of each image)" in note for note in planned.notes)
    made = few_photos.parent / "nbkit-photos-77"
    before = {path: path.stat().st_mtime_ns for path in made.rglob("*")}
    assert plan(parameters(device="auto", data="photos")).arms == planned.arms
    assert {path: path.stat().st_mtime_ns for path in made.rglob("*")} == before


def test_no_room_for_the_copies_is_said_in_this_notebooks_words(
    parameters, few_photos, monkeypatch
):
    monkeypatch.setattr(photo_copies, "describe_storage", lambda _: {"free_bytes": 1})

    with pytest.raises(ConfigError, match=r"copied 10 times .* Use a smaller batch"):
        plan(parameters(data="photos", gpus=2))

    assert [path.name for path in few_photos.parent.iterdir()] == ["photos"]
