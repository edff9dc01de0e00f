"""Listing packed files, of any format, while somebody waits."""

import pytest

from nbkit.datasets import packed
from nbkit.datasets.packed import Packed, is_for_evaluation, list_packed


def test_listing_a_long_file_can_be_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(packed, "_BETWEEN_CALLS_SECONDS", 0.01)
    (tmp_path / "long.x").write_bytes(b"")

    def read_for_ever(path):
        while True:
            yield Packed(None, (0,), ((0, 1),))

    def stop():
        raise KeyboardInterrupt

    listing = list_packed("x", tmp_path, lambda name: True, read_for_ever, stop)
    with pytest.raises(KeyboardInterrupt):
        listing.read()


@pytest.mark.parametrize(
    ("shard", "expected"),
    [
        ("val.rec", True),
        ("val-00001.tar", True),
        ("imagenet2012-validation.tfrecord-00000-of-00064", True),
        ("VALID_3.tar", True),
        ("test/0.tar", True),
        ("train-00000.tar", False),
        ("evaluation-0.tar", False),
        ("valley-0.tar", False),
        ("latest-0.tar", False),
    ],
)
def test_a_word_in_its_path_says_what_a_file_is_for(shard, expected):
    assert is_for_evaluation(shard) is expected
