"""Where a run stopped being finite is decided in one place, from whatever it kept."""

from __future__ import annotations

import json

import pytest

from nbkit.store.nonfinite import FiniteFollower, FiniteReading, NonFinite
from nbkit.store.stored_runs import StoredRun


def step(number, loss=1.0, attempt=0):
    return {"kind": "step", "attempt": attempt, "step": number, "loss": loss}


TOLD = {
    "kind": "nonfinite",
    "attempt": 0,
    "step": 50,
    "after_step": 25,
    "what": "weights",
    "t": 1.0,
}
CASES = {
    "finite": ([step(1), step(2)], {"weights_finite": True}, None),
    "told by a line": (
        [step(49), step(50, None), TOLD],
        {},
        NonFinite("weights", 50, 25),
    ),
    "told at the end": (
        [step(3)],
        {"nonfinite": {"what": "gradients", "step": 3, "after_step": None}},
        NonFinite("gradients", 3),
    ),
    "a loss without a line": (
        [step(1), step(2, None), step(3, None)],
        {},
        NonFinite("loss", 2),
    ),
    "lost before the attempt that tells it": (
        [step(1), step(2, None), step(3, None, 1), {**TOLD, "attempt": 1}],
        {},
        NonFinite("loss", 2),
    ),
    "a loader alone": ([step(1, None)], {"task": "load"}, None),
    "resumed before it": (
        [step(1), step(2), step(3, None), step(3, attempt=1)],
        {},
        None,
    ),
    "resumed after it": (
        [step(1), step(2, None), step(3, None), step(3, None, attempt=1)],
        {},
        NonFinite("loss", 2),
    ),
    "an attempt that only returned": (
        [step(1), step(2, None), {"kind": "returned", "attempt": 1, "step": 0}],
        {},
        NonFinite("loss", 2),
    ),
    "an attempt that begins beside its steps": (
        [step(2, None), {"kind": "log", "attempt": 1, "step": 0, "beside_steps": True}],
        {},
        NonFinite("loss", 2),
    ),
    "a dozen attempts": (
        [step(1), *(step(2, None, attempt) for attempt in range(12))],
        {},
        NonFinite("loss", 2),
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("separators", [(",", ":"), None])
def test_where_it_stopped_being_finite(case, separators, tmp_path):
    lines, worker, expected = CASES[case]
    file = tmp_path / "metrics.jsonl"
    text = "".join(json.dumps(line, separators=separators) + "\n" for line in lines)
    file.write_text(text)

    assert FiniteReading.of(lines).first_nonfinite(worker) == expected
    assert FiniteFollower(file).first_nonfinite(worker) == expected


def test_follower_growing_file(tmp_path):
    file = tmp_path / "metrics.jsonl"
    follower = FiniteFollower(file)
    assert follower.first_nonfinite({}) is None

    with file.open("a") as out:
        for line in [step(1), step(2), step(3, None)]:
            assert follower.first_nonfinite({}) is None
            out.write(json.dumps(line) + "\n")
            out.flush()

    assert follower.first_nonfinite({}) == NonFinite("loss", 3)


def test_run_summary_and_repr(tmp_path):
    root = tmp_path / "20261123-000000000-cnn-abcd"
    root.mkdir()
    worker = {"completed": True, "task": "train", "weights_finite": False}
    (root / "worker.json").write_text(json.dumps(worker))
    more = {"images": 8, "step_time_seconds": 0.5, "warmup": False}
    parts = ("data_wait_seconds", "compute_seconds", "communication_exposed_seconds")
    more |= dict.fromkeys(parts, 0.1)
    lines = [{**step(1), **more}, {**step(2, None), **more}]
    (root / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))

    run = StoredRun(root)

    assert run.nonfinite == run.summary.nonfinite == NonFinite("loss", 2)
    assert repr(run) == (
        f"<StoredRun {run.run_id} finished, loss not finite at step 2>"
    )


def test_follower_ended_run(tmp_path):
    missing = FiniteFollower(tmp_path)  # a folder: reading it would raise
    worker = {"task": "train", "ranks": [{}], "nonfinite": None}

    assert missing.first_nonfinite(worker) is None
    worker["nonfinite"] = {"what": "loss", "step": 3, "after_step": None}
    assert missing.first_nonfinite(worker) == NonFinite("loss", 3)
