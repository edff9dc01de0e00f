"""Splits by patient, in nbkit's own table and alone."""

from dataclasses import replace

import pytest

from nbkit.datasets.multi_label import list_multi_label
from nbkit.datasets.patients import evaluation_patients
from nbkit.errors import ConfigError
from tests.datasets.images import names_of, write_table


def test_a_fifth_of_the_patients_is_always_the_same():
    patients = [f"p{number}" for number in range(100)]

    chosen = evaluation_patients(patients)

    assert len(chosen) == 20
    assert chosen == evaluation_patients([*reversed(patients), *patients])
    few = [evaluation_patients(names) for names in (["a"], ["a", "b"], [])]
    assert [*map(len, few)] == [0, 1, 0]


def test_patients_make_the_split_where_there_is_none_and_are_no_label(tmp_path):
    rows = [f"{number}.png,{number % 2},1" for number in range(6)]
    table = write_table(tmp_path, rows, "file,patient_id,sick")

    listing = list_multi_label(table)

    assert list(listing.contents.classes) == ["sick"]
    sides = [
        {listing.contents.patients[name] for name in names_of(samples)}
        for samples in (listing.contents.train, listing.contents.evaluation)
    ]
    assert sorted(map(len, sides)) == [1, 1]
    assert sides[0] != sides[1]


def test_a_patient_on_both_sides_is_refused(tmp_path):
    rows = ["1.png,train,a,1", "2.png,val,a,0", "3.png,train,b,0"]
    table = write_table(tmp_path, rows, "file,split,patient_id,sick")

    with pytest.raises(ConfigError, match=r"1 patient in both .* evaluation .leakage"):
        list_multi_label(table)


def test_the_rule_of_the_split_is_part_of_the_stamp_alone(tmp_path):
    table = write_table(tmp_path, ["1.png,a,1", "2.png,b,0"], "file,patient_id,sick")

    listing = list_multi_label(table)

    one, other = listing.fingerprint(), replace(listing, rule="another").fingerprint()
    assert one.sha256 == other.sha256
    assert one.stamp != other.stamp


def test_a_row_without_its_patient_is_refused(tmp_path):
    table = write_table(tmp_path, ["1.png,a,1", "2.png,,0"], "file,patient_id,sick")

    with pytest.raises(ConfigError, match="has no patient_id in line 3"):
        list_multi_label(table)
