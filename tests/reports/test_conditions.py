"""What the runs of a study have in common."""

from __future__ import annotations

from types import SimpleNamespace

from nbkit.reports.conditions import _images, describe_images, where_and_when

PHOTOS = {
    "unreadable": {"count": 0},
    "fingerprint": {"files": 10, "sha256": "a"},
    "num_classes": 2,
    "train_images": 8,
}


def run(world_size, data):
    return SimpleNamespace(
        config=SimpleNamespace(world_size=world_size), worker={"data": data}
    )


def test_images_are_described_only_if_all_runs_have_the_same():
    other = {**PHOTOS, "fingerprint": {"files": 10, "sha256": "b"}}
    same = _images([run(1, PHOTOS), run(2, {**PHOTOS, "train_images": 6})])

    assert same is not None
    assert same["train"] == {1: 8, 2: 6}
    assert _images([run(1, PHOTOS), run(2, other)]) is None
    assert _images([run(1, PHOTOS), run(2, None)]) is None
    assert _images([run(1, None), run(1, PHOTOS)]) is None


def test_files_that_are_passed_over_are_named_by_suffix():
    passed_over = {"count": 1_203, "kinds": {"*.gif": 1_200, "*.txt": 3}}
    images = _images([run(1, {**PHOTOS, "passed_over": passed_over})])

    _, said = describe_images({"images": images})
    assert said == "Skipped: 1,203 files (1,200 *.gif, 3 *.txt)."
    assert len(describe_images({"images": _images([run(1, PHOTOS)])})) == 1


def test_of_several_nodes_the_cpus_are_those_of_the_first():
    one = where_and_when({"nodes": ["n1"], "usable_cpus": 8.0})
    two = where_and_when({"nodes": ["n1", "n2"], "usable_cpus": 8.0})

    assert "on nodes n1, 8 usable CPUs; " in one
    assert "on nodes n1, n2, 8 usable CPUs on the first node; " in two


def test_describe_images_counts_high_bit_depth():
    deep = {"count": 7, "coarse": 0, "first": []}
    plain = _images([run(1, {**PHOTOS, "deep": {**deep, "count": 0}})])
    some = _images([run(1, {**PHOTOS, "deep": deep})])
    coarse = _images([run(1, {**PHOTOS, "deep": {**deep, "coarse": 3}})])
    single = _images([run(1, {**PHOTOS, "deep": {**deep, "count": 1}})])

    several = plain, some, coarse, single
    said = [" ".join(describe_images({"images": one})) for one in several]

    assert "grayscale" not in said[0]
    assert said[1].endswith(" 7 grayscale images above 8 bits reduced to 8 bits.")
    assert said[2].endswith("reduced to 8 bits (3 to 16 levels or fewer).")
    assert " 1 grayscale image above 8 bits" in said[3]


def test_classes_without_a_training_image_are_counted():
    count = "classes_without_training_images"
    every = [_images([run(1, {**PHOTOS, count: number})]) for number in (0, 1, 2)]

    none, one, two = [" ".join(describe_images({"images": each})) for each in every]

    assert "no training image" not in none
    assert one.endswith(" 1 of 2 classes has no training image.")
    assert two.endswith(" 2 of 2 classes have no training image.")


def test_images_of_an_epoch_are_those_of_a_number_of_ranks():
    images = _images([run(1, PHOTOS), run(2, {**PHOTOS, "train_images": 6})])

    [said] = describe_images({"images": images})

    assert "per epoch 8 on 1 rank and 6 on 2 ranks (incomplete" in said
