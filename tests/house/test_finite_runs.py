"""Every finished training that a test makes is looked at: see tests/finite_runs.py."""

from __future__ import annotations

import json

import pytest

from nbkit.store.record import write_json
from tests.finite_runs import FiniteRuns


def stored(folder, *, loss=1.0, task="train", completed=True, **worker):
    """Write what a training in the test's own process leaves."""
    run = folder / "runs" / "20260101-000000-here"
    run.mkdir(parents=True)
    values = {"task": task, "completed": completed, "weights_finite": True} | worker
    write_json(run / "worker.json", values)
    lines = [{"kind": "step", "step": 1, "loss": 1.0}]
    lines.append({"kind": "step", "step": 2, "loss": loss})
    (run / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    return run


@pytest.mark.nonfinite
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"loss": None}, "step 2 has no loss"),
        ({"weights_finite": False}, "weights_finite is false"),
        ({"nonfinite": {"what": "gradients", "step": 2}}, "worker.json says"),
    ],
)
def test_each_sign_is_seen_in_a_nested_store(tmp_path, fields, said):
    run = stored(tmp_path / "lab/store", **fields)

    with pytest.raises(pytest.fail.Exception, match=said) as raised:
        FiniteRuns([]).check([tmp_path], excused=False)
    assert str(run) in str(raised.value)


@pytest.mark.parametrize(
    "fields", [{}, {"loss": None, "task": "load"}, {"loss": None, "completed": False}]
)
def test_finite_and_unfinished_runs_and_those_without_a_model_pass(tmp_path, fields):
    stored(tmp_path, **fields)

    FiniteRuns([]).check([tmp_path], excused=False)
