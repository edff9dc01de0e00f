"""A run from launch to its record, and to a row of a data frame."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pynvml
import pytest

import nbkit
from nbkit.errors import ConfigError, DeviceError, RunError, RunNotFoundError
from nbkit.launch.supervision.leftovers import processes_of_run
from nbkit.statistics import allreduce_timing
from nbkit.store.paths import RunPaths
from nbkit.store.record import RunState
from tests.hostile.written import write_run
from tests.telemetry.fake_nvml.fake_driver import FakeDriver, FakeGpu

SECRET = secrets.token_hex()


@pytest.fixture(scope="module")
def finished(shared_store, small):
    """A run of eight steps, launched where a variable holds a secret."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NCCL_API_TOKEN", SECRET)
        patch.setenv("NCCL_DEBUG", "WARN")
        run = nbkit.launch(small(gpus=2, learning_rate=0.25), tags={"study": "s1"})
        return run.wait()


def test_finished_run(finished):
    run = finished
    assert run.state is RunState.FINISHED
    assert run.cause is None
    assert [line["step"] for line in run.metrics()] == list(range(1, 9))
    assert all(line["images"] == 8 for line in run.metrics())
    assert processes_of_run(run.paths) == []
    record = run.record
    assert record["worker"]["world_size"] == 2
    assert [rank["exit_code"] for rank in record["attempts"][0]["ranks"]] == [0, 0]
    assert record["machine"] is not None
    assert record["environment"]["packages"]["torch"]
    assert not run.paths.reserve.exists()
    assert json.loads(run.paths.config.read_text())["learning_rate"] == 0.25
    assert run.metrics()[0]["learning_rate"] == pytest.approx(0.25)
    with pytest.raises(RunError, match="has finished"):
        run.resume()


def test_finished_run_steps_and_summary(finished):
    lines = finished.metrics()
    for line in lines:
        parts = (
            line["data_wait_seconds"]
            + line["compute_seconds"]
            + line["communication_exposed_seconds"]
        )
        assert parts == pytest.approx(line["step_time_seconds"], abs=1e-6)
    assert any(line["communication_exposed_seconds"] > 0 for line in lines)
    summary = finished.summary
    assert summary.n_steps == 6
    assert (summary.images_per_second or 0) > 0
    shares = (
        summary.data_wait_share,
        summary.compute_share,
        summary.communication_share,
    )
    assert sum(share or 0 for share in shares) == pytest.approx(1, abs=1e-6)
    assert summary.cpu_ms_per_image is not None
    assert summary.peak_memory_bytes is not None


def test_finished_run_torchrun_line(finished, monkeypatch):
    scripts = str(Path(sys.executable).parent)
    monkeypatch.setenv("PATH", scripts, prepend=os.pathsep)

    line = ["sh", "-c", finished.record["launch"]["torchrun"]]
    done = subprocess.run(line, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    by_hand = nbkit.Run(finished.paths.root.with_name(f"{finished.run_id}-torchrun"))
    assert by_hand.state is RunState.FINISHED
    losses = [line["loss"] for line in by_hand.metrics()]
    assert losses == pytest.approx([line["loss"] for line in finished.metrics()])


def test_finished_run_refuses_ranks_of_torchrun(finished):
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
    done = subprocess.run(
        [sys.executable, "-m", "nbkit.worker", str(finished.paths.root)],
        env={**os.environ, **dict(zip(names, "0011", strict=True))},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode != 0
    assert "Copy its config.json into a new folder" in done.stderr
    assert len(finished.metrics()) == 8


def test_finished_run_record_without_secrets(finished):
    record = finished.record
    assert record["launch"]["owner"]["pid"] == os.getpid()
    assert record["tags"] == {"study": "s1"}
    assert record["parameter_sources"]["batch_size_per_gpu"] == "given"
    assert record["environment"]["variables"]["NCCL_DEBUG"] == "WARN"
    files = [path for path in finished.paths.root.rglob("*") if path.is_file()]
    assert not any(SECRET.encode() in path.read_bytes() for path in files)


@pytest.fixture
def copied(finished, store):
    """The same run in the test's own store, which may write there."""
    copy = store / "runs" / finished.run_id
    shutil.copytree(finished.paths.root, copy)
    return nbkit.Run(copy)


def test_run_rows_data_frame(copied):
    logged = write_run("finished")
    values = {"loss": 0.5, "spread": 2.0}
    line = {"kind": "log", "attempt": 0, "step": 0, "t": 0.0, "values": values}
    logged.paths.metrics.write_text(json.dumps(line) + "\n")

    frame = pd.DataFrame(nbkit.runs().to_dicts())

    function, row = json.loads(str(frame.to_json(orient="records")))
    assert row["run_id"] == copied.run_id
    assert row["state"] == "finished"
    assert (row["precision"], row["gpus"]) == ("fp32", 2)
    assert row["tags.study"] == "s1"
    assert row["batch_size_per_gpu"] == 4
    assert row["loader_config.prefetch_factor"] == 2
    assert row["images_per_second"] > 0
    assert row["duration_seconds"] > 0
    assert (function["run_id"], function["logged.spread"]) == (logged.run_id, 2.0)
    assert row["logged.spread"] is None


def test_run_rows_of_another_version(copied):
    run = copied
    text = run.paths.config.read_text()
    run.paths.config.write_text(text.replace("{", '{"field_of_tomorrow": 1,', 1))

    (row,) = nbkit.runs().to_dicts()

    assert (row["run_id"], row["state"]) == (run.run_id, "finished")
    assert (row["field_of_tomorrow"], row["precision"]) == (1, "fp32")
    assert row["loader_config.dali.roi_decode"] is True


def test_run_rows_damaged_run(copied):
    whole = copied.paths
    there = whole.root.with_name("20200101-000000000-damaged-aaaa")
    shutil.copytree(whole.root, there)
    paths = RunPaths(there)
    lost = {
        paths.config: {"precision"},
        paths.metrics: {"n_steps", "images_per_second"},
        paths.worker: {"world_size"},
        paths.record: {"state", "duration_seconds"},
        paths.submission: {"state", "tags.study"},
    }
    for path, names in lost.items():
        text = path.read_text()
        path.write_text("{\n")

        good, bad = nbkit.runs().to_dicts()

        path.write_text(text)
        assert (good["run_id"], bad["run_id"]) == (whole.run_id, there.name)
        same = {name for name, value in good.items() if bad.get(name) == value}
        every = set().union(*lost.values())
        assert every - same == names, path.name
        assert bad["state"] == ("lost" if "state" in names else "finished")


def test_stop_run_at_once(small):
    run = nbkit.launch(small(model="slow", steps=10_000), warmup_steps=20_000)

    run.stop()

    assert run.state is RunState.STOPPED
    assert run.config.replace(steps=30_000).num_warmup_steps == 20_000
    assert len(run.metrics()) <= 3
    assert run.cause is not None
    assert run.cause["message"] in (
        "stopped by user, before its ranks were started",
        "stopped by user, before its ranks were ready",
        "stopped by user, after the current step",
    )


def test_allreduce_run(small):
    sizes = nbkit.AllReduceConfig(bytes_min=1024, bytes_max=65536, iterations=5)

    run = nbkit.launch(small(task="allreduce", gpus=2, allreduce=sizes)).wait()

    rows = run.metrics("allreduce")
    assert [row["message_bytes"] for row in rows] == [1024, 4096, 16384, 65536]
    for row in rows:
        assert len(row["times_seconds"]) == 5
        assert min(row["times_seconds"]) > 0
        assert allreduce_timing(row).world_size == 2


def test_launch_more_ranks_than_cpus(small):
    with pytest.raises(DeviceError, match=r"gpus=1000 exceeds the .* usable"):
        nbkit.launch(small(gpus=1000, oversubscribe=False))


def test_launch_without_usable_gpu(small, store, monkeypatch):
    # The machine has a GPU, whichever this is, and the user may not use it.
    FakeDriver([FakeGpu("GPU-a")]).install(pynvml, monkeypatch.setattr)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")

    with pytest.raises(DeviceError, match=r"usable GPU: CUDA_VISIBLE_DEVICES='' lists"):
        nbkit.launch(small(device="cuda"))

    assert not list(store.glob("runs/*"))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"what": 50}, "Pass an ExperimentConfig"),
        ({"tags": {"day": 21}}, r"tags\['day'\]=21: keys and values must be"),
        ({"tags": ["day=21"]}, r"tags=\['day=21'\] is of type list. Pass a dict"),
        ({"on_owner_exit": "maybe"}, "Use 'keep' or 'stop'"),
    ],
)
def test_launch_wrong_arguments(store, arguments, text):
    with pytest.raises(ConfigError, match=text):
        nbkit.launch(**arguments)

    assert not list(store.glob("runs/*"))


@pytest.mark.parametrize("run_id", ["20990101-000000-none-aaaa", "../secret"])
def test_attach_unknown_run(run_id, store):
    (store / "runs").mkdir(parents=True)
    (store / "secret").mkdir()

    with pytest.raises(RunNotFoundError, match="no run has this id"):
        nbkit.attach(run_id)
