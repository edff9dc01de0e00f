"""The images of a training without the training."""

from __future__ import annotations

import pytest
from PIL import Image

import nbkit
from nbkit.statistics import accelerator_utilization


@pytest.fixture
def images(tmp_path):
    """Twenty pictures of two classes."""
    for number in range(20):
        folder = tmp_path / "images" / f"class {number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (48, 40), (12 * number, 90, 90)).save(folder / f"{number}.jpg")
    return tmp_path / "images"


def test_load_two_ranks(small, images):
    config = small(
        task="load",
        gpus=2,
        data=str(images),
        batch_size_per_gpu=5,
        epochs=3,
        steps=None,
        warmup_steps=1,
        emulated_step_seconds=0.05,
        tensorboard=True,
    )

    run = nbkit.launch(config).wait()

    lines = run.metrics()
    assert [(line["epoch"], line["step"]) for line in lines] == [
        (0, 1),
        (0, 2),
        (1, 3),
        (1, 4),
        (2, 5),
        (2, 6),
    ]
    for line in lines:
        assert line["compute_seconds"] >= 0.05
        assert line["images"] == 10
        assert line["loss"] is None
    summary = run.summary
    assert summary.n_steps == 5
    assert summary.images_per_second is not None
    assert summary.nonfinite is None
    assert summary.weights_finite is None
    assert run.worker["data"]["train_images"] == 20
    assert 0 < (accelerator_utilization(lines, 0.05) or 0) <= 1
    assert not [one.code for one in nbkit.audit(run) if one.code == "divergence"]
    assert list(run.paths.tensorboard.iterdir())
