"""The same seed gives the same losses, with or without a stop in between."""

from __future__ import annotations

import pytest

import nbkit
from nbkit.errors import RunError, RunStoppedError
from nbkit.store.record import RunState
from tests.waiting import wait_until


def _losses(run):
    return {line["step"]: line["loss"] for line in run.metrics()}


@pytest.fixture
def exact(small):
    """A deterministic experiment of several epochs with dropout-free real layers."""
    return small(
        model="resnet18",
        deterministic=True,
        steps=40,
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
    assert 5 <= stopped_at < 40
    assert stopped_at % 16, "the stop should fall into the middle of an epoch"
    with pytest.raises(RunStoppedError):
        run.wait()
    run.resume().wait()

    assert run.state is RunState.FINISHED
    assert _losses(run) == whole
    assert len(run.record["attempts"]) == 2


def test_a_run_without_a_checkpoint_is_not_resumed(small):
    run = nbkit.launch(small(model="raises")).wait(raise_on_failure=False)

    with pytest.raises(RunError, match="no complete checkpoint"):
        run.resume()
