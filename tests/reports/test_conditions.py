"""What the runs of a study have in common."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from nbkit.reports.conditions import (
    conditions_line,
    describe_images,
    images_of,
    where_and_when,
)

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


def run_of(arm, **changes):
    """Return a finished run of an arm on A100 GPUs."""
    fields = {"world_size": 1, "model": "resnet50", "batch_size_per_gpu": 256}
    fields |= {"image_size": 224, "data": "synthetic", "steps": 40, "epochs": None}
    fields |= {"has_time_window": False, "has_entry": False}
    return SimpleNamespace(
        config=SimpleNamespace(**{**fields, "task": "train", **changes}),
        worker={"torch": "2.8.0", "cuda": "12.8"},
        record={"tags": {"arm": arm}, "system": {"driver_version": "550.54"}},
        summary=SimpleNamespace(device_name="A100"),
    )


SOFTWARE = "torch 2.8.0, CUDA 12.8, driver 550.54"


@pytest.mark.parametrize(
    ("runs", "line"),
    [
        (
            [run_of("a"), run_of("b")],
            f"A100 | {SOFTWARE} | resnet50, batch 256 per rank, 224x224, synthetic, "
            "40 steps | n=1",
        ),
        (
            [run_of("a"), run_of("a"), run_of("b", batch_size_per_gpu=128)],
            f"A100 | {SOFTWARE} | resnet50, 224x224, synthetic, 40 steps | n=1 to 2",
        ),
        (
            [run_of("a"), run_of("b", world_size=4)],
            f"up to 4 x A100 | {SOFTWARE} | resnet50, batch 256 per rank, 224x224, "
            "synthetic, 40 steps | n=1",
        ),
        (
            [run_of("a", world_size=2, task="load", steps=None, epochs=1)],
            f"2 x A100 | {SOFTWARE} | batch 256 per rank, 224x224, synthetic, 1 epoch "
            "| n=1",
        ),
    ],
    ids=["equal", "batch differs", "sizes differ", "loader only"],
)
def test_conditions_line(runs, line):
    assert conditions_line(runs) == line


def test_describe_images_same_data():
    other = {**PHOTOS, "fingerprint": {"files": 10, "sha256": "b"}}
    same = images_of([run(1, PHOTOS), run(2, {**PHOTOS, "train_images": 6})])

    assert same is not None
    assert same["train"] == {1: 8, 2: 6}
    assert images_of([run(1, PHOTOS), run(2, other)]) is None
    assert images_of([run(1, PHOTOS), run(2, None)]) is None
    assert images_of([run(1, None), run(1, PHOTOS)]) is None


def test_describe_images_skipped_files():
    skipped_files = {"count": 1_203, "kinds": {"*.gif": 1_200, "*.txt": 3}}
    images = images_of([run(1, {**PHOTOS, "skipped_files": skipped_files})])

    _, said = describe_images({"images": images})
    assert said == "Skipped: 1,203 files (1,200 *.gif, 3 *.txt)."
    noted = {**(images or {}), "skipped_files": None, "notes": ["omitted: a, ..."]}
    assert describe_images({"images": noted})[1:] == ["Omitted: a, ..."]


def test_where_and_when_several_nodes():
    one = where_and_when({"nodes": ["n1"], "usable_cpus": 1.0})
    two = where_and_when({"nodes": ["n1", "n2"], "usable_cpus": 8.0})

    assert "on node n1, 1 usable CPU; " in one
    assert "on nodes n1, n2, 8 usable CPUs on the first node; " in two


def test_describe_images_counts_high_bit_depth():
    high_bit_depth = {"count": 7, "coarse": 0, "first": []}
    changes: list[dict[str, int]] = [{"count": 0}, {}, {"coarse": 3}, {"count": 1}]
    depths = [{"high_bit_depth": {**high_bit_depth, **change}} for change in changes]
    several = [images_of([run(1, {**PHOTOS, **depth})]) for depth in depths]

    said = [" ".join(describe_images({"images": one})) for one in several]

    assert "grayscale" not in said[0]
    assert " 7 grayscale images reduced from more than 8 bits to 8 bits." in said[1]
    assert said[2].endswith(" to 8 bits (3 of them to 16 gray levels or fewer).")
    assert " 1 grayscale image reduced from more than 8 bits" in said[3]


def test_describe_images_empty_classes():
    count = "classes_without_training_images"
    every = [images_of([run(1, {**PHOTOS, count: number})]) for number in (0, 1, 2)]

    none, one, two = [" ".join(describe_images({"images": each})) for each in every]

    assert "no training image" not in none
    assert one.endswith(" 1 of 2 classes has no training image.")
    assert two.endswith(" 2 of 2 classes have no training image.")


def test_describe_images_per_world_size():
    images = images_of([run(1, PHOTOS), run(2, {**PHOTOS, "train_images": 6})])

    [said] = describe_images({"images": images})

    assert "per epoch 8 on 1 rank and 6 on 2 ranks (incomplete" in said
    unlike = images_of([run(1, PHOTOS), run(1, {**PHOTOS, "train_images": 6})])
    assert "per epoch" not in str(describe_images({"images": unlike}))
