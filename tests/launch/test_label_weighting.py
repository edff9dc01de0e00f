"""Labels that are weighted by how rare they are, on one device and on two."""

import pytest

import nbkit
from nbkit.store.predictions import LabelPredictions, read_predictions
from tests.datasets.images import picture
from tests.training import train_here


def test_label_weighting_on_one_and_two_devices(small, tmp_path):
    lines = ["file,split,rare,often"]
    for number in range(20):
        picture(number).save(tmp_path / f"{number:02}.png")
        split = "train" if number < 16 else "val"
        labels = f"{int(number % 8 == 0)},{int(number % 4 > 0)}"
        lines.append(f"{number:02}.png,{split},{labels}")
    (tmp_path / "labels.csv").write_text("\n".join(lines))

    config = small(
        data=str(tmp_path / "labels.csv"),
        batch_size_per_gpu=8,
        steps=2,
        warmup_steps=0,
        evaluation_period_epochs=1,
        label_weighting="balanced",
    )
    runs = [
        train_here(config),
        nbkit.launch(config.replace(gpus=2, batch_size_per_gpu=4)).wait(),
        train_here(config.replace(label_weighting="none")),
    ]

    # Weights that were trained alike say the same of every image.
    found = [read_predictions(run.paths.predictions) for run in runs]
    one, two, plain = (
        said.scores["rare"] for said in found if isinstance(said, LabelPredictions)
    )
    assert two == pytest.approx(one, rel=1e-4, abs=1e-5)
    assert one != pytest.approx(plain, rel=1e-2)
