"""Where a training stops being finite: what each step says, and what a look sees."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from nbkit.config import ExperimentConfig
from nbkit.store.nonfinite import NonFinite
from nbkit.worker.finiteness import PERIOD_STEPS, FiniteWatch
from nbkit.worker.step_clock import StepClock

CPU = torch.device("cpu")
LARGEST = torch.finfo(torch.float32).max


def model():
    last = nn.Linear(2, 4).to(torch.bfloat16)  # two number formats
    return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), last)


def bias(network, layer):
    """Return the bias of a layer, to be written into."""
    return [*network.parameters()][2 * layer + 1].data


def times(watch, step, loss=1.0, scales=None):
    """Return the finished step as the loop reads it."""
    clock = StepClock(CPU)
    clock.restart()
    clock.begin(step, 0)
    clock.backward_done()
    scales = None if scales is None else torch.tensor(scales)
    clock.end(torch.tensor(loss), 0.1, scales, watch.look(step))
    return clock.finished()


LOSSES = {
    "nan": ([(1, 2.0, None), (2, math.nan, None), (3, math.nan, None)], (2, 0)),
    "infinite": ([(1, 2.0, None), (2, -math.inf, None)], (2, 0)),
    "in the first step": ([(1, math.nan, None)], (1, None)),
    "behind a look at the weights": (
        [(PERIOD_STEPS, 1.0, None), (PERIOD_STEPS + 1, math.nan, None)],
        (PERIOD_STEPS + 1, None),
    ),
    "with gradients that are looked at": (
        [(4, math.nan, [65536.0, 32768.0])],
        (4, None),
    ),
}


@pytest.mark.parametrize("case", LOSSES)
def test_finite_watch_keeps_the_first_loss_that_is_not_finite(case):
    steps, expected = LOSSES[case]
    watch = FiniteWatch(model())
    for step, loss, scales in steps:
        watch.read(times(watch, step, loss, scales))

    assert watch.nonfinite == NonFinite("loss", *expected)


def test_a_loss_scale_that_is_lowered_is_no_finding_until_it_has_come_down_to_1():
    watch = FiniteWatch(model())
    scale, step = 65536.0, 0
    while scale >= 1:
        assert watch.nonfinite is None
        step += 1
        watch.read(times(watch, step, 2.0, [scale, scale / 2]))
        scale /= 2

    assert watch.nonfinite == NonFinite("gradients", 17)


@pytest.mark.parametrize("layer", [0, 1, 2])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_look_sees_any_weight_that_is_not_finite_and_changes_none(layer, value):
    network = model()
    with torch.no_grad():
        first = next(network.parameters())
        first.fill_(LARGEST)  # whose sum is not finite
        first[0, 0] = -0.0
    before = [weight.clone() for weight in network.parameters()]
    finite = FiniteWatch(network).look_now(1)
    changed = [
        not torch.equal(old.contiguous().view(torch.uint8), new.data.view(torch.uint8))
        for old, new in zip(before, network.parameters(), strict=True)
    ]
    bias(network, layer)[1] = value

    assert finite
    assert not any(changed)
    assert not FiniteWatch(network).look_now(1)


@pytest.mark.parametrize("name", ["running_mean", "running_var"])
def test_running_statistics_count_as_weights_and_other_buffers_do_not(name):
    network = model()
    network.register_buffer("mask", torch.tensor([0.0, -math.inf]))
    finite = FiniteWatch(network).look_now(1)
    getattr(network[1], name)[0] = math.inf

    assert finite
    assert not FiniteWatch(network).look_now(1)


def test_the_loss_of_an_evaluation_counts():
    watch = FiniteWatch(model())
    watch.note_evaluation(4, 1.0)
    watch.note_evaluation(8, math.nan)

    assert str(watch.nonfinite) == "evaluation loss not finite at step 8"


def test_weights_are_looked_at_now_and_then_and_the_finding_says_between_which_steps():
    network = model()
    watch = FiniteWatch(network)
    last = 0
    for step in range(1, 2 * PERIOD_STEPS + 1):
        if step == PERIOD_STEPS + 3:
            bias(network, 0)[0] = math.nan
        [read] = times(watch, step)
        last += read.weights_finite is not None
        watch.read([read])

    assert last == 2
    assert watch.nonfinite == NonFinite("weights", 2 * PERIOD_STEPS, PERIOD_STEPS)
    assert str(watch.nonfinite) == "weights not finite between step 26 and step 50"


def test_a_look_of_the_step_before_makes_the_finding_exact():
    network = model()
    watch = FiniteWatch(network)
    assert watch.look_now(7)
    bias(network, 0)[0] = math.nan

    assert not watch.look_now(8)
    assert str(watch.nonfinite) == "weights not finite at step 8"


def test_a_resumed_attempt_keeps_what_was_found_before_it():
    found = NonFinite("weights", 50, 25)
    watch = FiniteWatch(model())
    watch.resume(60, found.to_dict())
    watch.read(times(watch, 61, math.nan))

    assert watch.nonfinite == found


def test_a_model_without_weights_is_finite():
    assert FiniteWatch(nn.ReLU()).look_now(1)


def test_the_error_says_what_when_and_what_to_do():
    watch = FiniteWatch(model())
    watch.read(times(watch, 4, math.nan))
    config = ExperimentConfig(learning_rate=8.0, precision="fp16")

    assert str(watch.error(config)) == (
        "loss not finite between step 3 and step 4, with stop_on_nonfinite=True. "
        "Launch the run again with a learning_rate below 8, precision='bf16', or "
        "stop_on_nonfinite=False. The run's checkpoints are finite."
    )
