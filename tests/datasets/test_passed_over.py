"""What files that are passed over are counted as."""

import pytest

from nbkit.datasets.passed_over import counted, in_words, kind_of, most_frequent


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.GIF", "*.gif"),
        ("a.tar.gz", "*.tar.gz"),
        ("scan.0001.gz", "*.gz"),
        ("scan.0001", "with no suffix"),
        ("a.d41d8cd98f00b204", "with no suffix"),
        ("README", "with no suffix"),
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


def test_a_single_kind_is_never_hidden_by_its_count():
    counts = {f"*.{letter}": 9 - place for place, letter in enumerate("abcdefg")}

    six = in_words(dict(list(counts.items())[:6]))
    seven = in_words(counts)

    assert six == "9 *.a, 8 *.b, 7 *.c, 6 *.d, 5 *.e, 4 *.f"
    assert seven == "9 *.a, 8 *.b, 7 *.c, 6 *.d, 5 *.e, 7 of 2 more kinds"


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ({"*.gif": 1}, "1 file: 1 *.gif"),
        ({"*.tar in my hidden folders/": 1}, "1 file: 1 *.tar in my hidden folders/"),
        ({"hidden folders": 1}, "1 folder: 1 hidden folder"),
        (
            {"hidden folders left out when packed": 2, "*.gif": 1},
            "3 files and folders: 2 hidden folders left out when packed, 1 *.gif",
        ),
    ],
)
def test_folders_are_not_called_files(counts, said):
    assert f"{counted(counts)}: {in_words(counts)}" == said
