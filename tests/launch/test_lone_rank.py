"""A lone rank on CPUs starts as plain Python does: its code imports torch, or not."""

from __future__ import annotations

import json
import sys

import nbkit


def does_without():
    return [name for name in ("torch", "numpy") if name in sys.modules]


def worker(run):
    return json.loads(run.paths.worker.read_text())


def test_lone_rank_without_torch():
    run = nbkit.launch(does_without, device="cpu").wait()

    assert run.returns == [[]]
    assert worker(run)["torch"] is None
    assert worker(run)["devices"][0]["name"]
