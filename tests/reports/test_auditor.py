"""`nbkit.audit` takes whatever has results, and says what is suspicious about it."""

from __future__ import annotations

import json
import math
from collections import Counter

import pytest

import nbkit
from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError, NotEnoughDataError
from nbkit.questions.study_report import make
from nbkit.review.causes import DISTURBANCES, Cause, Diagnosis
from nbkit.review.cpu_checks import NO_CPU_SHARE
from nbkit.review.findings import codes
from tests.studies.written_study import write_runs


def rows(**wanted):
    return [
        row
        for row in nbkit.published()
        if all(getattr(row, name) == value for name, value in wanted.items())
    ]


def test_healthy_runs_on_cpus_have_notes_only(small, tmp_path, monkeypatch):
    # What other tests take of the CPUs would be a finding.
    monkeypatch.setattr("nbkit.review.cpu_checks.QUEUE_SECONDS", math.inf)
    arms = {"one": small(steps=60, gpus=1)}
    study = nbkit.Study.create("audited", arms, repeats=2).run(progress=False)
    run, again = study.runs_by_arm()["one"]

    alone, both, whole = map(nbkit.audit, (run, [run, again], study))

    # On a busy machine steps come in bursts or drift, and that is found as well.
    unsteady = {"bursts", "drift"}
    steady = [
        [finding for finding in audited if finding.code not in unsteady]
        for audited in (alone, both, whole)
    ]
    counts = [Counter(finding.code for finding in findings) for findings in steady]
    assert counts[0] == {"cpu": 1, "few-runs": 1}
    assert {finding.severity for finding in steady[0]} == {"note"}
    assert run.run_id in alone.sentence
    assert list(nbkit.audit(run.run_id)) == list(alone)
    # The same configuration, started twice, is one arm.
    assert counts[1] == counts[2] == {"cpu": 2, "few-runs": 1}
    assert f"{run.run_id}: 2; a verdict needs 5 runs per arm" in str(both)
    assert "one: 2; a verdict needs 5 runs per arm" in str(whole)
    assert study.study_id in whole.sentence
    assert list(nbkit.audit(study.study_id)) == list(whole)

    bundle = nbkit.export(run, tmp_path / "run.zip")
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path / "elsewhere"))
    nbkit.import_bundle(bundle)
    assert list(nbkit.audit(run.run_id)) == list(alone)


def test_every_reason_of_a_lead_is_a_finding_with_its_value_limit_and_action(
    store, monkeypatch
):
    causes = [Cause.of(code, 0.4, f"Seen: {code}.", "", None) for code in DISTURBANCES]
    monkeypatch.setattr(
        "nbkit.reports.bottlenecks.diagnose", lambda run: Diagnosis("a run", causes)
    )
    base = ExperimentConfig(device="cpu", model="resnet18", batch_size_per_gpu=8)
    arms = {"a": base, "b": base.replace(label_smoothing=0.1)}
    study = nbkit.Study.create("doubtful", arms, control="a")
    write_runs(study, {"a": 100.0, "a again": 50.0, "b": 110.0})

    audit = nbkit.audit(study)

    by_code = {one.code: one for one in audit}
    cpus = by_code["other-cpu-processes"]
    assert not audit.is_clean
    assert by_code["control-differs"].evidence == (
        "A/A control differs by 50.0%; limit: 10%, or a CI beyond the margin"
    )
    assert cpus.action == "Measure again when nothing else runs on this machine."
    assert f"limit: {NO_CPU_SHARE * 100:g}% of" in by_code["no-cpu"].evidence
    # The report begins with the same reasons, and what to do is the same.
    caveats = make(study).result["caveats"]
    assert len(caveats) == 1 + len(DISTURBANCES)
    for caveat in caveats:
        [same] = [one for one in audit if one.evidence.startswith(caveat["evidence"])]
        assert same.action == caveat["action"] == codes()[same.code].action


def test_an_arm_without_a_run_is_a_finding_of_a_study(store):
    base = ExperimentConfig(device="cpu", model="resnet18", batch_size_per_gpu=8)
    study = nbkit.Study.create("half", {"a": base})
    write_runs(study, {"a": 100.0})
    content = json.loads(study.paths.study.read_text())
    content["arms"]["b"] = content["arms"]["a"]
    content["order"].append(["b", 0])
    study.paths.study.write_text(json.dumps(content))

    [finding] = [one for one in nbkit.audit(study) if one.code == "missing-runs"]

    assert finding.evidence.startswith("1 of 2 planned runs has finished, but no")
    assert finding.action == "Resume the study."


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
    assert {finding.code for finding in storage.errors} == {"mean", "excess-images"}
    assert "mixed-statistics" in nbkit.audit(row.series).counts


def test_clean_tables_pass():
    mlperf = [row for row in nbkit.published() if row.publisher.startswith("MLPerf v")]
    nvidia = rows(publisher="NVIDIA", memory_format="channels_last")

    assert len(mlperf) > 150
    assert nbkit.audit(mlperf).is_clean
    assert nbkit.audit(nvidia).is_clean


def test_what_cannot_be_audited_is_refused(store):
    with pytest.raises(ConfigError, match="nor a publisher or series"):
        nbkit.audit("NetAp")
    with pytest.raises(ConfigError, match="Did you mean 'NetApp'"):
        nbkit.audit("NetAp")
    with pytest.raises(ConfigError, match="not a run or published row"):
        nbkit.audit([1, 2])
    with pytest.raises(NotEnoughDataError, match="No results to audit"):
        nbkit.audit([])
