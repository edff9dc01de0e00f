"""Findings of labels: what has an AUROC, what an interval, what a verdict."""

import random

import pytest

from nbkit.datasets.nih import NIH_LABELS
from nbkit.questions.chexnet.areas import MEAN, ScoredImages, judge_labels
from nbkit.questions.chexnet.literature import published_areas

PATIENTS = [f"p{number // 2}" for number in range(300)]


def labels_of(seed=0):
    drawn = random.Random(seed)
    return {
        "often": [int(drawn.random() < 0.5) for _ in PATIENTS],
        "seldom": [int(drawn.random() < 0.2) for _ in PATIENTS],
        "one patient": [int(patient == "p7") for patient in PATIENTS],
        "never": [0 for _ in PATIENTS],
    }


def scored(labels, skill, seed, noise=0.1):
    """Return scores of a training: all of one skill are alike, but for the noise."""
    alike, own = random.Random("alike"), random.Random(seed)
    return {
        label: [
            skill * has + alike.gauss(0, 1) + noise * own.gauss(0, 1) for has in given
        ]
        for label, given in labels.items()
    }


def found(*, skill=1.0, lost=0.0, base=0.0, trainings=5, patients=PATIENTS):
    labels = labels_of()
    images = ScoredImages(
        labels,
        patients,
        [scored(labels, skill, f"1/{seed}") for seed in range(trainings)],
        [scored(labels, skill - lost, f"2/{seed}") for seed in range(trainings)],
        scored(labels, base, "base", noise=1.0),
    )
    return {one.label: one for one in judge_labels(images)}


def test_labels_that_cannot_be_judged_say_why_and_the_mean_goes_without_them():
    findings = found()

    never, lonely = findings["never"], findings["one patient"]
    assert (never.single, never.caveat) == (None, "no evaluation image with the label")
    assert lonely.caveat == "1 patient with the label (minimum 10)"
    assert (lonely.positives, lonely.patients) == (2, 1)
    assert lonely.single.low is None
    values = [findings[label].single.value for label in ("often", "seldom")]
    assert findings[MEAN].single.value == pytest.approx(sum(values) / 2)
    assert findings[MEAN].caveat is None


def test_the_same_needs_the_whole_interval_within_the_margin_and_five_trainings():
    mean = found()[MEAN]

    assert mean.same_within(0.02) == "same"
    assert mean.same_within(0.001) == "not resolved"
    assert found(trainings=4)[MEAN].same_within(0.02) == "not enough runs"
    worse = found(lost=0.7)[MEAN]
    assert worse.difference.value < -0.1
    assert worse.same_within(0.02) == "differs"


def test_a_network_that_is_no_better_than_the_baseline_is_not_above_it():
    better, equal = found(skill=1.5)[MEAN], found(skill=1.0, base=1.5)[MEAN]

    assert better.above_baseline == "above the statistics"
    assert better.gain.value == pytest.approx(
        better.single.value - better.baseline.value
    )
    assert equal.above_baseline != "above the statistics"
    alone = found(skill=1.5, trainings=1)[MEAN]
    assert alone.gain.low > 0
    assert alone.above_baseline == "not enough runs"


def test_where_nobody_says_of_whom_they_are_images_stand_for_themselves():
    lonely = found(patients=None)["one patient"]

    assert (lonely.positives, lonely.patients) == (2, None)
    assert lonely.caveat == "2 images with the label (minimum 10)"
    assert lonely.single.low is not None


def test_a_label_in_perfect_order_does_not_make_the_mean_look_sure():
    labels = {**labels_of(), "perfect": labels_of(1)["often"]}
    networks = [scored(labels, 1.0, f"1/{seed}") for seed in range(5)]
    for scores in networks:
        scores["perfect"] = [float(has) for has in labels["perfect"]]

    *_, perfect, mean = judge_labels(ScoredImages(labels, PATIENTS, networks, [], None))

    assert (perfect.single.value, perfect.single.low) == (1.0, None)
    assert (
        "ranking is perfect or constant, so the AUROC's variance is" in perfect.caveat
    )
    assert mean.single == found()[MEAN].single


def test_a_label_that_the_training_never_shows_is_left_out_of_every_mean():
    labels = labels_of()
    networks = [scored(labels, 1.0, seed) for seed in range(2)]
    base = {**scored(labels, 0.0, "base"), "seldom": None}

    often, seldom, *_, mean = judge_labels(
        ScoredImages(labels, PATIENTS, networks, [], base)
    )

    assert seldom.caveat == "the label has no positive or no negative training image"
    assert (seldom.baseline, seldom.above_baseline) == (None, "no baseline")
    assert mean.single == often.single
    assert mean.baseline == often.baseline
    assert mean.gain == often.gain
    assert mean.difference is None
    assert mean.same_within(0.02) is None


def test_a_difference_reaches_no_farther_than_areas_do():
    given = {"pair": [1, 1, 0, 0]}
    networks = [{"pair": [0.9, 0.1, 0.8, 0.2]}]
    base = {"pair": [0.1, 0.9, 0.8, 0.2]}

    [pair, _] = judge_labels(
        ScoredImages(given, ["a", "b", "c", "d"], networks, [], base)
    )

    assert (pair.gain.low, pair.gain.high) == (-1.0, 1.0)


def test_a_network_of_numbers_that_are_none_is_not_judged():
    labels = labels_of()
    broken: dict = scored(labels, 1.0, 0)
    broken["often"] = [None, *broken["often"][1:]]

    often, seldom, *_ = judge_labels(ScoredImages(labels, None, [broken], [], None))

    assert often.caveat == "a network score is NaN"
    assert seldom.caveat is None


def test_published_areas_are_of_all_fourteen_labels_and_of_no_other_set():
    papers = published_areas(NIH_LABELS)

    assert [one.publisher for one in papers] == ["Wang et al. 2017", "CheXNet 2017"]
    for paper in papers:
        assert tuple(paper.areas) == NIH_LABELS
        assert all(0.6 < area < 0.95 for area in paper.areas.values())
    means = [sum(paper.areas.values()) / 14 for paper in papers]
    # As both papers print them.
    assert means == pytest.approx([0.738, 0.841], abs=1e-3)
    assert published_areas(["Pneumonia", "Mass"]) == []


@pytest.mark.parametrize(
    ("patients", "caveat"), [(9, "9 patients with the label (minimum 10)"), (10, None)]
)
def test_judge_labels_fewest_patients(patients, caveat):
    given = {"few": [int(number < 2 * patients) for number in range(300)]}
    networks = [scored(given, 1.0, seed) for seed in range(5)]

    few, mean = judge_labels(ScoredImages(given, PATIENTS, networks, [], None))

    assert few.caveat == caveat
    assert few.single.low is not None
    assert (mean.single is None) == (caveat is not None)
