"""It learns: a small network on real images, within minutes on two processors."""

from __future__ import annotations

import datetime
from pathlib import Path
from statistics import median

import pytest

import nbkit

CIFAR10 = Path(__file__).parents[3] / "shared" / "data" / "cifar10-subset"
SEEDS = range(3)
CPU_MINUTES = 10


@pytest.mark.timeout(3600)
@pytest.mark.skipif(not CIFAR10.is_dir(), reason=f"{CIFAR10} is not there")
def test_a_small_network_learns_a_tenth_of_cifar10(tmp_path, monkeypatch):
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path))
    accuracies, minutes = [], []

    for seed in SEEDS:
        run = nbkit.launch(
            model="resnet20",
            data=CIFAR10,
            image_size=32,
            crop_area_min=0.5,
            gpus=2,
            device="cpu",
            oversubscribe=True,
            batch_size_per_gpu=32,
            epochs=6,
            weight_decay=5e-4,
            learning_rate_warmup_epochs=1,
            evaluation_period_epochs=6,
            loader_config={"num_workers": 0},
            seed=seed,
        ).wait()
        (evaluation,) = run.metrics("evaluation")
        accuracies.append(evaluation["top1_accuracy"])
        # No process of the run can have used more: start-up, looking at the images and
        # evaluation are in it.
        minutes.append(2 * _seconds(run.record["time"]) / 60)
        print(f"{seed=}: {accuracies[-1]:.3f}, at most {minutes[-1]:.1f} CPU minutes")

    assert median(accuracies) >= 0.55
    assert median(minutes) <= CPU_MINUTES


def _seconds(times):
    began, ended = (
        datetime.datetime.fromisoformat(times[name]) for name in ("submitted", "ended")
    )
    return (ended - began).total_seconds()
