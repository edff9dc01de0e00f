"""The area under the ROC curve, against its definition."""

import math
import random
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from nbkit.config import ExperimentConfig
from nbkit.datasets.manifest import Manifest
from nbkit.datasets.samples import Decoding, ImageSample, Samples
from nbkit.errors import ConfigError
from nbkit.store.paths import RunPaths
from nbkit.worker.evaluation import area_under_roc, evaluate
from nbkit.worker.losses import evaluation_losses, label_weights, training_loss
from nbkit.worker.precision import Precision
from nbkit.worker.rank import Rank


def by_definition(scores, labels):
    """Compare every image that has the label with every one that has not."""
    pairs = [
        (one > other) + 0.5 * (one == other)
        for one, has in zip(scores, labels, strict=True)
        for other, has_too in zip(scores, labels, strict=True)
        if has and not has_too
    ]
    return sum(pairs) / len(pairs)


@pytest.mark.parametrize("values", [3, 10_000])
@pytest.mark.parametrize("seed", range(5))
def test_the_area_is_what_its_definition_says_with_and_without_ties(seed, values):
    drawn = random.Random(seed)
    labels = [0, 1] + [int(drawn.random() < 0.3) for _ in range(80)]
    scores = [drawn.randrange(values) / 7 for _ in labels]

    area = area_under_roc(torch.tensor(scores), torch.tensor(labels).float())

    assert area == pytest.approx(by_definition(scores, labels), abs=1e-12)


@pytest.mark.parametrize("labels", [[0.0, 0.0], [1.0, 1.0], []])
def test_a_label_that_all_or_none_have_has_no_area(labels):
    scores = torch.arange(len(labels)).float()

    assert area_under_roc(scores, torch.tensor(labels)) is None


def test_a_score_that_is_no_number_has_no_area():
    scores = torch.tensor([0.1, float("nan"), 0.3])

    assert area_under_roc(scores, torch.tensor([0.0, 1.0, 1.0])) is None


def images(labels, classes, *, is_multi_label):
    """Return a manifest of training images with these labels; rank 0 reads it."""
    looked = Decoding(8, 8, 1, is_plain=True)
    samples = [
        ImageSample(f"{number}.png", label, 1, decoding=looked)
        for number, label in enumerate(labels)
    ]
    both = Samples(Path(), [], samples), Samples(Path(), [], [])
    return Manifest("made", Path(), classes, is_multi_label, {}, *both, [])


@pytest.fixture
def rank(tmp_path):
    return Rank(RunPaths(tmp_path), 0, 0, 1, 1, 0, None)


def test_the_loss_of_an_evaluation_is_that_of_the_training(rank):
    config = ExperimentConfig()
    outputs = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    several = images([(0, 1, 0, 1)], "abcd", is_multi_label=True)

    for labels, manifest in (
        (torch.tensor([0, 1, 2, 3, 0, 1]), None),
        ((outputs > 0.3).float(), several),
    ):
        expected = training_loss(config, manifest, rank)(outputs, labels)
        losses = evaluation_losses(outputs, labels)
        assert losses.shape == (6,)
        assert losses.mean() == pytest.approx(expected.item())


def test_balanced_labels_weigh_as_much_with_as_without_them(rank, capsys):
    given = [(1, 0, 1), (0, 0, 1), (0, 0, 1), (0, 0, 1)]
    manifest = images(given, ["rare", "never", "always"], is_multi_label=True)
    config = ExperimentConfig(label_weighting="balanced")

    loss = training_loss(config, manifest, rank)

    assert label_weights(manifest) == {"rare": 3.0, "never": None, "always": None}
    assert isinstance(loss.pos_weight, torch.Tensor)
    assert loss.pos_weight.tolist() == [3.0, 1.0, 1.0]
    assert "weight 1 for never, always" in capsys.readouterr().out
    targets = torch.tensor(given).float()
    gradient = torch.zeros_like(targets, requires_grad=True)
    loss(gradient, targets).backward()
    assert gradient.grad[:, 0].sum() == pytest.approx(0.0, abs=1e-7)


def test_one_class_an_image_has_no_labels_to_weigh(rank):
    config = ExperimentConfig(label_weighting="balanced", data="photos")

    with pytest.raises(ConfigError, match="'photos' has one class per image"):
        training_loss(config, None, rank)


@pytest.mark.parametrize("is_padding", [True, False])
def test_what_a_model_makes_of_padding_does_not_count_and_nan_is_wrong(
    rank, is_padding
):
    model = torch.nn.Identity()
    model.place = torch.nn.Parameter(torch.zeros(()))
    outputs = torch.tensor([[2.0, 0.0], [math.nan, math.nan]])
    labels, mask = torch.tensor([0, 0]), torch.tensor([True, not is_padding])

    batches = SimpleNamespace(evaluation_batches=lambda: [(outputs, labels, mask)])
    precision = Precision(ExperimentConfig(), torch.device("cpu"))

    result = evaluate(model, batches, precision, rank, None, bool)

    expected = torch.nn.functional.cross_entropy(outputs[:1], labels[:1]).item()
    expected = expected if is_padding else math.nan
    assert result["loss"] == pytest.approx(expected, nan_ok=True)
    assert (result["correct"], result["images"]) == (1, 1 + (not is_padding))
