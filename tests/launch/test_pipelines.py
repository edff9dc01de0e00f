"""A run whose images come through steps: it trains, and its record says which."""

from __future__ import annotations

import nbkit
from nbkit.config.pipeline import PIPELINES
from nbkit.datasets import pack
from nbkit.store.record import RunState


def test_pipeline_shared_by_two_ranks(small, tmp_path):
    data = pack(
        "photos",
        tmp_path / "data",
        "tfrecord",
        shard_megabytes=4,
        on_progress=lambda done, total: None,
    )

    run = nbkit.launch(
        small(
            gpus=2,
            data=str(data),
            loader="tfrecord",
            loader_config={"pipeline": "chexnet_new", "num_workers": 2},
            batch_size_per_gpu=32,
            epochs=2,
            steps=None,
            evaluation_period_epochs=2,
        )
    ).wait()

    assert run.state is RunState.FINISHED
    kept = run.worker["data"]
    steps = run.worker["steps_per_epoch"]
    assert kept["pipeline"] == PIPELINES["chexnet_new"]
    assert kept["train_images"] + kept["dropped_images"] == 400
    assert steps == kept["train_images"] // 64 > 1
    lines = run.metrics()
    assert [line["epoch"] for line in lines] == [0] * steps + [1] * steps
    [evaluated] = run.metrics("evaluation")
    assert 0 <= evaluated["top1_accuracy"] <= 1
