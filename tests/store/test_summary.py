"""What a run's lines say in numbers, and what they do not."""

from __future__ import annotations

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


def test_the_window_begins_behind_the_warmup():
    lines = [step(1, warmup=True, seconds=9.0), step(2), step(3)]

    summary = summarise_run(lines, {}, {})

    assert (summary.n_steps, summary.images_per_second) == (2, 16)
    assert summary.data_wait_share == 0.5


def test_a_run_that_ended_within_its_warmup_has_a_loss_and_no_rate():
    summary = summarise_run([step(1, warmup=True), step(2, warmup=True)], {}, {})

    assert (summary.n_steps, summary.loss) == (0, 0.5)
    assert summary.images_per_second is None
    assert summary.data_wait_share is None


def test_a_run_is_judged_by_its_last_evaluation_whatever_its_kind():
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
