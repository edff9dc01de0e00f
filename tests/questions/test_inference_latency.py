"""What is said of formats at inference follows from rates and from every image."""

from __future__ import annotations

import pytest

from nbkit import statistics
from nbkit.questions.inference.chart import latency_chart, throughput_chart
from nbkit.questions.inference.latency import (
    Served,
    computed_sentence,
    judge_accuracy,
)
from nbkit.questions.inference.literature import published_here, published_of
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

    assert kept["bf16"].paired is None
    assert kept["int8"].paired is None
    assert kept["int8"].verdict is None


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
    rows = [served("fp32", 100), served("int8", 500, against=0.2)]
    text = computed_sentence(rows, kept, "fp32", device_type="cuda")
    assert "; its mean AUROC is 70.0 %, that of fp32 80.0 %, without a test" in text


def test_of_weights_that_have_learnt_nothing_no_accuracy_is_judged():
    rows = [served("fp32", 100), served("int8", 500, against=0.2)]
    said = {"fp32": saying(), "int8": saying(range(90))}

    kept = judged(withheld="the weights are random", **said)

    assert (kept["int8"].paired, kept["int8"].is_losing) == (None, False)
    assert kept["int8"].agreement == 1110 / 1200
    text = computed_sentence(rows, kept, "fp32", device_type="cuda")
    assert "whether accuracy is kept is not judged: the weights are random." in text


@pytest.mark.parametrize(("wrong", "is_judged"), [(580, False), (540, True)])
def test_a_baseline_no_better_than_one_class_for_all_judges_nothing(wrong, is_judged):
    # Of 1,200 images 620 right ones are no more than half of them, 660 are.
    kept = judged(fp32=saying(range(wrong)), int8=saying(range(wrong)))

    assert (kept["int8"].verdict is not None) == is_judged
    if not is_judged:
        assert "fp32 is right on 620 of 1,200 images" in kept["int8"].withheld
        assert "one class for all (50.0 %)" in kept["int8"].withheld


def test_the_fastest_format_that_keeps_its_accuracy_is_the_headline():
    rows = [
        served("fp32", 100),
        served("fp32 again", 101, against=0.99),
        served("bf16", 200, against=0.5),
        served("int8", 500, against=0.2),
    ]
    kept = judged(fp32=saying(), bf16=saying({1}), int8=saying(range(90)))

    text = computed_sentence(rows, kept, "fp32", device_type="cuda")

    assert text.startswith("bf16 gives 201 images/s in batches of 1, 2.00 times fp32 (")
    assert ": faster; accuracy is kept (-0.1 points, 95 % interval" in text
    assert "not counted: int8 in batches of 1, 5.00 times fp32 (95 % interval" in text
    assert "5 process starts an arm): faster; accuracy is lost (-7.5 points" in text


def floor_of(difference):
    base = [100, 100.1, 99.9, 100.05, 99.95]
    again = [one * (1 + difference) for one in base]
    return statistics.noise_floor(base, again, margin=0.5)


def test_a_ratio_beyond_its_own_noise_floor_is_told_though_a_larger_one_is_within_its():
    rows = [
        served("bf16", 108, against=1 / 1.08),
        served("bf16", 106, batch_size=32, against=1 / 1.06),
    ]
    kept = judged(fp32=saying(), bf16=saying())

    def said(*differences):
        floors = dict(zip((1, 32), map(floor_of, differences), strict=True))
        return computed_sentence(rows, kept, "fp32", device_type="cuda", floors=floors)

    assert "in batches of 32, 1.06 times fp32" in said(0.09, 0.003)
    assert said(0.09, 0.07).startswith(
        "No format is faster than fp32 by more than fp32 twice differed "
        "(9.0 % in batches of 1)"
    )


def test_few_runs_and_few_images_give_no_verdict_and_say_so():
    labels = ["cat"] * 20 + ["dog"] * 20
    rows = [served("fp32", 9, runs=2), served("int8", 45, runs=2, against=0.2)]
    kept = judged(fp32=saying(labels=labels), int8=saying(labels=labels))

    text = computed_sentence(rows, kept, "fp32", device_type="cpu")

    assert text.startswith("On a CPU: int8 gives 45")
    assert "not enough runs for a verdict (2 an arm)" in text
    assert "too few images tell whether accuracy is kept (+0.0 points" in text


def test_without_a_format_that_keeps_its_accuracy_none_is_praised():
    rows = [served("fp32", 100), served("int8", 500, against=0.2)]
    kept = judged(fp32=saying(), int8=saying(range(90)))

    text = computed_sentence(rows, kept, "fp32", device_type="cuda")

    assert text.startswith("No format but fp32 keeps the accuracy; not counted: int8")


def test_published_rows_are_of_inference_and_of_the_same_gpu():
    rows = published_here("resnet50", "Tesla V100-SXM2-16GB", "fp16", compiled=False)

    assert {row.phase for row in rows} == {"infer"}
    assert {row.batch_size_per_gpu for row in rows} >= {1, 8, 32, 128}
    assert published_here("resnet50", None, "fp16", compiled=False) == []


def test_of_each_device_the_measured_batch_sizes_and_the_best_are_shown():
    rows = published_of("resnet50", [1, 8])

    v100 = [r for r in rows if r.gpu_name == "V100-16GB" and r.precision == "fp16"]
    assert [row.batch_size_per_gpu for row in v100] == [1, 8, 256]
    assert published_of("resnet18", [1, 8]) == []


@pytest.mark.parametrize("runs", [1, 5])
def test_charts_show_every_format_and_say_what_is_measured(runs):
    rows = [
        served(arm, rate * size, size, runs, against)
        for arm, rate, against in (
            ("fp32", 100, None),
            ("fp32 again", 100, 1.0),
            ("int8", 500, 0.2),
        )
        for size in (1, 8)
    ]
    others = published_here("resnet50", "V100-16GB", "fp16", compiled=False)

    throughput = throughput_chart(rows, others, device_type="cuda").to_dict()
    latency = latency_chart(rows, device_type="cpu").to_dict()

    (own, published) = throughput["layer"]
    values = own["data"]["values"]
    assert {value["arm"] for value in values} == {"fp32", "int8"}
    assert {value["batch_size"] for value in published["data"]["values"]} == {1, 8}
    assert "Published by others" in str(published)
    ends = "no interval" if runs == 1 else "bars: 95 % interval"
    assert ends in throughput["title"]["subtitle"]
    assert latency["title"]["subtitle"].startswith("CPU; circle: median")
    assert latency["layer"][0]["encoding"]["y"]["scale"]["type"] == "log"
    # Of both formats, both batch sizes and three percentiles.
    intervals = latency["layer"][0]["data"]["values"]
    assert len(intervals) == (0 if runs == 1 else 2 * 2 * 3)
    assert all(0 < row["low"] < row["end"] for row in intervals)
    assert published["data"]["values"][0]["series"] == "NVIDIA, fp16, images read"


def test_the_largest_of_what_is_beyond_the_noise_is_not_called_largest_of_all():
    sizes = {1: (130, 0.4), 32: (110, 0.003), 64: (108, 0.003)}
    rows = [
        served("bf16", rate, batch_size=size, against=100 / rate)
        for size, (rate, _) in sizes.items()
    ]
    floors = {size: floor_of(apart) for size, (_, apart) in sizes.items()}
    kept = judged(fp32=saying(), bf16=saying())

    text = computed_sentence(rows, kept, "fp32", device_type="cuda", floors=floors)

    assert "in batches of 32, 1.10 times fp32" in text
    assert "(largest of 2 ratios beyond what fp32 twice differed by, of 3; " in text


def test_a_format_without_finite_results_was_measured_all_the_same():
    rows = [served("fp32", 100), served("fp16", 200)]

    text = computed_sentence(rows, judged(fp32=saying()), "fp32", device_type="cuda")

    assert text == (
        "Nothing is compared: the results of fp32, of its control, or of all other "
        "formats are not finite."
    )
