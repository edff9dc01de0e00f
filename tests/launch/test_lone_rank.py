"""A lone rank on CPUs starts as plain Python does: its code imports torch, or not."""

from __future__ import annotations

import json
import os
import sys

import nbkit


def does_without():
    return [name for name in ("torch", "numpy") if name in sys.modules]


def meets_itself():
    had_torch = "torch" in sys.modules
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch
    import torch.distributed as dist

    sums = []
    for value in (2.0, 5.0):
        dist.init_process_group("gloo")
        total = torch.tensor(value)
        dist.all_reduce(total)
        dist.destroy_process_group()
        sums.append(total.item())
    return had_torch, torch.get_num_threads(), sums, str(nbkit.context().device)


def worker(run):
    return json.loads(run.paths.worker.read_text())


def test_lone_rank_without_torch():
    run = nbkit.launch(does_without, device="cpu").wait()

    assert run.returns == [[]]
    assert worker(run)["torch"] is None
    assert worker(run)["devices"][0]["name"]


def test_lone_rank_process_group_twice():
    run = nbkit.launch(meets_itself, device="cpu").wait()

    assert run.returns == [(False, 1, [2.0, 5.0], "cpu")]
    assert worker(run)["torch"].startswith("2.")
