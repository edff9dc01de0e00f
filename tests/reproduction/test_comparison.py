"""`compare` reads what real runs have recorded."""

from __future__ import annotations

import pytest

import nbkit
from nbkit.errors import ConfigError, RunError, RunNotFoundError
from nbkit.reproduction.comparison import run_facts
from nbkit.review.causes import Cause, Diagnosis
from nbkit.store.bundle_import import ImportedBundle
from nbkit.store.record import write_json
from nbkit.store.stored_runs import StoredRun
from tests.launch.conftest import plugins, small, store

__all__ = ["plugins", "small", "store"]


def test_two_runs_differ_in_what_was_asked_for_and_in_nothing_else(
    small, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)  # in no checkout, whose files might change meanwhile
    causes = []
    monkeypatch.setattr(
        "nbkit.reports.bottlenecks.diagnose", lambda run: Diagnosis("a run", causes)
    )
    run = nbkit.launch(small(steps=6)).wait()
    other = nbkit.launch(small(steps=6, learning_rate=0.2)).wait()

    comparison = nbkit.compare(run, other.run_id)

    found = [(one.part, one.name, one.a, one.b) for one in comparison.differences]
    assert found == [("configuration", "learning_rate", "0.1", "0.2")]
    rates = [each.summary.images_per_second for each in (run, other)]
    assert comparison.ratio.estimate == pytest.approx(rates[0] / rates[1])
    assert "n=1" in comparison.sentence
    told = [
        f"{name} {rate:,.1f} (over 4 steps)"
        for name, rate in zip(
            (comparison.a_name, comparison.b_name), rates, strict=True
        )
    ]
    assert f"Images/s: {told[0]}; {told[1]}." in comparison.sentence
    # Whoever only reads a run has no handle to stop it.
    read = StoredRun(run.paths.root)
    assert nbkit.compare(read, [other]).sentence == comparison.sentence
    causes.append(Cause.of("throttled", 0.4, "Clocks were held down.", "Cool.", None))
    disturbed = nbkit.compare(run, other)
    assert disturbed.ratio is None
    assert disturbed.sentence.startswith(
        "Inconclusive: clocks were held down (1 of 1 run of "
    )
    causes[:] = [Cause.of("other-cpu-processes", 0.4, "Others.", "Leave.", None)]
    assert nbkit.compare(run, other).ratio is None
    for one in (run, other):
        write_json(one.paths.record, {**one.record, "tags": {"concurrent": "a; b"}})
    assert nbkit.compare(run, other).ratio is not None
    with pytest.raises(ConfigError, match="is in both arms"):
        nbkit.compare([run, other], run)
    _takes_the_diff_that_the_record_names(run)
    _refuses_what_cannot_be_compared(run)


def _takes_the_diff_that_the_record_names(run):
    (run.paths.code / "diff.patch").write_bytes(b"+x = 2 # \xe9\n")
    code = {**run.record["code"], "diff": None}
    write_json(run.paths.record, {**run.record, "code": code})
    assert "diff.patch" not in run_facts(run).code
    code["diff"] = "code/diff.patch"
    write_json(run.paths.record, {**run.record, "code": code})
    assert "+x = 2" in run_facts(run).code["diff.patch"]


def _refuses_what_cannot_be_compared(run):
    write_json(run.paths.record, {**run.record, "state": "failed"})
    with pytest.raises(RunError, match="is failed"):
        nbkit.compare(run, run)
    with pytest.raises(RunNotFoundError):
        nbkit.compare("nobody", run)
    for nothing in ([], 7, [7]):
        with pytest.raises(ConfigError, match="not a run, run id, or list of runs"):
            nbkit.compare(nothing, run)
    bundle = ImportedBundle(("20200101-000000-a",), None, ())
    with pytest.raises(ConfigError, match='Pass one of its runs: "20200101-000000-a"'):
        nbkit.compare(bundle, run)
