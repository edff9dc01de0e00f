"""Intervals and numbers of runs hold as often as they say, over many drawn studies."""

from __future__ import annotations

import math
import random
import statistics

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from nbkit.statistics import (
    MINIMUM_RUNS,
    noise_floor,
    paired_accuracy,
    ratio,
    runs_needed,
    summarise,
)
from nbkit.statistics.auroc import area_under_roc
from tests.statistics.test_auroc import drawn
from tests.statistics.test_needed_runs import scattered


@pytest.mark.parametrize(
    ("effect", "spread", "first"),
    [
        (1.05, 0.02, 2),  # needs more than the minimum, and hardly knows the scatter
        (1.05, 0.02, 3),
        (1.00, 0.01, 3),  # no difference: the interval has to fit into the margin
    ],
)
def test_as_many_studies_as_promised_are_settled_with_the_number(effect, spread, first):
    generator = random.Random(f"{effect} {spread} {first}")
    promised, settled, more_than_the_minimum = 0, 0, 0
    for _ in range(60):
        a = scattered(generator, 8_000 * effect, first, spread)
        b = scattered(generator, 8_000, first, spread)
        needed = runs_needed(a, b, largest=60)
        if needed.runs is None:
            continue
        promised += 1
        more_than_the_minimum += needed.runs > MINIMUM_RUNS
        a += scattered(generator, 8_000 * effect, needed.runs - first, spread)
        b += scattered(generator, 8_000, needed.runs - first, spread)
        settled += ratio(a, b).is_settled

    assert promised > 30
    assert more_than_the_minimum > 10
    # 80 % less two standard errors of the simulation (6 % each)
    assert settled / promised > 0.68


def test_interval_covers_the_true_value_as_often_as_it_says():
    generator = random.Random(20240501)
    trials, covered = 3_000, 0
    for _ in range(trials):
        runs = [8_000 * math.exp(generator.gauss(0, 0.03)) for _ in range(5)]
        summary = summarise(runs)
        covered += summary.ci_low <= 8_000 <= summary.ci_high

    # 95 % give or take four standard errors of the simulation (0.4 % each)
    assert 0.934 < covered / trials < 0.966


@pytest.mark.parametrize("loss", [0.0, 0.05])
def test_the_interval_covers_the_truth_as_often_as_it_says(loss):
    drawn = random.Random(1)
    covered, studies, images = 0, 400, 200
    for _ in range(studies):
        b = [drawn.random() < 0.9 for _ in range(images)]
        # A is wrong where B is right for some, and right where B is wrong for some.
        a = [drawn.random() < (0.95 if right else 0.45) for right in b]
        a = [right and drawn.random() >= loss for right in a]
        truth = (0.9 * 0.95 + 0.1 * 0.45) * (1 - loss) - 0.9
        found = paired_accuracy(a, b)
        covered += found.ci_low <= truth <= found.ci_high

    assert covered / studies > 0.92


def logs(generator, runs=5):
    return [generator.gauss(0, 0.03) for _ in range(runs)]


def test_arms_without_a_difference_pass_the_floor_in_one_case_of_twenty():
    generator = random.Random(3)
    trials, beyond = 1_000, 0
    for _ in range(trials):
        first, second = ([8e3 * math.exp(x) for x in logs(generator)] for _ in "ab")
        floor = noise_floor(first, second).noise_floor
        # other arms than the control's, of the same noise and as many runs
        apart = statistics.fmean(logs(generator)) - statistics.fmean(logs(generator))
        beyond += abs(apart) > math.log1p(floor)

    # 5 % give or take three standard errors of the simulation (0.7 % each)
    assert 0.029 < beyond / trials < 0.071


def resampled(columns, models, draws=400):
    """Return the variance of what the models differ by, over draws of patients."""
    first, second, labels, patients = map(np.array, columns)
    members = [np.flatnonzero(patients == one) for one in np.unique(patients)]
    generator = np.random.default_rng(0)
    found = []
    for _ in range(draws):
        chosen = generator.integers(len(members), size=len(members))
        rows = np.concatenate([members[one] for one in chosen])
        areas = [
            roc_auc_score(labels[rows], scores[rows]) for scores in (first, second)
        ]
        found.append(areas[0] - (areas[1] if models == 2 else 0))
    return np.var(found, ddof=1)


def test_the_variance_of_patients_is_that_of_drawing_patients_again():
    columns = drawn(1, by_patient=True)
    first, second, labels, patients = columns

    one = area_under_roc(first, labels, patients)
    both = one.minus(area_under_roc(second, labels, patients))

    assert one.variance == pytest.approx(resampled(columns, 1), rel=0.25)
    assert both.variance == pytest.approx(resampled(columns, 2), rel=0.25)
    # Images of one patient are alike: who takes them for independent is too sure.
    assert one.variance > 1.5 * area_under_roc(first, labels).variance
