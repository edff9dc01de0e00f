"""The callback for transformers' ``Trainer``, by the events that it gets."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

import nbkit
from nbkit.launch.run_progress import RunPosition
from nbkit.live.metrics import LiveMetrics
from nbkit.store.progress import progress
from nbkit.worker.batch_counts import BatchCounts
from tests.launch.conftest import plugins, store

__all__ = ["plugins", "store"]

SAMPLES, LENGTH, PADDED = 3, 8, 2


def train(steps):
    """Call the events of a trainer that accumulates over two batches."""
    import os
    from types import SimpleNamespace

    import torch

    import nbkit

    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if world_size > 1:
        torch.distributed.init_process_group("gloo")
    callback = nbkit.TrainerCallback()
    start = 0
    if callback.checkpoint:
        start = int(callback.checkpoint.rpartition("-")[2])
    folder = nbkit.context().run_folder / "trainer"
    args = SimpleNamespace(torch_compile=False, output_dir=str(folder))
    args.train_batch_size = 3
    state = SimpleNamespace(global_step=start, max_steps=steps)
    control = SimpleNamespace(
        should_log=False, should_save=False, should_training_stop=False
    )
    events = args, state, control
    model = torch.nn.Embedding(100, 4)
    model.forward = lambda input_ids, attention_mask: input_ids
    rows, length = 3, 8 + rank
    mask = torch.ones(rows, length, dtype=torch.int64)
    mask[:, :2] = 0
    batch = {"input_ids": torch.zeros(rows, length, dtype=int), "attention_mask": mask}
    callback.on_init_end(*events, model=model)
    callback.on_train_begin(*events, model=model)
    while state.global_step < steps and not control.should_training_stop:
        callback.on_step_begin(*events)
        for number in range(2):
            model(**batch)
            if number == 0:
                callback.on_substep_end(*events)
        with torch.no_grad():  # as TRL asks its model for reference values
            model(**batch)
        state.global_step += 1
        control.should_log = state.global_step % 3 == 0
        callback.on_step_end(*events)
        if control.should_log:
            logs = {"loss": 1 / state.global_step, "learning_rate": 0.1, "note": "x"}
            callback.on_log(*events, logs=logs)
        if control.should_save:
            if rank == 0:
                (folder / f"checkpoint-{state.global_step}").mkdir(parents=True)
            callback.on_save(*events)
        with torch.no_grad():
            model.eval()
            model(**batch)
            callback.on_evaluate(*events)
            model.train()
    callback.on_train_end(*events)
    return start, not model._forward_pre_hooks


def test_trainer_callback_counts_what_all_ranks_were_given(tmp_path):
    run = nbkit.launch(train, args=(6,), gpus=2, device="cpu", oversubscribe=True)
    run.wait()

    assert run.returns == [(0, True)] * 2
    lines = run.metrics("log")
    assert [(line["step"], line["total_steps"]) for line in lines] == [(3, 6), (6, 6)]
    tokens = 3 * 2 * (SAMPLES * LENGTH + SAMPLES * (LENGTH + 1))
    samples, padding = 3 * 2 * 2 * SAMPLES, 3 * 2 * 2 * SAMPLES * PADDED
    for number, line in enumerate(lines, start=1):
        values = line["values"]
        assert values["tokens_seen"] == number * (tokens - padding)
        assert values["samples_seen"] == number * samples
        assert values["padding_share"] == pytest.approx(padding / tokens)
        assert values["tokens_per_second"] / values["samples_per_second"] == (
            pytest.approx((tokens - padding) / samples)
        )
        assert values["loss"] == 1 / line["step"]
        assert "note" not in values
        assert not {"mfu", "peak_memory_bytes"} & values.keys()
    assert "MFU is unknown: the model is on a CPU" in run.logs(0, "stderr")
    assert run.summary.logged["learning_rate"] == 0.1
    # The views.
    assert progress(run.paths.metrics) == {
        "step": 6,
        "loss": 1 / 6,
        "images_per_second": None,
        "total_steps": 6,
    }
    position = RunPosition()
    position.read(run)
    assert position.words(run) == "step 6 of 6, loss 0.1667"
    reading = LiveMetrics(run.paths.metrics)
    reading.read()
    assert (reading.step, reading.total_steps) == (6, 6)


UNCHANGED = """
import sys
from types import SimpleNamespace as Values
from transformers.trainer import DEFAULT_CALLBACKS

import time

clock = time.perf_counter = iter(range(1, 100)).__next__  # a second for each look
args = Values(gradient_accumulation_steps=2, train_batch_size=4)
state, control = Values(global_step=0, max_steps=5), Values(should_log=False)
state.train_batch_size = 3
for callback in [kind() for kind in DEFAULT_CALLBACKS]:
    callback.on_train_begin(args, state, control, model=None)
    for step in range(1, 6):
        callback.on_step_begin(args, state, control)
        if step % 2:  # else the epoch is over
            callback.on_substep_end(args, state, control)
        state.global_step, control.should_log = step, step % 2 == 0
        callback.on_step_end(args, state, control)
        if control.should_log:
            callback.on_log(args, state, control, logs={"loss": 1 / step})
        callback.on_something_new(args, state, control)
"""
AFTER_ANOTHER = """
import nbkit, torch
from types import SimpleNamespace as Values
args, control, model = Values(torch_compile=True), Values(), torch.nn.Linear(1, 1)
callback = nbkit.TrainerCallback()
callback.on_train_begin(args, Values(), control, model=model)
callback.on_train_end()
"""


SPLIT = UNCHANGED.replace(
    "size=4", "size=4, accelerator_config=Values(split_batches=True)"
)


@pytest.mark.parametrize(
    ("code", "gpus"), [(UNCHANGED, 1), (AFTER_ANOTHER + UNCHANGED, 1), (SPLIT, 2)]
)
def test_trainer_of_an_unchanged_script_is_shown(tmp_path, code, gpus):
    package = tmp_path / "transformers"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "trainer.py").write_text("DEFAULT_CALLBACKS = []")
    script = tmp_path / "train.py"
    script.write_text(code)

    run = nbkit.launch(script, device="cpu", gpus=gpus, oversubscribe=True).wait()

    lines = run.metrics("log")
    assert [(line["step"], line["total_steps"]) for line in lines] == [(2, 5), (4, 5)]
    assert [line["values"]["loss"] for line in lines] == [0.5, 0.25]
    # Three batches of three in two seconds, as the clock above has it.
    rates = [line["values"]["samples_per_second"] for line in lines]
    assert rates == [pytest.approx(3 * 3 / 2)] * 2


def test_batch_counts_of_a_ragged_batch():
    counts = BatchCounts()
    texts = [torch.zeros(4), torch.zeros(6)]
    mask = {"input_ids": torch.zeros(3, 4), "attention_mask": {"full": texts[0]}}
    for batch in ({"input_ids": texts}, mask):
        counts.add([*batch.values()], batch)

    counts.gather(1, None)

    assert counts.seen["tokens"] == 12


def test_trainer_callback_does_nothing_outside_a_run():
    callback = nbkit.TrainerCallback()
    control = SimpleNamespace(should_log=True)

    callback.on_step_begin(None, None, control)
    callback.on_step_end(None, None, control)
    callback.on_log(None, None, control, logs={"loss": 1.0})
    callback.on_save(None, None, control)

    assert callback.checkpoint is None
    assert vars(control) == {"should_log": True}
    with pytest.raises(AttributeError, match="no attribute 'steps'"):
        _ = callback.steps
