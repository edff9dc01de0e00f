"""What the runs of a study have in common."""

from __future__ import annotations

from types import SimpleNamespace

from nbkit.study.conditions import _images

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
