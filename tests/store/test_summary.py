"""What a run's lines say in numbers, and what they do not."""

from __future__ import annotations

from statistics import median

import pytest

from nbkit.store.nonfinite import NonFinite
from nbkit.store.summary import summarise_run


def step(number, *, warmup=False, seconds=0.5):
    return {
        "kind": "step",
        "step": number,
        "images": 8,
        "loss": 1.0 / number,
        "step_time_seconds": seconds,
        "data_wait_seconds": seconds / 2,
        "compute_seconds": seconds / 2,
        "communication_exposed_seconds": 0.0,
        "warmup": warmup,
    }


RANK = {
    "steps": 0,
    "images": 0,
    "cpu_seconds": 1.0,
    "step_time_seconds": 1.0,
    "data_wait_seconds": 0.9,
    "compute_seconds": 0.1,
    "communication_exposed_seconds": 0.0,
    "peak_rss_bytes": 5,
}


def test_the_window_begins_behind_the_warmup():
    lines = [step(1, warmup=True, seconds=9.0), step(2), step(3)]

    summary = summarise_run(lines, {}, {})

    assert (summary.n_steps, summary.images_per_second) == (2, 16)
    assert summary.data_wait_share == 0.5


@pytest.mark.parametrize(
    ("uuids", "is_shared"),
    [(("a", "a"), True), (("a", "b"), False), ([None] * 2, False)],
)
def test_summary_ranks_that_share_a_gpu(uuids, is_shared):
    worker = {"devices": [{"uuid": uuid} for uuid in uuids]}

    assert summarise_run([step(1)], worker, {}).oversubscribed == is_shared


def test_summary_peak_memory_of_every_batch_size():
    lines = [
        {"kind": "inference", "peak_memory_allocated_bytes": peak, "batch_size": size}
        | {"times_seconds": [0.1], "throughput_batches": 1, "throughput": "replayed"}
        | {"throughput_seconds": 0.1, "began": 0.0, "ended": 1.0}
        for peak, size in ((4000, 32), (100, 1))
    ]
    worker = {"device_type": "cuda", "ranks": [{**RANK, "peak_rss_bytes": 1}]}
    worker["ranks"][0]["peak_memory_allocated_bytes"] = 100

    assert summarise_run(lines, worker, {}).peak_memory_bytes == 4000


@pytest.mark.parametrize(("steps", "share"), [(3, 0.9), (2, 0.5)])
def test_summary_ranks_of_the_last_attempt_alone(steps, share):
    rank = {**RANK, "steps": steps, "images": 8 * steps}

    summary = summarise_run([step(1), step(2), step(3)], {"ranks": [rank]}, {})

    assert (summary.data_wait_share, summary.peak_memory_bytes) == (share, 5)
    assert (summary.cpu_ms_per_image is None) == (steps < 3)


@pytest.mark.parametrize(
    "seconds",
    [
        [0.046, 0.001, 0.005, 0.001, 0.001, 0.075, 0.044, 0.002, 0.043, 0.072],
        [0.1] * 9 + [1.0],
        [0.1 * 1.3**n for n in range(9)],
    ],
    ids=["bursts", "one stall", "slowing"],
)
def test_summary_rate_and_bursts(seconds):
    summary = summarise_run(
        [step(n + 1, seconds=one) for n, one in enumerate(seconds)], {}, {}
    )

    rate = 8 * len(seconds) / sum(seconds)
    assert summary.images_per_second == pytest.approx(rate)
    assert summary.step_time_seconds == pytest.approx(8 / rate)
    assert summary.images_per_second_median == pytest.approx(
        median(8 / one for one in seconds)
    )
    assert f"{rate:,.4g} over all measured steps" in str(summary.bursts)
    assert f"{max(seconds):.3g} s" in str(summary.bursts)


def test_summary_rate_of_a_function_is_the_last_that_it_logged():
    values = {"images_per_second": 100.0}, {"images_per_second": 90.0}, {"loss": 1.0}
    lines = [{"kind": "log", "step": n, "values": v} for n, v in enumerate(values)]

    assert summarise_run(lines, {}, {}).images_per_second == 90
    # Of a training with steps, a rate that a callback logged is not the run's.
    assert summarise_run([*lines, step(1)], {}, {}).images_per_second == 16


def test_summary_evaluation_between_steps():
    lines = [step(1), {"kind": "evaluation", "duration_seconds": 60.0}, step(2)]

    summary = summarise_run(lines, {}, {})

    assert (summary.images_per_second, summary.bursts) == (16, None)


def test_summary_within_warmup():
    summary = summarise_run([step(1, warmup=True), step(2, warmup=True)], {}, {})

    assert (summary.n_steps, summary.loss) == (0, 0.5)
    assert summary.images_per_second is None
    assert summary.data_wait_share is None


def test_summary_last_evaluation():
    one_class = [
        {"kind": "evaluation", "step": 1, "top1_accuracy": 0.1},
        {"kind": "evaluation", "step": 2, "top1_accuracy": 0.4},
    ]
    several_labels = [
        {"kind": "evaluation", "step": 2, "mean_auroc": 0.7, "auroc": {"a": 0.7}}
    ]

    accuracy = summarise_run(one_class, {}, {})
    areas = summarise_run(several_labels, {}, {})
    none = summarise_run([], {}, {})

    assert (accuracy.top1_accuracy, accuracy.mean_auroc) == (0.4, None)
    assert (areas.top1_accuracy, areas.mean_auroc) == (None, 0.7)
    assert (none.top1_accuracy, none.mean_auroc) == (None, None)


def test_summary_final_loss():
    losses = [float(30 - number) for number in range(30)]
    lines = [{**step(n + 1), "loss": loss} for n, loss in enumerate(losses)]

    summary = summarise_run(lines, {}, {})

    assert (summary.first_loss, summary.final_loss) == (30.0, 2.0)
    assert summary.nonfinite is None


def test_summary_loss_not_finite():
    lines = [{**step(1)}, {**step(2), "loss": None}, {**step(3), "loss": None}]

    summary = summarise_run(lines, {"weights_finite": False}, {})

    assert summary.nonfinite == NonFinite("loss", 2)
    assert summary.final_loss is None
    assert summary.weights_finite is False


def test_summary_updates_skipped():
    scaled = [
        {**step(1), "loss_scale": 65536.0, "update_skipped": True},
        {**step(2), "loss_scale": 32768.0, "update_skipped": False},
    ]

    half, single = (summarise_run(lines, {}, {}) for lines in (scaled, [step(1)]))

    assert (half.updates_skipped, half.loss_scale) == (1, 32768.0)
    assert (single.updates_skipped, single.loss_scale) == (None, None)
    assert single.weights_finite is None


def test_summary_energy_is_the_sum_of_the_gpus():
    gpus = {"GPU-0": {"energy_joules": 40.0}, "GPU-1": {"energy_joules": 2.0}}
    unknown = {"GPU-0": {"energy_joules": None}}
    system = {"gpus": gpus, "other_gpu_processes": 0}

    def energy(**record):
        return summarise_run([], {}, record).energy_joules

    assert energy(system=system) == 42
    assert energy(system=system, launch={"replayed": True}) is None
    assert energy(system={**system, "other_gpu_processes": 1}) is None
    assert energy(system={"gpus": unknown}) is None
    assert energy() is None
