"""A training that stops being finite: what its record says, and what is kept of it."""

from __future__ import annotations

import pytest

import nbkit
from nbkit.errors import NonFiniteError, RunFailedError
from nbkit.store.record import RunState, read_json
from tests.training import train_here

pytestmark = pytest.mark.nonfinite


@pytest.fixture
def diverges(small):
    """Its weights are finite for two steps only; a checkpoint is due at every one."""
    return small(
        model="resnet18",
        num_classes=10,
        learning_rate=1e6,
        steps=8,
        checkpoint_period_steps=1,
    )


def _found(run):
    """Return what the record and the lines of the steps say, which is the same."""
    told = run.worker["nonfinite"]
    lines = [line for line in run.metrics(None) if line["kind"] == "nonfinite"]
    assert [{name: line[name] for name in told} for line in lines] == [told]
    return told


def _checkpoints(run):
    """Return by step whether each kept checkpoint's weights are finite."""
    files = sorted(run.paths.checkpoints.glob("*/complete.json"))
    complete = [read_json(file) for file in files]
    return {one["step"]: one["finite"] for one in complete}


def test_diverged_run(diverges):
    run = train_here(diverges.replace(steps=6))

    losses = {line["step"]: line["loss"] for line in run.metrics()}
    first = min(step for step, loss in losses.items() if loss is None)
    assert run.state is RunState.FINISHED
    assert len(losses) == 6
    assert _found(run) == {"what": "loss", "step": first, "after_step": None}
    # Two are kept, and the last whose weights were finite beside them.
    kept = _checkpoints(run)
    assert [kept[4], kept[5]] == [False, False]
    assert [step for step, finite in kept.items() if finite] == [min(kept)]


def test_stop_on_nonfinite(diverges):
    with pytest.raises(NonFiniteError, match=r"not finite at step .* below 1e\+06"):
        train_here(diverges.replace(stop_on_nonfinite=True))

    (run,) = nbkit.runs()
    step = _found(run)["step"]
    assert run.metrics()[-1]["step"] == step
    assert _checkpoints(run) == {step - 2: True, step - 1: True}


def test_stop_on_nonfinite_of_one_rank(small):
    run = nbkit.launch(
        small(model="loses_a_rank", gpus=2, stop_on_nonfinite=True, max_restarts=3)
    )
    with pytest.raises(RunFailedError, match="not finite between step 2 and step 3"):
        run.wait()

    assert run.state is RunState.FAILED
    assert run.cause["kind"] == "nonfinite"
    # Nothing is scaled, so that nobody has looked at the gradients of step 2.
    assert _found(run) == {"what": "loss", "step": 3, "after_step": 1}
    record = read_json(run.paths.record)
    assert record["worker"]["nonfinite"] == _found(run)
    # Another attempt would only repeat it.
    (attempt,) = record["attempts"]
    assert {rank["exit_code"] for rank in attempt["ranks"]} == {1}
    assert len({rank["steps"] for rank in record["worker"]["ranks"]}) == 1


def test_nonfinite_weight(small):
    run = train_here(small(model="hides_a_weight", steps=30))

    assert all(line["loss"] is not None for line in run.metrics())
    assert _found(run) == {"what": "weights", "step": 25, "after_step": 0}
