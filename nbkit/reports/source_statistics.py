"""The same runs by the statistics of others: what each report would have printed.

"Images/s" is a word for several quantities. From the raw steps of a run each can be
computed, so that a number of one's own is compared with a published one like for like.
The wording of each definition is that of the source's program or text.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from nbkit.errors import NotEnoughDataError
from nbkit.reports.columns import Column, table
from nbkit.reports.parts import Source, Table
from nbkit.statistics import (
    images_per_second,
    measured_steps,
    quantities,
    step_images_per_second,
)
from nbkit.store.stored_runs import StoredRun

_PADDLE_FIRST_STEPS = 9
_PADDLE_FEWEST_STEPS = 10
"""It has 99 of them; of one or two a mean would say nothing."""

Steps = Sequence[Mapping[str, Any]]


class Definition(NamedTuple):
    """One source's definition of images/s."""

    label: str
    """The statistic, in a few words."""
    source: str
    """Who prints it; ``nbkit`` for the first two."""
    difference: str
    """How it differs from nbkit's statistic."""
    of_run: Callable[[Steps], float | None]
    """From all steps of a run, or those of its whole epochs."""
    over_runs: Callable[[Sequence[float]], float] = statistics.median


class SourceStatistic(NamedTuple):
    """What one definition makes of some runs."""

    definition: Definition
    n_runs: int
    """Runs of the value."""
    images_per_second: float | None
    """Over all runs; None where the runs do not say."""
    against_ours: float | None
    """Over nbkit's."""


SOURCES = (
    Source(
        "Dell EMC deep learning guide, 2018",
        "https://manualshelf.com/manual/dell/high-performance-computing-solution-"
        "resources/reference-guide-english/page-16.html",
    ),
    Source(
        "torchvision references",
        "https://github.com/pytorch/vision/blob/main/references/classification/"
        "train.py",
    ),
    Source(
        "NVIDIA DeepLearningExamples, PyTorch",
        "https://github.com/NVIDIA/DeepLearningExamples/blob/master/PyTorch/"
        "Classification/ConvNets/image_classification/training.py",
    ),
    Source(
        "PaddlePaddle Perf, NGC PyTorch, 2023",
        "https://github.com/PaddlePaddle/Perf/blob/master/ResNet50V1.5/OtherReports/"
        "PyTorch/README.md",
    ),
    Source(
        "NetApp with Lenovo SR670 V2, 2023",
        "https://github.com/NetAppDocs/netapp-solutions/blob/main/ai/"
        "a400-thinksystem-test-procedure-and-detailed-results.adoc",
    ),
    Source(
        "MLPerf Training",
        "https://github.com/mlcommons/training_policies/blob/master/"
        "training_rules.adoc",
    ),
)
"""Where the statistics are defined, by who prints them."""


def source_statistics(runs: Sequence[StoredRun]) -> list[SourceStatistic]:
    """Return what each source would print for these runs."""
    measured = [run for run in runs if measured_steps(run.metrics("step"))]
    if not measured:
        message = (
            f"None of {len(runs)} runs has measured steps. Pass finished training runs."
        )
        raise NotEnoughDataError(message)
    steps = [run.metrics("step") for run in measured]
    whole_epochs = [_whole_epochs(run) for run in measured]
    ours: float | None = None
    rows: list[SourceStatistic] = []
    for definition in _DEFINITIONS:
        steps_by_run = whole_epochs if definition.of_run is _epoch_rate else steps
        known = [rate for lines in steps_by_run if (rate := definition.of_run(lines))]
        rate = definition.over_runs(known) if known else None
        ours = ours or rate  # nbkit's comes first
        ratio = rate / ours if rate and ours else None
        rows.append(SourceStatistic(definition, len(known), rate, ratio))
    return rows


def _ours(steps: Steps) -> float | None:
    return images_per_second(measured_steps(steps))


def _median_step(steps: Steps) -> float | None:
    rates = step_images_per_second(measured_steps(steps))
    return statistics.median(rates) if rates else None


def _mean(rates: Sequence[float]) -> float | None:
    return statistics.fmean(rates) if rates else None


def _paddle(steps: Steps) -> float | None:
    is_enough = len(steps) >= _PADDLE_FEWEST_STEPS
    return _mean(step_images_per_second(steps)) if is_enough else None


def _rates_without_wait(steps: Steps) -> list[float]:
    return [
        step["images"] / busy
        for step in steps
        if (busy := step["step_time_seconds"] - step["data_wait_seconds"]) > 0
    ]


def _whole_epochs(run: StoredRun) -> Steps:
    """Return the steps of the epochs that the run has finished."""
    steps, per_epoch = run.metrics("step"), run.worker.get("steps_per_epoch")
    counts = Counter(step.get("epoch") or 0 for step in steps)
    return [step for step in steps if counts[step.get("epoch") or 0] == per_epoch]


def _epoch_rate(steps: Steps) -> float | None:
    """Return the median over epochs; the first is left out where there are more."""
    epochs = [[*of] for _, of in groupby(steps, lambda step: step.get("epoch") or 0)]
    rates = map(images_per_second, epochs[1:] or epochs)
    known = [rate for rate in rates if rate is not None]
    return statistics.median(known) if known else None


_DEFINITIONS = (
    Definition(
        "images / time",
        "nbkit",
        "includes data wait and stalls, excludes warm-up; median over runs",
        _ours,
    ),
    Definition(
        "median step",
        "nbkit",
        "images / step time of the same steps; median over steps, then over runs; not "
        "the rate of a run with bursts",
        _median_step,
    ),
    Definition(
        "images / whole time",
        "Dell EMC deep learning guide, 2018",
        "as nbkit's, but includes warm-up",
        images_per_second,
    ),
    Definition(
        "torchvision img/s",
        "torchvision references",
        "timer starts after data loading; last step only, here over all ranks "
        "(torchvision prints one rank)",
        lambda steps: (_rates_without_wait(steps) or [None])[-1],
    ),
    Definition(
        "compute_ips",
        "NVIDIA DeepLearningExamples, PyTorch",
        "excludes data wait; mean of step rates, includes warm-up",
        lambda steps: _mean(_rates_without_wait(steps)),
    ),
    Definition(
        "total_ips",
        "NVIDIA DeepLearningExamples, PyTorch",
        "mean of step rates, includes warm-up",
        lambda steps: _mean(step_images_per_second(steps)),
    ),
    Definition(
        "mean of runs",
        "Dell on VMware vSphere, 2022",
        "as nbkit's of each run (tf_cnn_benchmarks); mean over runs, 3 there",
        _ours,
        statistics.fmean,
    ),
    Definition(
        "mean of jobs",
        "NetApp with Lenovo SR670 V2, 2023",
        "as nbkit's, but includes warm-up; mean over runs",
        images_per_second,
        statistics.fmean,
    ),
    Definition(
        "mean of step rates",
        "PaddlePaddle Perf, NGC PyTorch on 1 GPU, 2023",
        "excludes the first 9 steps and the drained last step; a mean of rates is "
        "never below images / time",
        lambda steps: _paddle(steps[_PADDLE_FIRST_STEPS:-1]),
    ),
    Definition(
        "mean of step rates, last step in",
        "PaddlePaddle Perf, NGC PyTorch on 8 GPUs, 2023",
        "excludes the first 9 steps, includes the drained last step",
        lambda steps: _paddle(steps[_PADDLE_FIRST_STEPS:]),
    ),
    Definition(
        "epoch throughput",
        "MLPerf Training",
        "as nbkit's per whole epoch; median over epochs, excluding the first if there "
        "are several",
        _epoch_rate,
    ),
)


def statistics_table(
    a: Sequence[SourceStatistic],
    b: Sequence[SourceStatistic],
    names: tuple[str, str],
    about: str,
) -> Table:
    """Return what each source would print of two columns of runs, and the ratio."""
    pairs = [*map(_Pair, a, b)]
    rows = [pair for pair in pairs if any(one.images_per_second for one in pair)]
    absent = [pair.a.definition.label for pair in pairs if pair not in rows]
    notes = [
        "Images/s of the same runs as each source would have computed it.",
        *(f"{one.definition.label}: {one.definition.difference}." for one, _ in rows),
        *([f"Unknown for these runs: {'; '.join(absent)}."] if absent else []),
        f"Ratio: {names[0]} over {names[1]}. Only nbkit's own has a CI, in the first "
        "table.",
    ]

    def ratio(row: _Pair) -> float | None:
        first, second = row.a.images_per_second, row.b.images_per_second
        return first / second if first and second else None

    columns = [
        Column("statistic", "a.definition.label"),
        Column("source", "a.definition.source"),
    ]
    for name, side in zip(names, "ab", strict=True):
        rate = f"{side}.images_per_second"
        columns += [
            Column(name, rate, quantities.rate, f"value of {name}"),
            Column("times nbkit's", f"{side}.against_ours", "{:.3f}".format),
            Column("runs", f"{side}.n_runs"),
        ]
    columns.append(Column("ratio", ratio, "{:.3f}".format))
    caption = f"{about}: the same runs under other throughput definitions"
    return table(caption, columns, rows, notes)


class _Pair(NamedTuple):
    a: SourceStatistic
    b: SourceStatistic
