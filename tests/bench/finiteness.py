"""What it costs to notice that a training stops being finite."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time

import torch

from nbkit.config import ExperimentConfig
from nbkit.worker import models, optimizers
from nbkit.worker.finiteness import PERIOD_STEPS, FiniteWatch
from nbkit.worker.precision import Precision
from nbkit.worker.step_clock import StepClock
from tests.bench.rows import Row, row
from tests.bench.settings import SETTINGS, THREADS_PER_RANK

ROUNDS = 40


def finiteness_row() -> Row:
    """Measure a step, a look at the weights and the reading of a step in turn."""
    command = [sys.executable, "-m", "tests.bench.finiteness"]
    # The bench itself never becomes a process with torch's threads.
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    seconds = json.loads(said)
    per_step = seconds["look"] / PERIOD_STEPS + seconds["read"]
    conditions = (
        f"medians of {ROUNDS} rounds in turn on a CPU with {THREADS_PER_RANK} threads: "
        f"step {seconds['step'] * 1e3:.0f} ms, a look every {PERIOD_STEPS} steps "
        f"{seconds['look'] * 1e3:.2f} ms, reading a step {seconds['read'] * 1e6:.0f} us"
    )
    share = per_step / seconds["step"]
    return row("noticing what is not finite / step", share, "share", 0.005, conditions)


def main() -> None:
    """Print the medians as JSON."""
    torch.set_num_threads(THREADS_PER_RANK)
    device = torch.device("cpu")
    config = ExperimentConfig(model=str(SETTINGS["model"]), device="cpu")
    model = models.build(config, 1000)
    optimizer = optimizers.build(config, model)
    precision = Precision(config, device)
    model = precision.to_layout(model)
    side, batch = SETTINGS["image_size"], SETTINGS["batch_size_per_gpu"]
    images = torch.randn(batch, 3, side, side).to(memory_format=torch.channels_last)
    labels = torch.randint(1000, (batch,))
    watch, clock = FiniteWatch(model), StepClock(device)
    seconds: dict[str, list[float]] = {"step": [], "look": [], "read": []}
    clock.restart()
    for number in range(1, ROUNDS + 1):
        began = time.perf_counter()
        clock.begin(number, 0)
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        clock.backward_done()
        optimizer.step()
        stepped = time.perf_counter()
        overflow = watch.look(PERIOD_STEPS)
        looked = time.perf_counter()
        clock.end(loss.detach(), 0.1, None, overflow)
        finished = clock.finished()
        reading = time.perf_counter()
        watch.read(finished)
        seconds["read"].append(time.perf_counter() - reading)
        seconds["step"].append(stepped - began)
        seconds["look"].append(looked - stepped)
    print(json.dumps({part: statistics.median(seconds[part]) for part in seconds}))


if __name__ == "__main__":
    main()
