"""The process that feeds viewers: what it says, and what it is told."""

from __future__ import annotations

import json
import os
import socket

import pytest

from nbkit.telemetry.sample import GpuSample, HostSample, Sample
from tests.waiting import wait_until


def _values(inventory, sample, number=0):
    return dict(zip(inventory["gpu_columns"], sample["gpus"][number], strict=True))


def _activity(inventory, sample):
    return _values(inventory, sample, 1)["sm_activity_percent"]


def test_an_inventory_comes_first_and_then_samples_that_fit_it(feed, drive_child):
    drive_child({"uuid": "GPU-a", "pids": [1]}, {"uuid": "GPU-b", "reasons": 4})
    child = feed()

    inventory = child.wait("inventory")
    # A second reading right after the first one, which is late, has no activity yet.
    child.wait("sample", lambda line: line["cores"] and _activity(inventory, line))

    first, *_, last = child.lines("sample")
    assert [gpu["uuid"] for gpu in inventory["gpus"]] == ["GPU-a", "GPU-b"]
    assert inventory["host"] == last["host"] == socket.gethostname()
    assert inventory["interval_seconds"] == 0.25
    assert inventory["gpus_unavailable"] is None
    assert (inventory["source"], inventory["replay"]) == ("nvml", None)
    assert inventory["t"] <= first["t"] < last["t"]
    values = _values(inventory, last, 1)
    assert values["utilization_percent"] == 87
    assert values["memory_used_mib"] == 2048
    assert values["clock_events"] == 4
    assert values["sm_activity_percent"] == pytest.approx(71.2, abs=0.1)
    assert values["pcie_rx_mb_per_s"] == 0.0
    assert last["holders"] == [[1024], []]
    assert last["mig"] == [None, None]
    assert len(last["cores"]) == inventory["cpus"]
    assert len(last["host_values"]) == len(inventory["host_columns"])
    assert child.stop() == 0
    assert child.errors == ""


def test_eight_gpus_and_64_cores_fit_in_2_kb(feed, drive_child):
    gpus = [
        {"uuid": f"GPU-{n}", "pids": [1, os.getpid()], "used_bytes": 79 * 2**30}
        for n in range(8)
    ]
    drive_child(*gpus)
    child = feed()

    sample = child.wait("sample", lambda line: line["cores"])

    sample["cores"] = [100] * 64
    assert len(json.dumps(sample, separators=(",", ":"))) < 2000


def test_feed_names_reported_kernels_and_runs(feed, drive_child):
    drive_child({"uuid": "GPU-a", "pids": [os.getpid()]}, {"uuid": "GPU-b"})
    child = feed()
    child.wait("inventory")
    kernel = {"kernel_id": "k1", "pid": os.getpid(), "name": "Python 3"}
    kernel |= {"path": "a/b.ipynb", "idle_since": None}

    child.say(kernels=[kernel], hide_commands_of_others=False)

    inventory = child.wait(
        "inventory", lambda line: line["gpus"][0]["holders"][0]["kind"] == "kernel"
    )
    (holder,) = inventory["gpus"][0]["holders"]
    assert (holder["kernel_id"], holder["path"]) == ("k1", "a/b.ipynb")
    assert holder["own"] is True
    run = {"run_id": "r1", "name": "resnet50", "devices": ["GPU-b"], "pids": []}

    child.say(runs=[{**run, "path": None}])

    inventory = child.wait("inventory", lambda line: line["gpus"][1]["holders"])
    (kernel,), (run,) = (gpu["holders"] for gpu in inventory["gpus"])
    assert kernel["run_id"] is None
    assert (run["run_id"], run["reported_by"]) == ("r1", "run")
    assert child.wait_for_next("sample")["holders"] == [[1024], [None]]


INVALID_COMMANDS = [
    "nonsense",
    "[1]",
    '{"kernels": [{"pid": 1}]}',
    '{"kernels": 7}',
    '{"dance": true}',
]


def test_feed_reports_invalid_commands_and_follows_the_next(feed, drive_child):
    drive_child({"uuid": "GPU-a"})
    child = feed()
    child.wait("sample")

    for line in INVALID_COMMANDS:
        child.say_line(line)
    count = len(INVALID_COMMANDS)
    wait_until(lambda: child.errors.count("is not valid") == count, "complaints")
    child.wait_for_next("sample")
    assert len(child.lines("inventory")) == 1

    run = {"run_id": "r1", "name": "resnet50", "devices": ["GPU-a"], "pids": []}
    child.say(runs=[{**run, "path": None}])
    child.wait("inventory", lambda line: line["gpus"][0]["holders"])
    assert child.stop() == 0


# Drivers that misbehave


def test_feed_reports_a_driver_hang_before_the_next_tick(feed, drive_child):
    children = []
    for call in ("nvmlDeviceGetPowerUsage", "nvmlDeviceGetUUID"):
        drive_child({"uuid": "GPU-a", "hangs_in": call})
        children.append(feed("--interval", "3600"))

    for child in children:
        unavailable = child.wait("inventory")["gpus_unavailable"]
        assert unavailable["reason"] == "driver not answering"
        assert child.stop() == 0


def test_a_driver_that_hangs_is_named_and_the_host_goes_on(feed, drive_child, tmp_path):
    file = tmp_path / "hanging"
    drive_child(
        {
            "uuid": "GPU-a",
            "hangs_in": "nvmlDeviceGetPowerUsage",
            "hangs_while": str(file),
        }
    )
    child = feed()
    before = child.wait("inventory")
    child.wait("sample", lambda line: line["gpus"][0])

    file.touch()
    during = child.wait("inventory", lambda line: line["gpus_unavailable"])
    blind = child.wait("sample", lambda line: line["gpus"] == [None])
    file.unlink()
    after = wait_until(
        lambda: child.lines("inventory")[-1]["gpus_unavailable"] is None, "recovery"
    )
    sample = child.wait_for_next("sample")

    assert during["gpus_unavailable"]["reason"] == "driver not answering"
    assert "dmesg" in during["gpus_unavailable"]["message"]
    # Since the call, not since it was noticed; a viewer can tell for how long.
    assert during["t"] - during["gpus_unavailable"]["since"] > 2.9
    assert during["gpus"] == before["gpus"]
    assert blind["host_values"][0] is not None
    assert blind["holders"] == [[]]
    assert after
    assert _values(before, sample)["power_watts"] == 412.3


def test_a_replay_says_so_and_names_its_holders(feed, monkeypatch):
    monkeypatch.setenv("NBKIT_GPU_SOURCE", "replay:eight-gpus")
    child = feed()

    inventory, sample = child.wait("inventory"), child.wait("sample")

    assert (inventory["source"], inventory["replay"]) == ("replay", "eight-gpus")
    assert len(sample["gpus"]) == 8
    names = {holder["name"] for holder in inventory["gpus"][0]["holders"]}
    assert names == {"resnet50, 4 GPUs"}


# The past


def test_feed_past(feed, drive_child, tmp_path):
    drive_child()
    child = feed()
    now = child.wait("sample")["t"]
    gpus = (GpuSample(0, "GPU-a", gpu_utilization_percent=40),)
    times = [now - 500 + n for n in range(450)]
    samples = [Sample(t, gpus, host=HostSample(5.0)).to_dict() for t in times]
    file, folder = tmp_path / "host.jsonl", tmp_path / "folder.jsonl"
    rows = [[{"t": now}], *({"kind": "sample", **row} for row in samples)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    folder.mkdir()

    child.say(read_history=[str(folder)])
    wait_until(lambda: "folder.jsonl cannot be read" in child.errors, "a word")
    child.say(read_history=[str(tmp_path / "none.jsonl"), str(file)])
    wait_until(
        lambda: sum(len(line["rows"]) for line in child.lines("past")) == 450,
        "all rows",
    )

    batches = [line["rows"] for line in child.lines("past")]
    assert max(map(len, batches)) <= 200
    assert [row[0] for rows in batches for row in rows] == times
    assert batches[0][0][1:] == [{"GPU-a": [40, None, None]}, [5.0, None]]
    assert "none.jsonl cannot be read (No such file or directory)" in child.errors
