"""What files that are skipped are counted as."""

import pytest

from nbkit.datasets.skipped_files import in_words, most_frequent, suffix_kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.GIF", "*.gif"),
        ("a.tar.gz", "*.gz"),
        ("scan.0001", "with no suffix"),
        ("README", "with no suffix"),
        ("a/.b/1.jpg", "*.jpg"),
    ],
)
def test_kind_is_the_suffix(name, kind):
    assert suffix_kind(name) == kind


def test_most_frequent_keeps_a_hundred_kinds():
    counts = {f"*.{number}x": number for number in range(1, 151)}

    kept = most_frequent(counts)

    assert len(kept) == 101
    assert kept["other"] == sum(range(1, 51))
    assert sum(kept.values()) == sum(counts.values())


def test_in_words_names_five_kinds_of_the_largest_counts():
    counts = {f"*.{letter}": place + 3 for place, letter in enumerate("abcdefg")}

    assert in_words(counts) == "9 *.g, 8 *.f, 7 *.e, 6 *.d, 5 *.c, 7 more"
