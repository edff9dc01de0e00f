"""`nbkit.audit` takes whatever has results, and says what is suspicious about it."""

from __future__ import annotations

import pytest

import nbkit
from nbkit.errors import ConfigError, NotEnoughDataError


def rows(**wanted):
    return [
        row
        for row in nbkit.published()
        if all(getattr(row, name) == value for name, value in wanted.items())
    ]


def test_healthy_runs_on_cpus_have_notes_only(small, tmp_path, monkeypatch):
    arms = {"one": small(steps=60, gpus=1)}
    study = nbkit.Study.create("audited", arms, repeats=2).run(progress=False)
    run, again = study.runs_by_arm()["one"]

    alone, both, whole = map(nbkit.audit, (run, [run, again], study))

    assert alone.counts == {"cpu": 1, "few-runs": 1}
    assert alone.is_clean
    assert run.run_id in alone.sentence
    assert list(nbkit.audit(run.run_id)) == list(alone)
    # The same configuration, started twice, is one arm.
    assert both.counts == whole.counts == {"cpu": 2, "few-runs": 1}
    assert f"{run.run_id}: 2; a verdict needs 5 an arm" in str(both)
    assert "one: 2; a verdict needs 5 an arm" in str(whole)
    assert study.study_id in whole.sentence
    assert list(nbkit.audit(study.study_id)) == list(whole)

    bundle = nbkit.export(run, tmp_path / "run.zip")
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path / "elsewhere"))
    nbkit.import_bundle(bundle)
    assert list(nbkit.audit(run.run_id)) == list(alone)


def test_a_row_brings_its_series_and_the_claims_of_its_report():
    [row] = rows(publisher="Paddle", images_per_second=5889.05)

    audit = nbkit.audit(row)

    codes = set(audit.counts)
    assert {"layout", "drained-step", "mixed-statistics"} <= codes
    assert "mixed-environment" in codes  # what the report says of its machines
    assert "warm-up" not in codes  # of another point of the series
    assert audit.subject == row.label


def test_a_publisher_and_a_series_go_by_their_names():
    storage = nbkit.audit("NetApp")
    [row] = rows(publisher="Paddle", images_per_second=5889.05)

    assert storage.counts["cache-test"] == 1
    assert {finding.code for finding in storage.errors} == {"mean", "work"}
    assert "mixed-statistics" in nbkit.audit(row.series).counts


def test_clean_tables_pass():
    mlperf = [row for row in nbkit.published() if row.publisher.startswith("MLPerf v")]
    nvidia = rows(publisher="NVIDIA", memory_format="channels_last")

    assert len(mlperf) > 150
    assert nbkit.audit(mlperf).is_clean
    assert nbkit.audit(nvidia).is_clean


def test_what_cannot_be_audited_is_refused(store):
    with pytest.raises(ConfigError, match="not a publisher or series"):
        nbkit.audit("NetAp")
    with pytest.raises(ConfigError, match="Did you mean 'NetApp'"):
        nbkit.audit("NetAp")
    with pytest.raises(ConfigError, match="not a run or published row"):
        nbkit.audit([1, 2])
    with pytest.raises(NotEnoughDataError, match="there are 0 results"):
        nbkit.audit([])
