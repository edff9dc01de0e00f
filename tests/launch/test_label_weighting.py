"""Labels that are weighted by how rare they are; on two devices in tests/soak."""

import pytest

from nbkit.store.predictions import LabelPredictions, read_predictions
from tests.datasets.images import picture
from tests.training import train_here


@pytest.fixture
def weighted(small, tmp_path):
    """An experiment with one rare label of two."""
    lines = ["file,split,rare,often"]
    for number in range(20):
        picture(number).save(tmp_path / f"{number:02}.png")
        split = "train" if number < 16 else "val"
        labels = f"{int(number % 8 == 0)},{int(number % 4 > 0)}"
        lines.append(f"{number:02}.png,{split},{labels}")
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    return small(
        data=str(tmp_path / "labels.csv"),
        batch_size_per_gpu=8,
        steps=2,
        warmup_steps=0,
        evaluation_period_epochs=1,
        label_weighting="balanced",
    )


def scores_of_rare(run):
    """Return the scores of every image: equal where weights were trained alike."""
    said = read_predictions(run.paths.predictions)
    assert isinstance(said, LabelPredictions)
    return said.scores["rare"]


def test_label_weighting_changes_the_scores(weighted):
    balanced = train_here(weighted)
    plain = train_here(weighted.replace(label_weighting="none"))

    assert scores_of_rare(balanced) != pytest.approx(scores_of_rare(plain), rel=1e-2)
