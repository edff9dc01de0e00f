"""Two ranks that exchange gradients, against one plain loop that takes their mean."""

from __future__ import annotations

import pytest
import torch

import nbkit
from nbkit.worker import checkpoint
from tests.launch.conftest import plugins, small, store
from tests.worker.plain_loop import plain_loop

__all__ = ["plugins", "small", "store"]

# Of a loss, and of the largest weight: the ranks' threads, and so the order in which
# they add, may be others than here.
TOLERANCE = 1e-3


@pytest.mark.usefixtures("process_as_before")
def test_two_ranks_in_fp16_train_as_a_plain_loop_with_the_mean_of_gradients(small):
    config = small(
        gpus=2,
        model="convnet",
        num_classes=10,
        image_size=16,
        precision="fp16",
        learning_rate=0.01,
        checkpoint_at_end=True,
    )
    expected = plain_loop(config, ranks=2)

    run = nbkit.launch(config).wait()

    lines = run.metrics()
    assert [line["update_skipped"] for line in lines] == expected.skipped
    assert expected.skipped[0]
    losses = [line["loss"] for line in lines]
    assert losses == pytest.approx(expected.losses, rel=TOLERANCE)
    newest = checkpoint.latest(run.paths.checkpoints)
    state, _ = checkpoint.load(newest, 0, 2)
    for name, value in expected.model.state_dict().items():
        found = state["model"][name]
        limit = TOLERANCE * float(value.abs().max())
        assert torch.allclose(found, value, rtol=0, atol=limit), name
