"""What the storage report says follows from its data sets and from what was lost."""

from __future__ import annotations

import shutil

import pytest

from nbkit.questions import storage
from tests.questions.conftest import edit_metrics


def enlarged(name):
    """Return a change of a plan: the images of one place are ten times as large."""

    def change(plan):
        plan["memory_bytes"] = 10**8
        for place in plan["places"]:
            if place["name"] == name:
                place["sources"][0]["bytes"] *= 10

    return change


def test_supply_of_sources_of_different_size(golden):
    table = storage.result(golden("storage/no_control", enlarged("local"))).supply

    assert "nas 110 kB per image, 0.375 GB/s" in table.notes[1]
    assert "local 1,100 kB per image, 3.75 GB/s" in table.notes[1]
    loaders = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    loaders = [row for row in loaders if "first epoch" in str(row["measured"])]
    for row, size in zip(loaders, (110e3, 1.1e6), strict=True):
        rate = float(row["images/s"].replace(",", ""))
        assert float(row["GB/s"]) == pytest.approx(rate * size / 1e9, rel=0.01)


def test_answer_test_name_is_of_its_source(golden):
    answers = [
        storage.result(golden("storage/no_control", enlarged(name))).answer
        for name in ("nas", "local")
    ]

    is_of_nas = answers[0].startswith("nas")
    is_cache_test = ["(cache test)" in answer for answer in answers]
    assert is_cache_test == [not is_of_nas, is_of_nas]
    report = storage.result(golden("storage/no_control", enlarged("nas"))).report()
    [where] = [table for table in report.tables if table.caption == "Data location"]
    tests = [row[where.columns.index("test")] for row in where.rows]
    assert tests == ["storage test", "cache test"]


@pytest.mark.nonfinite
def test_answer_without_emulated_arms_or_finite_training(golden, lose):
    study = golden("storage/one_repeat")
    for arm, (stage, _) in study.plan["stage_of"].items():
        for run in study.runs_by_arm()[arm] if stage == "emulate" else ():
            shutil.rmtree(run.paths.root)
    best = study.runs_by_arm()["local, training"]

    def faster(line):
        line["step_time_seconds"] /= 100

    edit_metrics(best, faster)
    found = storage.result(study)
    lose(best, ended=False)
    other = storage.result(study)

    assert "local, training" in found.answer
    assert "No GPU was emulated" in found.answer
    assert "local, loader" in other.answer
    assert "local, training" in [row[0] for row in other.report().tables[0].rows]
