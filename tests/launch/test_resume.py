"""The same seed gives the same losses, with or without a stop in between."""

from __future__ import annotations

import os
import shutil

import pytest

import nbkit
from nbkit.errors import ConfigError, RunError, RunFailedError, RunStoppedError
from nbkit.store.record import RunState
from tests.waiting import wait_until
from tests.worker.images import write_classes


def _losses(run):
    return {line["step"]: line["loss"] for line in run.metrics()}


@pytest.fixture
def exact(small):
    """A deterministic experiment of several epochs.

    Three ranks: with two, the order in which gradients are added up cannot show.
    """
    return small(
        model="resnet18",
        deterministic=True,
        gpus=3,
        steps=24,
        images_per_epoch=64,
        batch_size_per_gpu=2,
    )


def test_the_same_seed_gives_bit_equal_losses_and_another_seed_does_not(exact):
    short = exact.replace(steps=8)
    first, second = (_losses(nbkit.launch(short).wait()) for _ in range(2))
    other = _losses(nbkit.launch(short.replace(seed=1)).wait())

    assert first == second
    assert other != first


def test_a_run_stopped_in_the_middle_of_an_epoch_resumes_bit_equal(exact):
    whole = _losses(nbkit.launch(exact).wait())

    run = nbkit.launch(exact)
    wait_until(lambda: len(run.metrics()) >= 5, "five steps", 120)
    run.stop()
    assert run.state is RunState.STOPPED
    stopped_at = len(run.metrics())
    assert 5 <= stopped_at < 24
    assert stopped_at % 10, "the stop should fall into the middle of an epoch"
    with pytest.raises(RunStoppedError):
        run.wait()
    run.resume().wait()

    assert run.state is RunState.FINISHED
    assert _losses(run) == whole
    assert len(run.record["attempts"]) == 2


@pytest.mark.parametrize("loader", ["torch", "dali"])
def test_a_run_on_images_resumes_bit_equal_and_refuses_other_images(
    small, tmp_path, loader
):
    images = write_classes(tmp_path / "images", images_per_class=4)
    config = small(
        model="slow",
        data=str(images),
        loader=loader,
        deterministic=True,
        steps=40,
        batch_size_per_gpu=2,
    )
    whole = _losses(nbkit.launch(config).wait())

    run = nbkit.launch(config)
    wait_until(lambda: len(run.metrics()) >= 3, "three steps", 120)
    run.stop()
    stopped_at = len(run.metrics())
    assert 3 <= stopped_at < 40
    kept = (images / "class 03" / "2.JPEG").rename(tmp_path / "kept.jpg")
    run.resume()
    with pytest.raises(RunFailedError, match=r"changed since.*class 03/2.JPEG"):
        run.wait()
    kept.rename(images / "class 03" / "2.JPEG")
    run.resume().wait()

    assert _losses(run) == whole


def test_a_run_without_a_checkpoint_is_not_resumed(small):
    run = nbkit.launch(small(model="raises")).wait(raise_on_failure=False)

    with pytest.raises(RunError, match="no complete checkpoint"):
        run.resume()


@pytest.fixture(scope="module")
def stopped(shared_store, small):
    """A run that was stopped after some steps."""
    run = nbkit.launch(small(model="slow", steps=10_000))
    wait_until(lambda: len(run.metrics()) >= 3, "three steps", 120)
    return run.stop()


def test_a_run_whose_checkpoint_is_damaged_does_not_begin_anew(stopped, store):
    shutil.copytree(stopped.paths.root, store / "runs" / stopped.run_id)
    run = nbkit.attach(stopped.run_id)
    before = run.metrics()
    (state,) = run.paths.checkpoints.glob("*/state.pt")
    os.truncate(state, 100)

    with pytest.raises(RunFailedError, match="0 complete checkpoints"):
        run.resume().wait()

    assert run.metrics() == before


def test_a_typo_in_how_a_resumed_run_ends_is_an_error(stopped):
    with pytest.raises(ConfigError, match="'stpo' is neither 'keep' nor 'stop'"):
        stopped.resume(on_owner_exit="stpo")

    assert stopped.state is RunState.STOPPED


def test_a_run_stopped_at_the_end_of_an_epoch_still_evaluates_it(small):
    config = small(
        model="slow",
        steps=None,
        epochs=40,
        images_per_epoch=8,
        warmup_steps=1,
        evaluation_period_epochs=1,
    )
    run = nbkit.launch(config)
    wait_until(lambda: len(run.metrics()) >= 3, "three steps", 120)
    run.stop()
    stopped_at = len(run.metrics())
    assert stopped_at < 40, "every step is an epoch, so any stop is at an epoch's end"

    run.resume().wait()

    assert [line["step"] for line in run.metrics()] == list(range(1, 41))
    assert [line["epoch"] for line in run.metrics("evaluation")] == list(range(1, 41))


def test_a_stop_does_not_wait_for_a_long_evaluation_which_resuming_does_first(small):
    # Evaluating takes minutes in the first attempt, and a moment in the second.
    config = small(
        model="ponders",
        steps=2,
        warmup_steps=1,
        images_per_epoch=200_000,
        evaluation_period_epochs=1,
        stop_grace_seconds=100,
    )
    run = nbkit.launch(config)
    wait_until(lambda: len(run.metrics()) == 2, "the last step", 120)
    run.stop()
    assert run.state is RunState.STOPPED
    assert run.cause["forced"] is False
    assert not run.metrics("evaluation")

    run.resume().wait()

    (evaluation,) = run.metrics("evaluation")
    assert evaluation["images"] == 10_000
    assert [line["step"] for line in run.metrics()] == [1, 2]
