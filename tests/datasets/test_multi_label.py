"""A CSV file of several labels: how it is read, and what is refused."""

import pytest

from nbkit.datasets import pack
from nbkit.datasets.find import find
from nbkit.datasets.multi_label import list_multi_label
from nbkit.errors import ConfigError
from tests.datasets.images import names_of, write_table


def test_columns_of_zeros_and_ones_are_the_labels(table):
    listing = list_multi_label(table)

    assert listing.contents.is_multi_label
    assert listing.root == table.parent
    assert list(listing.contents.classes) == ["sick", "old"]
    assert [(sample.name, sample.label) for sample in listing.contents.train] == [
        ("a/1.png", (0, 1)),
        ("b/2.png", (1, 0)),
    ]
    assert [(sample.name, sample.label) for sample in listing.contents.evaluation] == [
        ("a/3.png", (1, 1))
    ]


def test_without_a_column_of_splits_everything_is_for_training(tmp_path):
    table = write_table(tmp_path, ["2.png,1", "1.png,0"], "file,sick")

    listing = list_multi_label(table)

    assert names_of(listing.contents.train) == ["1.png", "2.png"]
    assert list(listing.contents.evaluation) == []


def test_blanks_and_points_do_not_lose_a_label(tmp_path):
    rows = ["1.png, 1,0.0,30,a", "2.png,0 ,1.0,1,b"]
    table = write_table(tmp_path, rows, "file,sick,old,age,view")

    listing = list_multi_label(table)

    assert [sample.label for sample in listing.contents.train] == [(1, 0), (0, 1)]
    assert list(listing.contents.classes) == ["sick", "old"]
    assert listing.notes == ["columns that are not labels: age, view"]


def with_unknown(tmp_path, *texts, of=20):
    """Write a table whose first values of ``y`` are these; the others are 0 and 1."""
    values = [*texts, *(number % 2 for number in range(of - len(texts)))]
    rows = [f"{number:02}.png,1,{value}" for number, value in enumerate(values)]
    return write_table(tmp_path, rows, "file,x,y")


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["-1"], r"y='-1' in line 2; uncertain values: 1 of 20 in y\. Set uncertain_l"),
        (
            ["", ""],
            r"y='' in line 2; missing values: 2 of 20 in y\. Set missing_labels",
        ),
        (["NaN"] * 15, "y='NaN' in line 2; missing values: 15 of 20 in y"),
        (["Unsure"], "y='Unsure' in line 2; uncertain values: 1 of 20"),
        (
            ["yes"],
            r"y='yes' in line 2; invalid values: 1 of 20 in y\. Write 0 or 1, or",
        ),
        (["2", "3"], "y='2' in line 2; invalid values: 2 of 20 in y"),
        (["-1.0", ""], r"1 of 20 in y.*\n.*y='' in line 3; missing values: 1 of 20"),
    ],
)
def test_value_of_a_label_that_is_not_known_is_refused(tmp_path, texts, said):
    table = with_unknown(tmp_path, *texts)

    with pytest.raises(ConfigError, match=said):
        list_multi_label(table)


@pytest.mark.parametrize(("rule", "value"), [("zero", 0), ("one", 1), ("ignore", None)])
@pytest.mark.parametrize(
    ("kind", "text"), [("missing", ""), ("missing", "nan"), ("uncertain", "-1")]
)
def test_unknown_labels_are_read_as_asked(tmp_path, kind, text, rule, value):
    table = with_unknown(tmp_path, text)

    listing = list_multi_label(table, **{f"{kind}_labels": rule})

    labels = {sample.name: sample.label for sample in listing.contents.train}
    assert labels.get("00.png") == (None if value is None else (1, value))
    assert len(labels) == (19 if value is None else 20)
    (note,) = listing.notes
    assert f"{kind} labels (1 of 20 in y)" in note
    assert note.endswith(f": {kind}_labels={rule!r}")


def test_chexpert_is_read_with_both_rules(tmp_path):
    rows = ["1.png,1.0,", "2.png,,-1.0", "3.png,,1.0", "4.png,,", "5.png,0.0,0.0"]
    table = write_table(tmp_path, rows, "file,No Finding,Edema")

    listing = list_multi_label(table, missing_labels="zero", uncertain_labels="one")

    labels = [sample.label for sample in listing.contents.train]
    assert labels == [(1, 0), (0, 1), (0, 1), (0, 0), (0, 0)]


def test_a_patient_whose_image_is_omitted_does_not_leak(tmp_path):
    rows = ["0.png,train,1,p", "1.png,val,,p", "2.png,val,1,q", "3.png,train,0,r"]
    table = write_table(tmp_path, rows, "file,split,a,patient_id")

    contents = list_multi_label(table, missing_labels="ignore").contents

    assert len(contents.train) + len(contents.evaluation) == 3
    with pytest.raises(ConfigError, match="leakage: p"):
        list_multi_label(table, missing_labels="zero")


def test_another_rule_makes_another_manifest(tmp_path):
    table = with_unknown(tmp_path, "-1")
    rules = ("zero", "one")

    prints = [list_multi_label(table, uncertain_labels=r).fingerprint() for r in rules]

    assert prints[0].stamp != prints[1].stamp


def test_rule_that_is_none_is_refused(tmp_path):
    with pytest.raises(
        ConfigError, match=r"uncertain_labels='two' is unknown. Use one of refuse"
    ):
        find(str(tmp_path), uncertain_labels="two")


def test_pack_of_unknown_labels_takes_the_rule(tmp_path, packed, capsys):
    table = with_unknown(tmp_path / "data", "", "-1")
    rules = {"missing_labels": "zero", "uncertain_labels": "ignore"}

    with pytest.raises(ConfigError, match="missing values: 1 of 20 in y"):
        packed(table, "webdataset")
    listing = find(str(pack(table, tmp_path / "pack", "recordio", **rules)))

    assert len(listing.contents.train) == 19
    assert {sample.label for sample in listing.contents.train[:1]} == {(1, 0)}
    said = capsys.readouterr().out
    assert "missing labels (1 of 20 in y) are read as 0: missing_labels='zero'" in said
    assert "images with uncertain labels (1 of 20 in y) are omitted" in said


@pytest.mark.parametrize("word", ["val", "valid", "Validation", "test"])
def test_every_usual_word_for_evaluation_is_known(tmp_path, word):
    table = write_table(tmp_path, ["1.png,train,1", f"2.png,{word},0"], "file,split,a")

    assert names_of(list_multi_label(table).contents.evaluation) == ["2.png"]


def test_test_images_are_skipped_where_there_are_validation_images(tmp_path):
    rows = ["1.png,train,1", "2.png,val,0", "3.png,test,1"]
    listing = list_multi_label(write_table(tmp_path, rows, "file,split,a"))

    assert names_of(listing.contents.evaluation) == ["2.png"]
    assert listing.notes == [
        "1 test image skipped: evaluation uses the validation images"
    ]


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
        (["1.png,1"], "path,sick", r"has no column 'file' \(columns: path, sick\)"),
        (["1.png,1"], "file,file", "duplicate columns .'file'"),
        (["1.png,2"], "file,sick", "no label column"),
        (["1.png,exam,1"], "file,split,a", "split='exam' in line 2"),
        (["1.png,val,1"], "file,split,a", "no image for training"),
        (["1.png,1", "1.png,0"], "file,sick", "'1.png' more than once"),
        (["1.png,1", "2.png"], "file,sick", "1 value in line 3, not 2"),
    ],
)
def test_a_table_that_cannot_be_used_says_why(tmp_path, rows, columns, said):
    table = write_table(tmp_path, rows, columns)

    with pytest.raises(ConfigError, match=rf"labels.csv' .*{said}.*\. Pass a CSV file"):
        list_multi_label(table)


@pytest.mark.parametrize("name", ["../1.png", "/1.png", ""])
def test_a_file_that_lies_elsewhere_is_refused(table, name):
    table.write_text(f"file,sick\n{name},1\n")

    with pytest.raises(ConfigError, match=rf"'{name}' in line 2, not a rel"):
        list_multi_label(table)


def test_missing_images_are_counted_and_named(table):
    (table.parent / "a" / "3.png").unlink()

    with pytest.raises(ConfigError, match=r"of which 1 is missing \(a/3.png\)"):
        list_multi_label(table)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", r"has no column 'file' \(columns: none\)"),
        (b"file,sick\n", "lists no image"),
        (b"file,sick\n\xff.png,1\n", "is not a CSV file in UTF-8"),
        (b'file,sick\n"1.png,1\n', "is not a CSV file"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path, content, said):
    (tmp_path / "labels.csv").write_bytes(content)

    with pytest.raises(ConfigError, match=said):
        list_multi_label(tmp_path / "labels.csv")
