"""A run of Slurm while it waits and while it goes on, as the live view shows it."""

from __future__ import annotations

import json

import pytest

from nbkit.launch.run_progress import RunPosition, result
from nbkit.live import devices
from nbkit.live.devices import LiveDevices
from nbkit.live.rows import run_numbers
from nbkit.live.run import LiveRun
from nbkit.store.metrics import to_json_line
from nbkit.store.progress import queue_words
from nbkit.store.record import write_json
from nbkit.widgets.picture import picture
from tests.slurm_programs import SlurmPrograms
from tests.widgets.stored_run import WrittenRun


@pytest.fixture
def queued(tmp_path, monkeypatch):
    """Return a run that waits in Slurm as job 7; it has no record."""
    written = WrittenRun(tmp_path, nnodes=2)
    written.run.paths.record.unlink()
    submission = {
        "attempt": 0,
        "time": "2020-01-01T00:00:00.000Z",
        "supervisor": None,
        "job": {"id": "7", "cluster": None},
    }
    write_json(written.run.paths.submission, submission)
    programs = SlurmPrograms(tmp_path, monkeypatch)
    programs.tell("squeue", "7|PENDING|N/A||Resources")
    return written.run


def test_a_run_that_waits_in_slurm_says_for_what(queued):
    words = "Slurm: waiting for free nodes (Resources)"
    live = LiveRun(queued)
    assert live.read() is False

    assert live.snapshot()["head"]["queue"]["reason"] == words
    assert f"queued, {words} at " in picture(live)["text/plain"]
    assert "4 ranks on 2 nodes" in picture(live)["text/plain"]
    assert run_numbers(queued)["gpus"] == 4
    with queued.paths.metrics.open("a") as file:  # of an earlier attempt
        file.write(to_json_line({"kind": "log", "attempt": 0, "step": 5, "t": 1.0}))
    position = RunPosition()
    position.read(queued)
    assert position.words(queued) == f"queued, {words}"
    with pytest.raises(
        TimeoutError, match=r"is still queued .Slurm: waiting for free nodes"
    ):
        queued.wait(timeout_seconds=0)


def test_a_place_is_said_where_there_is_one():
    queue = {"position": 1, "length": 2, "reason": "2 of 2 GPUs are held"}

    assert queue_words(queue) == "position 1 of 2: 2 of 2 GPUs are held"


def _add_sample(folder, node, t, percent):
    gpu = {"index": 0, "uuid": f"GPU-{node}", "gpu_utilization_percent": percent}
    gpu |= {"memory_used_bytes": 1 << 30}
    gpu |= {"power_watts": None}
    with (folder / f"{node}.jsonl").open("a") as file:
        file.write(json.dumps({"kind": "sample", "t": t, "gpus": [gpu]}) + "\n")


def test_a_run_that_was_put_back_shows_its_present_nodes(tmp_path):
    run = WrittenRun(tmp_path, nnodes=2).run
    record = {**run.record, "launch": {"job": {"nodes": ["n2"]}, "devices": []}}
    write_json(run.paths.record, record)
    run.paths.system("n1").parent.mkdir(exist_ok=True)
    for node in ("n1", "n2"):
        _add_sample(run.paths.system(node).parent, node, 10.0, 20)
    live = LiveRun(run)

    live.read()

    assert [row["host"] for row in live.snapshot()["devices"]] == ["n2"]


def test_gpus_of_all_nodes_are_shown_by_the_names_of_the_nodes(tmp_path):
    _add_sample(tmp_path, "n1", 10.0, 20)
    _add_sample(tmp_path, "n2", 10.5, 60)
    live = LiveDevices(tmp_path)

    live.read([], is_over=True)

    rows = live.rows()
    assert [(row["host"], row["gpu_utilization_percent"]) for row in rows] == [
        ("n1", 20),
        ("n2", 60),
    ]
    [[_, low, high, mean]] = live.series["device:gpu_utilization_percent"].points()
    assert (low, high, mean) == (20, 60, 40)


def test_however_many_nodes_there_are_some_of_what_lies_before_is_read(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(devices, "LEAST_BYTES", 1)
    monkeypatch.setattr(devices, "WHOLE_BYTES", 1)
    monkeypatch.setattr(devices, "EARLIER_SAMPLES", 1)
    for second in range(10):
        for node in ("n1", "n2"):
            _add_sample(tmp_path, node, float(second), second)
    live = LiveDevices(tmp_path)

    live.read([], is_over=True)

    points = live.series["device:gpu_utilization_percent"].points()
    assert len(points) == devices.LEAST_SAMPLES


def test_a_failing_rank_is_named_with_its_node_wherever_it_is_told(tmp_path):
    written = WrittenRun(tmp_path, nnodes=2)
    cause = {"kind": "exception", "rank": 3, "node": "n2", "message": "no luck"}
    written.record("failed", cause=cause)
    live = LiveRun(written.run)
    live.read()

    said = "failed on rank 3 (n2): no luck"
    assert said in picture(live)["text/plain"]
    assert result(written.run) == said
    assert live.snapshot()["head"]["cause"]["begin"] == "failed on rank 3 (n2): "
