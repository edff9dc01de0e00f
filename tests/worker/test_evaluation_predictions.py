"""Predictions of an evaluation, and loaders that do not follow the manifest."""

import pytest
import torch

from nbkit.config import ExperimentConfig
from nbkit.store.paths import RunPaths
from nbkit.store.predictions import read_predictions
from nbkit.worker.evaluation import evaluate
from nbkit.worker.precision import Precision
from nbkit.worker.rank import Rank
from tests.worker.images import CPU


class Shorter:
    """A loader whose last batch is shorter, instead of padded."""

    def __init__(self, data):
        self._data = data

    def evaluation_batches(self):
        batches = zip(*self._data.evaluation_batches(), strict=True)
        images, labels, mask = (self.ordered(torch.cat(part)) for part in batches)
        parts = (part[mask].split(4) for part in (images, labels, mask))
        return zip(*parts, strict=True)

    def ordered(self, rows):
        return rows


class Backwards(Shorter):
    """A loader with an order of its own."""

    def ordered(self, rows):
        return rows.flip(0)


@pytest.fixture
def said(tmp_path, split, opened):
    """Evaluate a model that has just been made, with what a loader gives it."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LazyLinear(10))
    model(torch.zeros(1, 3, 32, 32))
    rank = Rank(RunPaths(tmp_path / "run"), 0, 0, 1, 1, 0, None)
    rank.paths.root.mkdir()

    def evaluated(around=lambda data: data, loader="torch"):
        data = opened(split, batch_size=4, loader=loader)
        precision = Precision(ExperimentConfig(), CPU)
        found = evaluate(
            model, around(data), precision, rank, data.manifest, lambda: False
        )
        return found, read_predictions(rank.paths.predictions)

    return evaluated


def test_a_shorter_last_batch_gives_the_same_as_padding(said):
    found, predictions = said()
    shorter, others = said(Shorter)

    assert found["images"] == shorter["images"] == len(predictions.files) == 10
    assert others == predictions


@pytest.mark.parametrize("loader", ["torch", "naive", "dali"])
def test_every_loader_gives_the_images_in_the_order_of_the_manifest(said, loader):
    _, predictions = said(loader=loader)

    assert [name.split("/")[1] for name in predictions.files] == [*predictions.labels]
    assert len({*predictions.labels}) == 10


def test_nothing_is_said_of_images_in_another_order(said, capsys):
    found, predictions = said(Backwards)

    assert found["images"] == 10
    assert predictions is None
    assert "predictions.csv is not written" in capsys.readouterr().out
