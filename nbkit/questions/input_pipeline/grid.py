"""Which loaders, workers and prefetch the tuner of the input pipelines may try."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from nbkit.plural import plural
from nbkit.questions.input_pipeline.trials import (
    Grid,
    LoaderSetting,
    guide_rule_workers,
)

MOST_WORKERS = 256
"""Of a rank, as in `nbkit.LoaderConfig`."""

_LOADERS = ("torch", "tfrecord")
_PREFETCH = (2, 4, 8)

_MEASURED_AHEAD = 4
"""Of the steps at most one of so many may be loaded ahead: else a run shows how fast
its buffer empties, and shared memory holds no end of batches."""

_WITHOUT_WORKERS = ("naive",)
"""Loaders of which a tuner can change nothing."""


def loader_faults(loaders: Sequence[str]) -> Iterator[str]:
    """Yield a line of an error for every loader that cannot be tuned."""
    for loader in loaders:
        if loader in _WITHOUT_WORKERS:
            yield (
                f"loaders={','.join(loaders)}: {loader!r} has no workers to tune; use "
                "torch, tfrecord or dali."
            )


def tuner_grid(loaders: Sequence[str] | None, share: float, steps: int) -> Grid:
    """Return what may be tried: doubling, up to twice a rank's share of the cores."""
    workers = [1]
    while workers[-1] * 2 <= min(2 * max(1.0, share), MOST_WORKERS):
        workers.append(workers[-1] * 2)
    most_ahead = max(_PREFETCH[0], steps // _MEASURED_AHEAD)
    return Grid(
        list(dict.fromkeys(loaders or _LOADERS)), workers, _PREFETCH, most_ahead
    )


def first_setting(grid: Grid, share: float) -> LoaderSetting:
    """Return what a loader would take by itself, or the next below that."""
    here = grid.loaders[0], grid.prefetch[0]
    found = [
        setting
        for setting in grid.settings
        if (setting.loader, setting.prefetch) == here
    ]
    return max((one for one in found if one.workers < share), default=found[0])


def notes_on(grid: Grid) -> Iterator[str]:
    """Yield a sentence about settings that are left out, if there are any."""
    count = len(replace(grid, most_ahead=None)) - len(grid)
    if count:
        yield (
            f"The tuner skips {count} settings that prefetch more than "
            f"{grid.most_ahead} batches, a quarter of the steps. Use more steps to try "
            "them."
        )


def rule_note(cores: float, gpus: int) -> str:
    """Return what the guide's rule comes to here."""
    workers = guide_rule_workers(cores, gpus)
    text = (
        f"Dell guide's rule (cores / ranks - 4): {cores:g} cores and "
        f"{plural(gpus, 'rank')} give"
    )
    if workers < 1:
        return f"{text} no worker, so 1 worker per rank is measured."
    return f"{text} {plural(workers, 'worker')} per rank."
