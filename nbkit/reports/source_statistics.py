"""The same runs by the statistics of others: what each report would have printed.

"Images/s" is a word for several quantities. From the raw steps of a run each can be
computed, so that a number of one's own is compared with a published one like for like.
The wording of each definition is that of the source's program or text.
"""

from __future__ import annotations

import datetime
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from nbkit.errors import NotEnoughDataError
from nbkit.review.milestones import started_at
from nbkit.statistics import (
    images_per_second,
    measured_steps,
    olympic_mean,
    step_images_per_second,
)
from nbkit.store.record import RunState
from nbkit.store.stored_runs import StoredRun

_PADDLE_FIRST_STEPS = 9
_PADDLE_FEWEST_STEPS = 10
"""It has 99 of them; of one or two a mean would say nothing."""
_OLYMPIC_RUNS = 3
"""That reached the target; a run that did not may be the slowest that is left out."""

Line = Mapping[str, Any]
Steps = Sequence[Line]


@dataclass(frozen=True)
class SourceStatistic:
    """One quantity of the same runs."""

    label: str
    """The statistic, in a few words."""
    source: str
    """Who prints it; ``nbkit`` for the first two rows."""
    url: str | None
    """Where it is defined or printed; None where that has no known address."""
    value: float | None
    """Over all runs; None where the runs do not say, as without GPUs."""
    unit: Literal["images/s", "%", "minutes"]
    against_ours: float | None
    """Value over nbkit's; None for other units."""
    difference: str
    """How it differs from nbkit's statistic."""
    n_runs: int
    """Runs of the value."""


@dataclass(frozen=True)
class _Definition:
    label: str
    source: str
    url: str | None
    difference: str
    of_run: Callable[[Steps], float | None]
    """From all steps of a run, images/s."""
    over_runs: Callable[[Sequence[float]], float] = statistics.median
    without_wait: bool = False
    """Whether the wait for data is left out."""


_DELL_GUIDE = (
    "https://manualshelf.com/manual/dell/high-performance-computing-solution-resources/"
    "reference-guide-english/page-16.html"
)
_NETAPP = (
    "https://github.com/NetAppDocs/netapp-solutions/blob/main/ai/"
    "a400-thinksystem-test-procedure-and-detailed-results.adoc"
)
_PADDLE = (
    "https://github.com/PaddlePaddle/Perf/blob/master/ResNet50V1.5/OtherReports/"
    "PyTorch/README.md"
)
_NVIDIA = (
    "https://github.com/NVIDIA/DeepLearningExamples/blob/master/PyTorch/Classification/"
    "ConvNets/image_classification/training.py"
)
_TORCHVISION = (
    "https://github.com/pytorch/vision/blob/main/references/classification/train.py"
)
_MLPERF = (
    "https://github.com/mlcommons/training_policies/blob/master/training_rules.adoc"
)


SOURCES = {
    "Dell EMC deep learning guide, 2018": _DELL_GUIDE,
    "torchvision references": _TORCHVISION,
    "NVIDIA DeepLearningExamples, PyTorch": _NVIDIA,
    "PaddlePaddle Perf, NGC PyTorch, 2023": _PADDLE,
    "NetApp with Lenovo SR670 V2, 2023": _NETAPP,
    "MLPerf Training": _MLPERF,
}
"""Where the statistics are defined, by who prints them."""


def source_statistics(runs: Sequence[StoredRun]) -> list[SourceStatistic]:
    """Return what each source would print for these runs."""
    measured = [run for run in runs if measured_steps(run.metrics("step"))]
    steps = [run.metrics("step") for run in measured]
    if not steps:
        message = (
            f"runs: 0 of {len(runs)} have measured steps, at least 1 is needed; pass "
            "finished training runs."
        )
        raise NotEnoughDataError(message)
    # A run that only reads has nothing but the wait.
    reads = all(run.config.task == "load" for run in measured)
    rows = [
        _row(one, [] if reads and one.without_wait else steps) for one in _DEFINITIONS
    ]
    whole = [_whole_epochs(run) for run in measured]
    rows.append(_row(_EPOCHS, [epochs for epochs in whole if epochs]))
    ours = rows[0].value
    rows = [_against(row, ours) for row in rows]
    return [*rows, _utilization(runs), _time_to_train(runs)]


def _row(definition: _Definition, steps: Sequence[Steps]) -> SourceStatistic:
    values = [value for one in steps if (value := definition.of_run(one)) is not None]
    return SourceStatistic(
        label=definition.label,
        source=definition.source,
        url=definition.url,
        value=definition.over_runs(values) if values else None,
        unit="images/s",
        against_ours=None,
        difference=definition.difference,
        n_runs=len(values),
    )


def _against(row: SourceStatistic, ours: float | None) -> SourceStatistic:
    ratio = None if row.value is None or not ours else row.value / ours
    return replace(row, against_ours=ratio)


def _ours(steps: Steps) -> float | None:
    return images_per_second(measured_steps(steps))


def _median_step(steps: Steps) -> float | None:
    rates = step_images_per_second(measured_steps(steps))
    return statistics.median(rates) if rates else None


def _mean_rate(steps: Steps) -> float | None:
    rates = step_images_per_second(steps)
    return statistics.fmean(rates) if rates else None


def _paddle_without_last(steps: Steps) -> float | None:
    return _paddle(steps[_PADDLE_FIRST_STEPS:-1])


def _paddle_with_last(steps: Steps) -> float | None:
    return _paddle(steps[_PADDLE_FIRST_STEPS:])


def _paddle(steps: Steps) -> float | None:
    return _mean_rate(steps) if len(steps) >= _PADDLE_FEWEST_STEPS else None


def _rates_without_wait(steps: Steps) -> list[float]:
    return [
        step["images"] / busy
        for step in steps
        if (busy := step["step_time_seconds"] - step["data_wait_seconds"]) > 0
    ]


def _compute_rate(steps: Steps) -> float | None:
    rates = _rates_without_wait(steps)
    return statistics.fmean(rates) if rates else None


def _last_compute_rate(steps: Steps) -> float | None:
    rates = _rates_without_wait(steps)
    return rates[-1] if rates else None


def _epoch_rate(steps: Steps) -> float | None:
    """Return the median over epochs; the first is left out where there are more."""
    epochs: dict[int, list[Line]] = {}
    for step in steps:
        epochs.setdefault(step.get("epoch") or 0, []).append(step)
    whole = list(epochs.values())
    rates = [
        rate
        for epoch in (whole[1:] or whole)
        if (rate := images_per_second(epoch)) is not None
    ]
    return statistics.median(rates) if rates else None


_DEFINITIONS = (
    _Definition(
        "images / time",
        "nbkit",
        None,
        "data wait included, warm-up left out, a stall counts with its length; median "
        "over runs",
        _ours,
    ),
    _Definition(
        "median step",
        "nbkit",
        None,
        "images / step time of the same steps; median over steps, then over runs: no "
        "rate of a run whose steps come in bursts",
        _median_step,
    ),
    _Definition(
        "images / whole time",
        "Dell EMC deep learning guide, 2018",
        _DELL_GUIDE,
        "as nbkit's, and the warm-up counts",
        images_per_second,
    ),
    _Definition(
        "torchvision img/s",
        "torchvision references",
        _TORCHVISION,
        "the clock starts when the batch is there: data wait excluded; the rate of the "
        "last step, of all ranks together (it prints that of one)",
        _last_compute_rate,
        without_wait=True,
    ),
    _Definition(
        "compute_ips",
        "NVIDIA DeepLearningExamples, PyTorch",
        _NVIDIA,
        "data wait excluded; mean of step rates, warm-up included",
        _compute_rate,
        without_wait=True,
    ),
    _Definition(
        "total_ips",
        "NVIDIA DeepLearningExamples, PyTorch",
        _NVIDIA,
        "mean of step rates, warm-up included",
        _mean_rate,
    ),
    _Definition(
        "mean of runs",
        "Dell on VMware vSphere, 2022",
        None,
        "as nbkit's of each run (tf_cnn_benchmarks); mean over runs, 3 there",
        _ours,
        statistics.fmean,
    ),
    _Definition(
        "mean of jobs",
        "NetApp with Lenovo SR670 V2, 2023",
        _NETAPP,
        "as nbkit's, and the warm-up counts; mean over runs",
        images_per_second,
        statistics.fmean,
    ),
    _Definition(
        "mean of step rates",
        "PaddlePaddle Perf, NGC PyTorch on 1 GPU, 2023",
        _PADDLE,
        "first 9 steps and the last, drained one left out; a mean of rates is never "
        "below images / time",
        _paddle_without_last,
    ),
    _Definition(
        "mean of step rates, last step in",
        "PaddlePaddle Perf, NGC PyTorch on 8 GPUs, 2023",
        _PADDLE,
        "first 9 steps left out; the last step, in which the input runs dry, counts",
        _paddle_with_last,
    ),
)


_EPOCHS = _Definition(
    "epoch throughput",
    "MLPerf Training",
    _MLPERF,
    "as nbkit's of each whole epoch; median over epochs, the first left out where "
    "there are more",
    _epoch_rate,
)


def _whole_epochs(run: StoredRun) -> list[Line]:
    """Return the steps of the epochs that the run has finished."""
    steps, per_epoch = run.metrics("step"), run.worker.get("steps_per_epoch")
    counts = Counter(step.get("epoch") or 0 for step in steps)
    return [step for step in steps if counts[step.get("epoch") or 0] == per_epoch]


def _utilization(runs: Sequence[StoredRun]) -> SourceStatistic:
    """Return the mean of all samples of all GPUs, evaluation included."""
    totals: list[tuple[float, int]] = []
    for run in runs:
        gpus = ((run.record.get("system") or {}).get("gpus") or {}).values()
        samples = sum(gpu["gpu_utilization_samples"] for gpu in gpus)
        if samples:
            total = sum(gpu["gpu_utilization_percent_sum"] or 0 for gpu in gpus)
            totals.append((total, samples))
    value = None
    if totals:
        value = sum(total for total, _ in totals) / sum(count for _, count in totals)
    return SourceStatistic(
        label="mean GPU utilization",
        source="NetApp with Lenovo SR670 V2, 2023",
        url=_NETAPP,
        value=value,
        unit="%",
        against_ours=None,
        difference="of the whole run, evaluation and start included; the share of time "
        "with a kernel running, not how much of the GPU it used",
        n_runs=len(totals),
    )


def _time_to_train(runs: Sequence[StoredRun]) -> SourceStatistic:
    """Return the olympic mean of the runs' times."""
    times: list[float] = []
    missed = 0
    for run in runs:
        target = run.config.target_accuracy
        if run.state is not RunState.FINISHED or target is None:
            continue
        if (run.summary.top1_accuracy or 0) < target:
            missed += 1
        elif (minutes := _minutes(run)) is not None:
            times.append(minutes)
    enough = len(times) >= _OLYMPIC_RUNS
    return SourceStatistic(
        label="olympic mean of the time",
        source="MLPerf Training",
        url=_MLPERF,
        value=olympic_mean(times, missed) if enough else None,
        unit="minutes",
        against_ours=None,
        difference="whole runs to the target accuracy, evaluation included; the "
        "fastest and the slowest left out (it asks for 5 runs)",
        n_runs=len(times) + missed,
    )


def _minutes(run: StoredRun) -> float | None:
    """Return how long a run's ranks ran, with what a resumed one stood still."""
    times = run.record.get("time") or {}
    if not times.get("running") or not times.get("ended"):
        return None
    start, end = (
        datetime.datetime.fromisoformat(times[name]) for name in ("running", "ended")
    )
    if run.attempt:  # the record has the start of the newest one
        first = started_at(run.metrics(None))
        start = datetime.datetime.fromtimestamp(first, datetime.UTC)
    return (end - start).total_seconds() / 60
