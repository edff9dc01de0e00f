"""A CSV file of several labels: how it is read, and what is refused."""

import pytest

from nbkit.datasets.multi_label import list_multi_label
from nbkit.errors import ConfigError
from tests.datasets.images import names_of, write_table


def test_columns_of_zeros_and_ones_are_the_labels(table):
    listing = list_multi_label(table)

    assert listing.is_multi_label
    assert listing.root == table.parent
    assert list(listing.classes) == ["sick", "old"]
    assert [(sample.name, sample.label) for sample in listing.train] == [
        ("a/1.png", (0, 1)),
        ("b/2.png", (1, 0)),
    ]
    assert [(sample.name, sample.label) for sample in listing.evaluation] == [
        ("a/3.png", (1, 1))
    ]


def test_without_a_column_of_splits_everything_is_for_training(tmp_path):
    table = write_table(tmp_path, ["2.png,1", "1.png,0"], "file,sick")

    listing = list_multi_label(table)

    assert names_of(listing.train) == ["1.png", "2.png"]
    assert list(listing.evaluation) == []


def test_blanks_and_points_do_not_lose_a_label(tmp_path):
    rows = ["1.png, 1,0.0,1,a", "2.png,0 ,1.0,-1,b"]
    table = write_table(tmp_path, rows, "file,sick,old,unsure,view")

    listing = list_multi_label(table)

    assert [sample.label for sample in listing.train] == [(1, 0), (0, 1)]
    assert list(listing.classes) == ["sick", "old"]
    assert list(listing.unused_columns) == ["unsure", "view"]


def test_a_label_with_a_slip_in_it_is_refused_with_the_line(tmp_path):
    rows = [f"{number}.png,{number % 2}" for number in range(100)]
    rows[7] = "7.png,-1"
    table = write_table(tmp_path, rows, "file,sick")

    with pytest.raises(ConfigError, match=r"sick='-1' in line 9, but all but 1 of 100"):
        list_multi_label(table)


@pytest.mark.parametrize("word", ["val", "valid", "Validation", "test"])
def test_every_usual_word_for_evaluation_is_known(tmp_path, word):
    table = write_table(tmp_path, ["1.png,train,1", f"2.png,{word},0"], "file,split,a")

    assert names_of(list_multi_label(table).evaluation) == ["2.png"]


def test_another_label_changes_the_fingerprint(table):
    before = list_multi_label(table).fingerprint()
    table.write_text(table.read_text().replace("1,front,0", "1,front,1"))

    after = list_multi_label(table).fingerprint()

    assert after.bytes == before.bytes
    assert after.sha256 != before.sha256
    assert after.stamp != before.stamp


@pytest.mark.parametrize(
    ("rows", "columns", "said"),
    [
        (["1.png,1"], "path,sick", "has no column 'file', only path, sick"),
        (["1.png,1"], "file,file", "several columns 'file'"),
        (["1.png,2"], "file,sick", "no column of labels"),
        (["1.png,exam,1"], "file,split,a", "split='exam' in line 2"),
        (["1.png,val,1"], "file,split,a", "no image for training"),
        (["1.png,1", "1.png,0"], "file,sick", "'1.png' more than once"),
        (["1.png,1", "2.png"], "file,sick", "1 value in line 3, not 2"),
    ],
)
def test_a_table_that_cannot_be_used_says_why(tmp_path, rows, columns, said):
    table = write_table(tmp_path, rows, columns)

    with pytest.raises(ConfigError, match=rf"labels.csv' .*{said}.*; give a CSV file"):
        list_multi_label(table)


@pytest.mark.parametrize("name", ["../1.png", "/1.png", ""])
def test_a_file_that_lies_elsewhere_is_refused(table, name):
    table.write_text(f"file,sick\n{name},1\n")

    with pytest.raises(ConfigError, match=rf"file '{name}' in line 2, which is else"):
        list_multi_label(table)


def test_missing_images_are_counted_and_named(table):
    (table.parent / "a" / "3.png").unlink()

    with pytest.raises(ConfigError, match=r"1 of 3 files that are missing \(a/3.png\)"):
        list_multi_label(table)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "has no column 'file', only nothing"),
        (b"file,sick\n", "lists no image"),
        (b"file,sick\n\xff.png,1\n", "is not a CSV file in UTF-8"),
        (b'file,sick\n"1.png,1\n', "is not a CSV file"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path, content, said):
    (tmp_path / "labels.csv").write_bytes(content)

    with pytest.raises(ConfigError, match=said):
        list_multi_label(tmp_path / "labels.csv")
