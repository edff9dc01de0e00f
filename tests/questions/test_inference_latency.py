"""What is said of formats at inference follows from rates and from every image."""

from __future__ import annotations

import pytest

from nbkit import statistics
from nbkit.questions.inference.latency import (
    Served,
    accuracy_in_words,
    computed_sentence,
    judge_accuracy,
)
from nbkit.store.predictions import ClassPredictions, LabelPredictions

LABELS = ["cat"] * 600 + ["dog"] * 600


def saying(wrong=(), labels=LABELS):
    """Return what a model says that is wrong on some images."""
    flip = {"cat": "dog", "dog": "cat"}
    said = [flip[one] if n in wrong else one for n, one in enumerate(labels)]
    files = [f"{number}.jpg" for number in range(len(labels))]
    return ClassPredictions(files, labels, said, [0.9] * len(labels))


def judged(withheld=None, **predictions):
    scores = dict.fromkeys(predictions, ("top1_accuracy", 0.9))
    starts = {arm: [one] for arm, one in predictions.items()}
    return judge_accuracy(starts, scores, "fp32", withheld=withheld)


def served(arm, rate, batch_size=1, runs=5, against=None):
    rates = [rate * (1 + 0.002 * number) for number in range(runs)]
    p50, p99 = ([scale * batch_size / r for r in rates] for scale in (1, 1.5))
    base = [one * against for one in rates] if against else None
    return Served(
        arm=arm,
        precision=arm.split(" ")[0],
        batch_size=batch_size,
        passes=100,
        p50_seconds=statistics.summarise(p50),
        p95_seconds=statistics.summarise(p99),
        p99_seconds=statistics.summarise(p99),
        images_per_second=statistics.summarise(rates),
        against=base and statistics.ratio(rates, base, a_name=arm, b_name="fp32"),
        peak_memory_bytes=2**30,
        joules_per_image=None,
        is_control=arm.endswith("again"),
    )


def test_accuracy_is_compared_image_by_image():
    kept = judged(fp32=saying({1, 2}), bf16=saying({2}), int8=saying(range(90)))

    assert kept["fp32"].paired is None
    assert kept["fp32"].agreement is None
    assert kept["bf16"].agreement == 1199 / 1200
    interval = kept["bf16"].agreement_interval
    assert interval is not None
    assert 0.99 < interval[0] < 1199 / 1200 < interval[1] < 1
    assert (kept["bf16"].paired.only_a, kept["bf16"].paired.only_b) == (1, 0)
    assert (kept["bf16"].verdict, kept["int8"].verdict) == ("kept", "lost")
    assert kept["int8"].is_losing


def test_other_images_are_not_compared():
    kept = judged(fp32=saying(), bf16=saying(labels=LABELS[:-1]), int8=None)

    assert (kept["bf16"].paired, kept["int8"].verdict) == (None, None)


def test_process_starts_that_say_other_classes_are_told_of():
    starts = {"fp32": [saying(), saying()], "int8": [saying(), saying({7})]}

    kept = judge_accuracy(starts, {}, "fp32")

    assert [one.starts_differ for one in kept.values()] == [False, True]
    assert kept["fp32"].score is None


def test_several_labels_agree_where_their_logits_have_the_same_sign():
    def said(*scores):
        return LabelPredictions(["a", "b"], {"x": [0, 1]}, {"x": list(scores)})

    kept = judge_accuracy(
        {"fp32": [said(-1.0, 2.0)], "int8": [said(-0.1, -0.2)]},
        {"fp32": ("mean_auroc", 0.8), "int8": ("mean_auroc", 0.7)},
        "fp32",
    )

    assert kept["int8"].agreement == 0.5
    assert kept["int8"].paired is None
    assert kept["int8"].agreement_interval is None  # labels of an image hang together
    text = accuracy_in_words(kept["int8"], "fp32") or ""
    assert "mean AUROC 0.700 (fp32 0.800), difference not tested" in text


@pytest.mark.parametrize(("wrong", "is_judged"), [(580, False), (540, True)])
def test_a_baseline_no_better_than_one_class_for_all_judges_nothing(wrong, is_judged):
    # Of 1,200 images 620 right ones are no more than half of them, 660 are.
    kept = judged(fp32=saying(range(wrong)), int8=saying(range(wrong)))

    assert (kept["int8"].verdict is not None) == is_judged
    if not is_judged:
        assert "fp32 classifies 620 of 1,200 images" in kept["int8"].withheld
        assert "most common class (50.0%)" in kept["int8"].withheld


def floor_of(difference):
    base = [100, 100.1, 99.9, 100.05, 99.95]
    again = [one * (1 + difference) for one in base]
    return statistics.noise_floor(base, again, margin=0.5)


BASE, LOSSY = ("fp32", 100), ("int8", 500, 1, 5, 0.2)
SIZES = [("bf16", 130, 1), ("bf16", 110, 32), ("bf16", 108, 64)]
ALIKE = [(*one, 5, 100 / one[1]) for one in SIZES]


@pytest.mark.parametrize(
    ("rows", "wrong", "floors", "parts"),
    [
        (
            [BASE, ("fp32 again", 101, 1, 5, 0.99), ("bf16", 200, 1, 5, 0.5), LOSSY],
            {"bf16": {1}, "int8": range(90)},
            {},
            [
                "bf16 reaches 200.8 images/s at batch size 1, 2.00x [",
                ": faster; accuracy kept (-0.1 points, 95% CI [",
                "excluded: int8 at batch size 1, 5.00x [",
                "n=5): faster; accuracy lost (-7.5 points",
            ],
        ),
        (
            [BASE, LOSSY],
            {"int8": range(90)},
            {},
            ["No format keeps the accuracy of fp32", "excluded"],
        ),
        # A format that is slower and loses accuracy is not worth a word.
        (
            [BASE, ("bf16", 600, 1, 5, 100 / 600), LOSSY],
            {"bf16": {1}, "int8": range(90)},
            {},
            ["bf16 reaches 602.4 images/s"],
        ),
        ([BASE, LOSSY], {}, {}, ["5.00x", "accuracy not compared."]),
        (
            [BASE, ("bf16", 200, 1, 5, 0.5), ("fp16", 500, 1, 1, 0.2)],
            {},
            {},
            ["bf16 reaches 200.8 images/s"],
        ),
        ([(*BASE, 1, 2), ("int8", 500, 1, 2, 0.2)], {}, {}, ["n=2): not enough runs"]),
        ([BASE], {}, {}, ["Only fp32 was measured"]),
        ([BASE, ("fp16", 200)], {}, {}, ["fp32, its A/A control or every other"]),
        # A ratio beyond its own noise floor is told, though a larger one is within its.
        (
            ALIKE[:2],
            {},
            {1: 0.4, 32: 0.003},
            ["at batch size 32, 1.10", "the only ratio above the A/A"],
        ),
        (
            ALIKE,
            {},
            {1: 0.4, 32: 0.003, 64: 0.003},
            ["; best of 2 above the A/A difference (3 in all), CI"],
        ),
        (
            ALIKE[:2],
            {},
            {1: 0.4, 32: 0.2},
            ["No format is faster than fp32 by more", " at batch size 1)"],
        ),
    ],
)
def test_computed_sentence(rows, wrong, floors, parts):
    said = {arm: saying(images) for arm, images in wrong.items()}
    kept = judged(fp32=saying(), **said) if wrong else {}
    text = computed_sentence(
        [served(*row) for row in rows],
        kept,
        "fp32",
        floors={size: floor_of(apart) for size, apart in floors.items()},
    )

    for part in parts:
        assert part in text
    assert ("excluded" in text) == ("excluded" in str(parts))


@pytest.mark.parametrize(
    ("labels", "withheld", "words"),
    [
        (["cat"] * 20 + ["dog"] * 20, None, "too few images for a verdict"),
        (LABELS, "the weights are random", "not judged: the weights are random"),
    ],
)
def test_accuracy_in_words_without_verdict(labels, withheld, words):
    said = {"fp32": saying(labels=labels), "int8": saying(labels=labels)}
    int8 = judged(withheld=withheld, **said)["int8"]

    assert words in (accuracy_in_words(int8, "fp32") or "")
    assert not int8.is_losing
    assert int8.agreement == 1
