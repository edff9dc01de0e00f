"""What a training does between the first and the last step.

In this process where the processes of a run are not what a test is about.
"""

from __future__ import annotations

import json
import os
import random

import pytest
import torch
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import nbkit
from nbkit.errors import ConfigError
from nbkit.store.record import RunState
from nbkit.telemetry.cpus import cpu_quota
from tests.training import train_here


@pytest.fixture
def images(tmp_path):
    """Two classes that a linear model tells apart: dark and bright pictures."""
    generator = torch.Generator().manual_seed(0)
    for split, count in (("train", 24), ("val", 10)):
        for name, level in (("dark", 40), ("bright", 200)):
            folder = tmp_path / "images" / split / name
            folder.mkdir(parents=True)
            for number in range(count):
                noise = torch.randint(-30, 30, (40, 48, 3), generator=generator)
                pixels = (noise + level).to(torch.uint8).numpy()
                Image.fromarray(pixels).save(folder / f"{number}.jpg")
    return tmp_path / "images"


def test_accumulated_step_is_the_mean(small):
    # So slow that the weights stay: the pool's two batches, one a step or both in one.
    fields = {"learning_rate": 1e-12, "batch_size_per_gpu": 8}

    apart = train_here(small(**fields)).metrics()
    both = train_here(small(gradient_accumulation_steps=2, **fields)).metrics()

    assert apart[0]["loss"] != pytest.approx(apart[1]["loss"], rel=1e-4)
    mean = (apart[0]["loss"] + apart[1]["loss"]) / 2
    assert both[0]["loss"] == pytest.approx(mean, rel=1e-5)
    assert {line["images"] for line in both} == {16}


def test_train_image_folders(small, images):
    config = small(
        data=str(images),
        epochs=6,
        steps=None,
        warmup_steps=1,
        optimizer="adamw",
        learning_rate=0.01,
        evaluation_period_epochs=2,
        crop_area_min=0.5,
    )

    run = train_here(config)

    evaluations = run.metrics("evaluation")
    assert [line["epoch"] for line in evaluations] == [2, 4, 6]
    assert all(line["images"] == 20 for line in evaluations)
    assert run.summary.top1_accuracy == 1.0
    assert run.worker["data"]["fingerprint"]["files"] == 68


def test_train_several_labels(small, tmp_path):
    drawn = random.Random(0)
    lines = ["file,split,red,blue,never"]
    for number in range(60):
        red, blue = drawn.random() < 0.5, drawn.random() < 0.3
        colour = (200 * red + drawn.randrange(40), 60, 200 * blue + drawn.randrange(40))
        Image.new("RGB", (40, 40), colour).save(tmp_path / f"{number}.jpg")
        split = "train" if number < 41 else "val"
        lines.append(f"{number}.jpg,{split},{int(red)},{int(blue)},0")
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    config = small(
        data=str(tmp_path / "labels.csv"),
        epochs=10,
        steps=None,
        warmup_steps=1,
        optimizer="adamw",
        learning_rate=0.02,
        evaluation_period_epochs=10,
        tensorboard=True,
    )

    run = train_here(config)

    (evaluation,) = run.metrics("evaluation")
    assert evaluation["images"] == 19
    assert evaluation["auroc"]["red"] > 0.95
    assert evaluation["auroc"]["blue"] > 0.95
    assert evaluation["auroc"]["never"] is None
    mean = (evaluation["auroc"]["red"] + evaluation["auroc"]["blue"]) / 2
    assert run.summary.mean_auroc == evaluation["mean_auroc"] == pytest.approx(mean)
    assert run.summary.top1_accuracy is None
    assert run.metrics()[-1]["loss"] < run.metrics()[0]["loss"]
    events = EventAccumulator(str(run.paths.tensorboard)).Reload()
    (written,) = events.Scalars("evaluation/mean_auroc")
    assert written.value == pytest.approx(mean)


def test_unreadable_images(small, images):
    (images / "train" / "dark" / "3.jpg").write_bytes(b"no image")

    config = small(data=str(images), evaluation_period_epochs=1)
    with pytest.raises(ConfigError, match=r"1 unreadable.*train/dark/3.jpg"):
        train_here(config)
    (refused,) = nbkit.runs()
    skipping = train_here(config.replace(unreadable_images="skip"))

    assert refused.metrics() == []
    for run in (refused, skipping):
        unreadable = run.worker["data"]["unreadable"]
        assert unreadable["count"] == 1
        assert unreadable["images"][0]["name"] == "train/dark/3.jpg"
    data = skipping.worker["data"]
    assert (data["train_images"], data["dropped_images"]) == (44, 3)
    assert data["evaluation_images"] == 20


@pytest.fixture(scope="module")
def trained(shared_store, small):
    """Forty deterministic steps that leave checkpoints, its ranks bound to cores.

    Its target is reached by the first of many epochs. The ranks have all of torch.
    """
    config = small(
        gpus=2,
        optimizer="sgd",
        learning_rate=1.0,
        num_classes=10,
        steps=None,
        epochs=50,
        images_per_epoch=320,
        evaluation_period_epochs=1,
        target_accuracy=0.01,
        checkpoint_period_steps=15,
        checkpoint_at_end=True,
        tensorboard=True,
        cpu_binding="cores",
        deterministic=True,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WHOLE_TORCH", "1")
        return nbkit.launch(config).wait()


def test_trained_run_ends_at_its_target(trained):
    assert trained.state is RunState.FINISHED
    (evaluation,) = trained.metrics("evaluation")
    assert evaluation["top1_accuracy"] >= 0.01
    lines = trained.metrics()
    assert [line["step"] for line in lines] == list(range(1, 41))
    losses = [line["loss"] for line in lines]
    assert losses[-1] < 0.8 * losses[0]
    events = EventAccumulator(str(trained.paths.tensorboard)).Reload()
    written = [event.value for event in events.Scalars("train/loss")]
    assert written == pytest.approx(losses)


def test_trained_run_checkpoints(trained):
    checkpoints = trained.paths.checkpoints
    kept = sorted(path.name for path in checkpoints.iterdir())
    assert kept == ["step_00000030", "step_00000040"]
    written = [line["step"] for line in trained.metrics("checkpoint")]
    assert written == [15, 30, 40]
    complete = json.loads((checkpoints / kept[-1] / "complete.json").read_text())
    assert set(complete["files"]) == {"state.pt", "rank_0.pt", "rank_1.pt"}


def test_ranks_bound_to_cores_say_which(trained):
    first, second = (set(entry["cpus"]) for entry in trained.worker["ranks"])
    usable = os.sched_getaffinity(0)
    assert len(first) == len(second) == max(1, len(usable) // 2)
    assert len(usable) == 1 or first.isdisjoint(second)
    told = {(rank["num_cpus"], rank["cpu_quota"]) for rank in trained.worker["ranks"]}
    assert told == {(os.cpu_count(), cpu_quota())}


@pytest.mark.parametrize(("optimizer", "rate"), [("lars", 5.0), ("adamw", 0.05)])
def test_every_other_optimizer_lowers_the_loss(small, optimizer, rate):
    config = small(optimizer=optimizer, learning_rate=rate, num_classes=10, steps=40)

    run = train_here(config)

    losses = [line["loss"] for line in run.metrics()]
    assert losses[-1] < 0.8 * losses[0]
