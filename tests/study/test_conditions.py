"""What the runs of a study have in common."""

from __future__ import annotations

from types import SimpleNamespace

from nbkit.study.conditions import _images, where_and_when

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


def test_of_several_nodes_the_cpus_are_those_of_the_first():
    one = where_and_when({"nodes": ["n1"], "usable_cpus": 8.0})
    two = where_and_when({"nodes": ["n1", "n2"], "usable_cpus": 8.0})

    assert "of nodes n1, 8 usable CPUs; " in one
    assert "of nodes n1, n2, 8 usable CPUs on the first of them; " in two
