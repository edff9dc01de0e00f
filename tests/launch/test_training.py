"""What the ranks do between the first and the last step."""

from __future__ import annotations

import json

import pytest
import torch
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import nbkit
from nbkit.errors import ConfigError, RunFailedError
from nbkit.store.record import RunState


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


def test_an_accumulated_step_is_the_mean_of_its_parts(small):
    # So slow that the weights stay: the pool's two batches, one a step or both in one.
    fields = {"gpus": 1, "learning_rate": 1e-12, "batch_size_per_gpu": 8}

    apart = nbkit.launch(small(**fields)).wait().metrics()
    both = nbkit.launch(small(gradient_accumulation_steps=2, **fields)).wait().metrics()

    assert apart[0]["loss"] != pytest.approx(apart[1]["loss"], rel=1e-4)
    mean = (apart[0]["loss"] + apart[1]["loss"]) / 2
    assert both[0]["loss"] == pytest.approx(mean, rel=1e-5)
    assert {line["images"] for line in both} == {16}


def test_image_folders_are_learned_and_every_validation_image_counts_once(
    small, images
):
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

    run = nbkit.launch(config).wait()

    evaluations = run.metrics("evaluation")
    assert [line["epoch"] for line in evaluations] == [2, 4, 6]
    assert all(line["images"] == 20 for line in evaluations)
    assert run.summary.top1_accuracy == 1.0
    assert run.worker["data"]["fingerprint"]["files"] == 68


def test_a_run_ends_once_it_reaches_its_target(small, images):
    config = small(
        data=str(images),
        epochs=50,
        steps=None,
        warmup_steps=1,
        optimizer="adamw",
        learning_rate=0.01,
        evaluation_period_epochs=1,
        target_accuracy=0.9,
    )

    run = nbkit.launch(config).wait()

    assert run.state is RunState.FINISHED
    assert run.metrics("evaluation")[-1]["top1_accuracy"] >= 0.9
    assert run.metrics()[-1]["epoch"] < 49


def test_checkpoints_are_complete_and_the_oldest_go(small):
    config = small(checkpoint_period_steps=2, checkpoint_at_end=True)

    run = nbkit.launch(config).wait()

    kept = sorted(path.name for path in run.paths.checkpoints.iterdir())
    assert kept == ["step_00000006", "step_00000008"]
    assert [line["step"] for line in run.metrics("checkpoint")] == [2, 4, 6, 8]
    complete = json.loads(
        (run.paths.checkpoints / "step_00000008" / "complete.json").read_text()
    )
    assert set(complete["files"]) == {"state.pt", "rank_0.pt", "rank_1.pt"}


def test_tensorboard_reads_what_the_run_wrote(small):
    run = nbkit.launch(small(tensorboard=True)).wait()

    events = EventAccumulator(str(run.paths.tensorboard)).Reload()

    losses = [event.value for event in events.Scalars("train/loss")]
    assert losses == pytest.approx([line["loss"] for line in run.metrics()])


@pytest.mark.parametrize("optimizer", ["sgd", "lars", "adamw"])
def test_every_optimizer_lowers_the_loss(small, optimizer):
    rates = {"sgd": 1.0, "lars": 5.0, "adamw": 0.05}

    run = nbkit.launch(
        small(
            optimizer=optimizer,
            learning_rate=rates[optimizer],
            num_classes=10,
            steps=40,
        )
    ).wait()

    losses = [line["loss"] for line in run.metrics()]
    assert losses[-1] < 0.8 * losses[0]


def test_a_missing_folder_is_named_before_anything_starts(small, tmp_path):
    with pytest.raises(ConfigError, match=r"data='.*none' is not a folder"):
        nbkit.launch(small(data=tmp_path / "none"))

    assert nbkit.runs() == []


def test_a_folder_without_classes_fails_the_run_in_one_line(small, tmp_path):
    run = nbkit.launch(small(data=tmp_path))

    with pytest.raises(RunFailedError) as raised:
        run.wait()
    assert "Traceback" not in str(raised.value)

    assert run.cause is not None
    assert run.cause["kind"] == "config"


def test_ranks_bound_to_cores_say_which(small):
    run = nbkit.launch(small(cpu_binding="cores")).wait()

    first, second = (entry["cpus"] for entry in run.worker["ranks"])
    assert len(first) == len(second)
    assert len(first) >= 1


def test_sixteen_bit_precision_gives_nearly_the_same_loss(small):
    full = nbkit.launch(small(model="resnet18", steps=3, warmup_steps=1)).wait()
    half = nbkit.launch(
        small(model="resnet18", steps=3, warmup_steps=1, precision="bf16")
    ).wait()

    assert half.metrics()[0]["loss"] == pytest.approx(
        full.metrics()[0]["loss"], rel=0.05
    )
    assert half.metrics()[0]["loss"] != full.metrics()[0]["loss"]
