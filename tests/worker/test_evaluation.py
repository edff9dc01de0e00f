"""The area under the ROC curve, against its definition."""

import random

import pytest
import torch

from nbkit.config import ExperimentConfig
from nbkit.worker.evaluation import area_under_roc
from nbkit.worker.losses import evaluation_losses, training_loss


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


def test_a_perfect_order_is_one_and_the_reverse_is_zero():
    scores, labels = torch.tensor([-2.0, 0.5, 3.0]), torch.tensor([0.0, 0.0, 1.0])

    assert area_under_roc(scores, labels) == 1.0
    assert area_under_roc(-scores, labels) == 0.0


@pytest.mark.parametrize("labels", [[0.0, 0.0], [1.0, 1.0], []])
def test_a_label_that_all_or_none_have_has_no_area(labels):
    scores = torch.arange(len(labels)).float()

    assert area_under_roc(scores, torch.tensor(labels)) is None


def test_a_score_that_is_no_number_has_no_area():
    scores = torch.tensor([0.1, float("nan"), 0.3])

    assert area_under_roc(scores, torch.tensor([0.0, 1.0, 1.0])) is None


def test_the_loss_of_an_evaluation_is_that_of_the_training():
    config = ExperimentConfig()
    outputs = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))

    for labels, several in (
        (torch.tensor([0, 1, 2, 3, 0, 1]), False),
        ((outputs > 0.3).float(), True),
    ):
        expected = training_loss(config, is_multi_label=several)(outputs, labels)
        losses = evaluation_losses(outputs, labels)
        assert losses.shape == (6,)
        assert losses.mean() == pytest.approx(expected.item())
