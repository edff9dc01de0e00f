"""Where a run is, as the end of its file of metrics tells it."""

from __future__ import annotations

import json

import pytest

from nbkit.server.progress import progress, total_steps


def write(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_progress_is_the_end_of_a_long_file(tmp_path):
    metrics = tmp_path / "metrics.jsonl"
    lines = [
        {"kind": "step", "step": n, "loss": 1 / n, "images": 8, "step_time_seconds": 2}
        for n in range(1, 20_001)
    ]
    lines[-5]["step_time_seconds"] = 100  # a stall is no rate
    write(metrics, lines)
    with metrics.open("a") as file:
        file.write('{"ki')

    found = progress(metrics)

    assert found["step"] == 20_000
    assert found["loss"] == pytest.approx(1 / 20_000)
    assert found["images_per_second"] == 4.0


def test_progress_of_a_function_is_what_it_has_logged(tmp_path):
    metrics = tmp_path / "metrics.jsonl"
    lines = [
        {"kind": "log", "step": n, "values": {"loss": 1 / n, "accuracy": 0.5}}
        for n in range(1, 5)
    ]
    write(metrics, [*lines, {"kind": "checkpoint", "step": 4, "path": "p"}])

    assert progress(metrics) == {"step": 4, "loss": 0.25, "images_per_second": None}


def test_what_has_logged_nothing_has_no_progress(tmp_path):
    assert progress(tmp_path / "metrics.jsonl") == {}


def test_only_a_training_knows_its_steps():
    assert total_steps({"task": "train", "steps": 100}) == 100
    assert total_steps({"task": "function", "steps": 100}) is None
