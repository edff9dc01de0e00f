"""Energy per image comes from the GPUs' counters over the measured steps."""

from __future__ import annotations

import json

import pytest

from nbkit.reports.energy_per_image import joules_per_image
from tests.widgets.stored_run import WrittenRun, step

WATTS = 300.0


@pytest.fixture
def written(store):
    """Return a run of twenty steps of a second each, four of them warm-up."""
    run = WrittenRun(store)
    run.append(*(step(n, t=100.0 + n, warmup=n <= 4) for n in range(1, 21)))
    return run


def write_samples(written, host="host", counters=("GPU-a", "GPU-b"), **gpu):
    """Write a sample a second; the counter of every GPU grows by 300 J in each.

    Before the measured steps the GPUs use next to nothing.
    """
    path = written.run.paths.system(host)
    path.parent.mkdir(exist_ok=True)
    lines = [{"kind": "header"}]
    for t in range(90, 130):
        joules = 1000.0 + WATTS * max(0.0, t - 105.0)
        gpus = [{"uuid": uuid, "energy_joules": joules, **gpu} for uuid in counters]
        lines.append({"kind": "sample", "t": t + 0.5, "gpus": gpus})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_only_the_measured_steps_count_and_every_gpu_does(written):
    write_samples(written)

    # From the end of step 5 to that of step 20: 15 steps of 100 images. The counter of
    # each GPU stands still for the first half second of them.
    expected = 2 * WATTS * 14.5 / 1500
    assert joules_per_image(written.run) == pytest.approx(expected)


def test_evaluations_and_checkpoints_between_the_steps_do_not_count(store):
    run = WrittenRun(store)
    apart = {"attempt": 0, "step": 10, "images": 500}
    run.append(
        *(step(n, t=100.0 + n, warmup=n <= 4) for n in range(1, 11)),
        {"kind": "evaluation", "t": 114.0, "duration_seconds": 4.0, **apart},
        {"kind": "checkpoint", "t": 114.5, "duration_seconds": 0.5, **apart},
        *(step(n, t=104.5 + n) for n in range(11, 21)),
    )
    write_samples(run)

    expected = 2 * WATTS * 14.5 / 1500
    assert joules_per_image(run.run) == pytest.approx(expected)


@pytest.mark.parametrize(
    "gpu",
    [{"energy_joules": None}, {"mig_instances": [{"uuid": "MIG-a"}]}],
    ids=["no counter", "partitioned"],
)
def test_a_counter_that_is_missing_or_shared_gives_nothing(written, gpu):
    write_samples(written, **gpu)

    assert joules_per_image(written.run) is None


def test_without_gpus_or_samples_there_is_no_energy(written):
    assert joules_per_image(written.run) is None

    write_samples(written, counters=())

    assert joules_per_image(written.run) is None


def test_other_processes_and_replayed_traces_give_nothing(written):
    write_samples(written)

    written.record("finished", system={"other_gpu_processes": 1})
    assert joules_per_image(written.run) is None

    written.record("finished", launch={"replayed": True})
    assert joules_per_image(written.run) is None


def test_a_window_of_a_few_samples_gives_nothing(store):
    run = WrittenRun(store)
    run.append(*(step(n, t=100.0 + n, warmup=n <= 4) for n in range(1, 9)))
    write_samples(run)

    assert joules_per_image(run.run) is None
