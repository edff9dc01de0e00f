"""Where a run is, as the end of its file of metrics tells it."""

from __future__ import annotations

import json

import pytest

from nbkit.store.progress import end_words, progress, total_steps


def write(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_progress_of_long_file(tmp_path):
    metrics = tmp_path / "metrics.jsonl"
    lines = [
        {"kind": "step", "step": n, "loss": 1 / n, "images": 8, "step_time_seconds": 2}
        for n in range(1, 20_001)
    ]
    lines[-5]["step_time_seconds"] = 122
    write(metrics, lines)
    with metrics.open("a") as file:
        file.write('{"ki')

    found = progress(metrics)

    assert found["step"] == 20_000
    assert found["loss"] == pytest.approx(1 / 20_000)
    assert found["images_per_second"] == 1.0  # the stall counts with its length


def test_progress_of_a_function(tmp_path):
    metrics = tmp_path / "metrics.jsonl"
    logged = [
        {"loss": 4.0, "images_per_second": 100.0},
        {"loss": 3.0},
        {"val_accuracy": 0.5},
    ]
    lines = [{"kind": "log", "step": n, "values": v} for n, v in enumerate(logged, 1)]
    write(metrics, [*lines[:1], {"kind": "checkpoint", "step": 1, "path": "p"}])
    assert progress(metrics) == {"step": 1, "loss": 4.0, "images_per_second": 100.0}

    # Each value is from the newest line that has it.
    write(metrics, lines)
    assert progress(metrics) == {"step": 3, "loss": 3.0, "images_per_second": 100.0}


@pytest.mark.parametrize("beside_steps", [False, True])
def test_progress_long_log_line(tmp_path, beside_steps):
    metrics = tmp_path / "metrics.jsonl"
    step = {"kind": "step", "step": 9, "loss": 0.5, "images": 8, "step_time_seconds": 2}
    values = {f"weight norm of layer {n}": 0.25 for n in range(1500)}
    log = {"kind": "log", "step": 9, "values": {**values, "loss": 0.5}}
    if beside_steps:
        log["beside_steps"] = True
    write(metrics, [step, log])
    assert metrics.stat().st_size > 50_000

    found = progress(metrics)

    assert (found["step"], found["loss"]) == (9, 0.5)


@pytest.mark.parametrize(
    "line",
    [
        {"kind": "step", "step": 9, "loss": 0.5, "images": 8, "step_time_seconds": 2},
        {"kind": "log", "step": 9, "values": {"loss": 0.5}},
    ],
)
def test_progress_damaged_line_far_behind(tmp_path, line):
    metrics = tmp_path / "metrics.jsonl"
    write(metrics, [line] * 20)
    metrics.write_text("{dam\n" + metrics.read_text())

    found = progress(metrics)

    assert (found["step"], found["loss"]) == (9, 0.5)


def test_progress_damaged_newest_line(tmp_path):
    metrics = tmp_path / "metrics.jsonl"
    write(metrics, [{"kind": "log", "step": 9, "values": {"loss": 0.5}}])
    with metrics.open("a") as file:
        file.write("{dam\n")

    with pytest.raises(json.JSONDecodeError):
        progress(metrics)


def test_progress_without_lines(tmp_path):
    assert progress(tmp_path / "metrics.jsonl") == {}


def test_only_a_training_knows_its_steps():
    assert total_steps({"task": "train", "steps": 100}) == 100
    assert total_steps({"task": "function", "steps": 100}) is None


@pytest.mark.parametrize(
    ("state", "cause", "words"),
    [
        ("failed", {"rank": 0, "message": "no luck"}, "failed on rank 0: no luck"),
        ("failed", {"rank": 3, "node": "n2", "message": ""}, "failed on rank 3 (n2)"),
        ("stopped", {"message": "stopped by user"}, "stopped by user"),
        ("lost", {}, "lost"),
    ],
)
def test_end_words(state, cause, words):
    assert end_words(state, cause) == words
