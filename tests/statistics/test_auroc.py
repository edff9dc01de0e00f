"""Areas under the ROC curve and their intervals, against definitions and resampling."""

import math
import random
import statistics

import pytest
from sklearn.metrics import roc_auc_score

from nbkit.errors import NotEnoughDataError
from nbkit.statistics.auroc import area_under_roc, combined


def drawn(seed, patients=60, images=3, values=None, by_patient=False):
    """Return scores of two models, labels and patients; the models are alike."""
    generator = random.Random(seed)
    rows = []
    for patient in range(patients):
        shared = generator.gauss(0, 1)
        of_patient = int(generator.random() < 0.3)
        for _ in range(images):
            label = of_patient if by_patient else int(generator.random() < 0.3)
            first = label + shared + generator.gauss(0, 1)
            second = first + generator.gauss(0, 0.3)
            if values:
                first, second = (round(values * one) for one in (first, second))
            rows.append((first, second, label, patient))
    return [list(column) for column in zip(*rows, strict=True)]


@pytest.mark.parametrize("values", [None, 2])
@pytest.mark.parametrize("seed", range(3))
def test_the_area_is_scikit_learns_with_and_without_ties(seed, values):
    scores, _, labels, patients = drawn(seed, values=values)

    area = area_under_roc(scores, labels, patients)

    assert area.value == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    assert area.groups == 60


def test_without_groups_the_variance_is_delongs():
    scores, _, labels, _ = drawn(0)
    positive = [one for one, label in zip(scores, labels, strict=True) if label]
    negative = [one for one, label in zip(scores, labels, strict=True) if not label]

    def share(found):
        return statistics.fmean(found)

    of_positive = [share(x > y for y in negative) for x in positive]
    of_negative = [share(x > y for x in positive) for y in negative]
    expected = statistics.variance(of_positive) / len(positive)
    expected += statistics.variance(of_negative) / len(negative)

    area = area_under_roc(scores, labels)

    assert area.variance == pytest.approx(expected, rel=1e-12)
    assert area.degrees_of_freedom == min(len(positive), len(negative)) - 1


def test_what_models_have_in_common_cancels():
    scores, _, labels, patients = drawn(2)
    area = area_under_roc(scores, labels, patients)

    nothing = area.minus(area)

    assert (nothing.value, nothing.variance) == (0, 0)
    assert nothing.interval() is None
    mean = combined([area, area])
    assert mean.value == pytest.approx(area.value)
    assert mean.variance == pytest.approx(area.variance)
    assert mean.degrees_of_freedom == pytest.approx(area.degrees_of_freedom)


def test_the_spread_between_trainings_widens_the_interval():
    scores, _, labels, patients = drawn(3)
    area = area_under_roc(scores, labels, patients)

    own, wider = area.interval(), area.interval(between=(area.variance, 4.0))

    assert own is not None
    assert wider is not None
    low, high = own
    assert wider[0] < low < area.value < high < wider[1]
    # Twice the variance, and Student's t with Welch's degrees of freedom.
    assert (wider[1] - wider[0]) > math.sqrt(2) * (high - low) * 0.99


@pytest.mark.parametrize("labels", [[1, 1, 1], [0, 0, 0], []])
def test_a_label_that_all_or_none_have_has_no_area(labels):
    assert area_under_roc([0.0, 1.0, 2.0][: len(labels)], labels) is None
    assert area_under_roc([0.0, math.nan, 2.0], [0, 1, 1]) is None
    assert area_under_roc([0.0, None, 2.0], [0, 1, 1]) is None


def test_one_patient_with_the_label_gives_an_area_without_an_interval():
    area = area_under_roc([0.1, 0.4, 0.2, 0.3], [1, 1, 0, 0], ["a", "a", "b", "c"])

    assert area.value == pytest.approx(0.5)
    assert area.degrees_of_freedom is None
    assert area.interval() is None


def test_columns_of_other_lengths_are_refused():
    with pytest.raises(
        NotEnoughDataError, match=r"scores \(2\), labels \(1\) and groups \(2\)"
    ):
        area_under_roc([0.1, 0.2], [1])
