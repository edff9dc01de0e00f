"""Runs as plain rows: what a data frame is made of."""

from __future__ import annotations

import json
import shutil

import pandas as pd
import pytest

import nbkit
from nbkit.store.paths import RunPaths


@pytest.fixture(scope="module")
def finished(shared_store, small):
    """A run of four steps."""
    config = small(precision="bf16", steps=4)
    return nbkit.launch(config, tags={"arm": "half"}).wait()


@pytest.fixture
def trained(finished, store):
    """The same run in the test's own store, which may write there."""
    copy = store / "runs" / finished.run_id
    shutil.copytree(finished.paths.root, copy)
    return nbkit.Run(copy)


def test_run_rows_data_frame(trained):
    logged = nbkit.launch(
        lambda: nbkit.log({"loss": 0.5, "spread": 2.0}),
        device="cpu",
        oversubscribe=True,
    ).wait()

    frame = pd.DataFrame(nbkit.runs().to_dicts())

    function, row = json.loads(str(frame.to_json(orient="records")))
    assert row["run_id"] == trained.run_id
    assert row["state"] == "finished"
    assert (row["precision"], row["gpus"]) == ("bf16", 1)
    assert row["tags.arm"] == "half"
    assert row["batch_size_per_gpu"] == 4
    assert row["loader_config.prefetch_factor"] == 2
    assert row["images_per_second"] > 0
    assert row["duration_seconds"] > 0
    assert (function["run_id"], function["logged.spread"]) == (logged.run_id, 2.0)
    assert row["logged.spread"] is None


def test_run_rows_of_another_version(trained):
    run = trained
    text = run.paths.config.read_text()
    run.paths.config.write_text(text.replace("{", '{"field_of_tomorrow": 1,', 1))

    (row,) = nbkit.runs().to_dicts()

    assert (row["run_id"], row["state"]) == (run.run_id, "finished")
    assert (row["field_of_tomorrow"], row["precision"]) == (1, "bf16")
    assert row["loader_config.dali.roi_decode"] is True


def test_run_rows_damaged_run(trained):
    whole = trained.paths
    there = whole.root.with_name("20200101-000000000-damaged-aaaa")
    shutil.copytree(whole.root, there)
    paths = RunPaths(there)
    lost = {
        paths.config: {"precision"},
        paths.metrics: {"n_steps", "images_per_second"},
        paths.worker: {"world_size"},
        paths.record: {"state", "duration_seconds"},
        paths.submission: {"state", "duration_seconds", "tags.arm"},
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
