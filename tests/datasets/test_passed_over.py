"""What files that are passed over are counted as."""

import pytest

from nbkit.datasets.passed_over import kind_of, most_frequent


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.GIF", "*.gif"),
        ("a.tar.gz", "*.tar.gz"),
        ("scan.0001.gz", "*.gz"),
        ("scan.0001", "no suffix"),
        ("a.d41d8cd98f00b204", "no suffix"),
        ("README", "no suffix"),
        ("a/.b/1.jpg", "*.jpg"),
        ("a/._1.JPG", "hidden *.jpg"),
    ],
)
def test_numbers_and_long_words_are_no_suffix(name, kind):
    assert kind_of(name) == kind


def test_of_many_kinds_the_most_frequent_are_kept():
    counts = {f"*.{number}x": number for number in range(1, 151)}

    kept = most_frequent(counts)

    assert len(kept) == 101
    assert kept["other"] == sum(range(1, 51))
    assert sum(kept.values()) == sum(counts.values())
    assert most_frequent(kept) == kept
