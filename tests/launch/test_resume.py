"""The same seed gives the same losses, with or without a stop in between.

In this process where one rank is enough to see it.
"""

from __future__ import annotations

import os

import pytest

import nbkit
from nbkit.errors import ConfigError, RunError, RunStoppedError
from nbkit.store.heartbeat import Phase
from nbkit.store.record import RunState
from tests.training import go_on_here, train_here
from tests.waiting import wait_until
from tests.worker.images import write_classes


def _losses(run):
    return {line["step"]: line["loss"] for line in run.metrics()}


@pytest.fixture
def exact(small):
    """A deterministic experiment of several epochs."""
    return small(
        model="resnet20",
        deterministic=True,
        steps=24,
        images_per_epoch=64,
        batch_size_per_gpu=2,
    )


def test_seed_gives_bit_equal_losses(exact):
    short = exact.replace(steps=4)
    first, second = (_losses(train_here(short)) for _ in range(2))
    other = _losses(train_here(short.replace(seed=1)))

    assert first == second
    assert other != first


def test_resume_in_mid_epoch_bit_equal(exact, tmp_path, monkeypatch):
    # With two ranks, the order in which gradients are added up cannot show.
    exact = exact.replace(gpus=3, model="lingers")
    whole = _losses(nbkit.launch(exact).wait())

    # It stays in its eighth step of ten an epoch until it was asked to stop, and may
    # be asked a little earlier.
    linger, stay = tmp_path / "linger", tmp_path / "stay"
    monkeypatch.setenv("LINGERS_BY", str(tmp_path))
    stay.touch()
    run = nbkit.launch(exact, tags={"arm": "exact"})
    wait_until(lambda: len(run.metrics()) >= 5, "five steps", 120)
    linger.touch()
    run.stop(wait=False)
    wait_until(lambda: run.state is RunState.STOPPING, "the request's arrival")
    stay.unlink()
    run.stop()
    linger.unlink()
    assert run.state is RunState.STOPPED
    assert 5 <= len(run.metrics()) < 10, "not in the middle of an epoch"
    with pytest.raises(RunStoppedError):
        run.wait()
    with pytest.raises(ConfigError, match="'stpo' is unknown"):
        run.resume(on_owner_exit="stpo")
    assert run.state is RunState.STOPPED
    run.resume().wait()

    assert run.state is RunState.FINISHED
    assert _losses(run) == whole
    assert len(run.record["attempts"]) == 2
    assert run.record["tags"] == run.submission["tags"] == {"arm": "exact"}


@pytest.mark.parametrize("loader", ["torch", "dali"])
def test_resume_on_images_bit_equal(small, tmp_path, loader):
    images = write_classes(tmp_path / "images", images_per_class=4)
    # It drops weights at random: where it goes on, it has to draw what it would have.
    config = small(
        model="squeezenet1_1",
        learning_rate=0.001,
        data=str(images),
        loader=loader,
        deterministic=True,
        steps=40,
        batch_size_per_gpu=2,
    )
    whole = _losses(train_here(config))

    run = train_here(config, stop_at=(17, Phase.DATA))
    assert len(run.metrics()) == 17
    kept = (images / "class 03" / "2.JPEG").rename(tmp_path / "kept.jpg")
    with pytest.raises(ConfigError, match=r"changed since.*class 03/2.JPEG"):
        go_on_here(run)
    kept.rename(images / "class 03" / "2.JPEG")
    go_on_here(run)

    assert run.state is RunState.FINISHED
    assert _losses(run) == whole


def test_resume_damaged_checkpoint(small):
    run = train_here(small(steps=20), stop_at=(3, Phase.DATA))
    before = run.metrics()
    (state,) = run.paths.checkpoints.glob("*/state.pt")
    os.truncate(state, 100)

    with pytest.raises(RunError, match="No complete checkpoint"):
        go_on_here(run)

    assert run.metrics() == before
    assert len(before) == 3


def test_resume_at_end_of_epoch(small):
    config = small(
        steps=None,
        epochs=6,
        images_per_epoch=4,
        warmup_steps=1,
        evaluation_period_epochs=1,
    )
    run = train_here(config, stop_at=(3, Phase.DATA))
    assert [line["epoch"] for line in run.metrics("evaluation")] == [1, 2]

    go_on_here(run)

    assert [line["step"] for line in run.metrics()] == list(range(1, 7))
    assert [line["epoch"] for line in run.metrics("evaluation")] == list(range(1, 7))
