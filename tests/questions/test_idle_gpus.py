"""How often GPUs were at 0 % follows from the samples of the measured steps."""

from __future__ import annotations

import json

import pytest

from nbkit.questions.input_pipeline.idle_gpus import idle_sample_share
from tests.widgets.stored_run import WrittenRun, step


@pytest.fixture
def written(store):
    """Return a run of twenty steps of a second each, four of them warm-up."""
    run = WrittenRun(store)
    run.append(*(step(n, t=100.0 + n, warmup=n <= 4) for n in range(1, 21)))
    return run


def write_samples(written, *utilization):
    """Write a sample a second, of GPUs that are at these percents in turn."""
    path = written.run.paths.system("host")
    path.parent.mkdir(exist_ok=True)
    lines = [{"kind": "header"}]
    for number, t in enumerate(range(90, 130)):
        # Before and after the measured steps nothing is computed.
        percent = utilization[number % len(utilization)] if 105 <= t < 120 else 0
        gpu = {"uuid": "GPU-a", "gpu_utilization_percent": percent}
        busy = {"uuid": "GPU-b", "gpu_utilization_percent": 100}
        lines.append({"kind": "sample", "t": t + 0.5, "gpus": [gpu, busy]})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize(
    ("utilization", "share"), [((0,), 0.5), ((1, 99), 0.0), ((0, 7), 0.25)]
)
def test_the_share_is_over_all_gpus_in_the_measured_steps(written, utilization, share):
    write_samples(written, *utilization)

    # 15 samples of each GPU from the first measured step to the last one.
    assert idle_sample_share(written.run) == pytest.approx(share, abs=0.04)


@pytest.mark.parametrize(
    "record", [{"system": {"other_gpu_processes": 1}}, {"launch": {"replayed": True}}]
)
def test_idle_sample_share_unknown(written, record):
    assert idle_sample_share(written.run) is None
    write_samples(written, None)
    assert idle_sample_share(written.run) == 0.0  # the other GPU tells

    written.record("finished", **record)

    assert idle_sample_share(written.run) is None


def test_idle_sample_share_emulated_gpu(store):
    written = WrittenRun(store, task="load")
    written.append(*(step(n, t=100.0 + n, warmup=n <= 4) for n in range(1, 21)))
    write_samples(written, 0)

    assert idle_sample_share(written.run) is None
