"""Search over loaders, workers and prefetch.

A coordinate search over a grid: from a start, one setting at a time is changed, in
steps of the grid, for as long as that helps. A difference counts only if it is larger
than what the start differs from itself when it is measured twice. A setting that fails
delivers nothing, and the search continues. Nothing is run here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import fmean
from typing import Any, Literal

from nbkit.plural import plural
from nbkit.statistics import PRACTICAL_MARGIN

ENOUGH_WAIT_SHARE = 0.02
"""Ranks that wait less for data than this cannot gain more by it: the practical margin
of every verdict."""

_SHARE_OF_GRID = 3
"""At most one of so many settings of the grid is tried."""

_WITH_CONTROL = 6
"""Trials below which the start is not measured twice: too few would be left."""

Axis = Literal["loader", "workers", "prefetch"]
SearchEnd = Literal["no-faster-neighbour", "no-data-wait", "trial-limit", "time-limit"]


@dataclass(frozen=True, order=True)
class LoaderSetting:
    """One way to load."""

    workers: int
    """Loading processes per GPU, or threads where the loader has these."""
    prefetch: int
    """Batches prepared ahead."""
    loader: str


@dataclass(frozen=True)
class Trial:
    """Result of one setting; None is unknown."""

    setting: LoaderSetting
    images_per_second: float
    """Images of all ranks / wall time of the measured window; 0 if the trial failed."""
    data_wait_share: float | None = None
    cpu_ms_per_image: float | None = None
    run_id: str | None = None
    why: str = ""
    """Why it was tried."""
    cause: str | None = None
    """Reason of the failure; None if it finished."""
    disturbed: str | None = None
    """Disturbance that is not due to the setting."""


@dataclass(frozen=True)
class Grid:
    """Every setting that may be tried."""

    loaders: Sequence[str]
    workers: Sequence[int]
    """Growing."""
    prefetch: Sequence[int]
    """Growing."""
    most_ahead: int | None = None
    """Batches that all workers of a rank together may prepare ahead, workers x
    prefetch; None for any number."""

    def __len__(self) -> int:
        return len(self.settings)

    @property
    def settings(self) -> list[LoaderSetting]:
        """Every setting that does not prepare too much ahead."""
        return [
            LoaderSetting(workers, prefetch, loader)
            for loader in self.loaders
            for workers in self.workers
            for prefetch in self.prefetch
            if self.most_ahead is None or workers * prefetch <= self.most_ahead
        ]

    @property
    def most_trials(self) -> int:
        """A third of the settings, and one at least."""
        return max(1, len(self) // _SHARE_OF_GRID)

    def values(self, axis: Axis) -> Sequence[Any]:
        """Return the values of one axis."""
        return self.loaders if axis == "loader" else getattr(self, axis)


@dataclass(frozen=True)
class Tuning:
    """All trials, and the selected setting with the reason."""

    trials: Sequence[Trial]
    """In the order in which they were measured."""
    chosen: LoaderSetting
    end: SearchEnd
    """Why the search ended."""
    margin: float
    """Relative differences up to this margin count as noise."""
    grid_size: int
    noise: float | None = None
    """Relative difference between two measurements of the start; None if once."""

    @property
    def why(self) -> str:
        """Why this setting was selected, and why the search ended."""
        rates = _rates(self.trials)
        why = "the fastest tried"
        if rates[self.chosen] < max(rates.values()):
            what = "noise" if self.margin > PRACTICAL_MARGIN else "practical margin"
            what += ", noise not measured" * (self.noise is None)
            why = f"fewest workers within {self.margin * 100:.1f}% "
            why += f"of the fastest tried ({what})"
        return f"{why} (search ended: {self._ended})"

    @property
    def _ended(self) -> str:
        if self.end == "trial-limit":
            return f"limit of {plural(len(self.trials), 'trial')}"
        if self.end == "no-data-wait":
            return f"data wait {(self.trials[-1].data_wait_share or 0) * 100:.1f}%"
        return self.end.replace("-", " ")

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Tuning:
        """Return what `to_dict` was called on."""
        trials = [
            Trial(**{**trial, "setting": LoaderSetting(**trial["setting"])})
            for trial in values["trials"]
        ]
        chosen = LoaderSetting(**values["chosen"])
        return cls(**{**values, "trials": trials, "chosen": chosen})


def guide_rule_workers(cores: float, gpus: int) -> int:
    """Return the workers per GPU by the rule of Dell's guide; may be below 1.

    "Cores minus 4 per GPU", interpreted as: each GPU's share of the cores, minus 4 for
    other processes.

    References
    ----------
    Dell EMC Ready Solutions for AI: Deep Learning with NVIDIA, architecture guide
    (2018)
    """
    return int(cores / gpus - 4)


def tune(
    grid: Grid,
    start: LoaderSetting,
    measure: Callable[[LoaderSetting, str], Trial],
    *,
    most_trials: int | None = None,
    left_seconds: Callable[[], float] = lambda: math.inf,
) -> Tuning:
    """Find a setting whose rate is near the best of the grid, in few trials."""
    search = _Search(grid, measure, most_trials or grid.most_trials, left_seconds)
    try:
        search.walk(start)
    except _EndedError as error:
        return search.tuning(error.end)
    return search.tuning("no-faster-neighbour")


class _EndedError(Exception):
    """The search is over."""

    def __init__(self, *, end: SearchEnd) -> None:
        super().__init__(end)
        self.end: SearchEnd = end


@dataclass
class _Search:
    grid: Grid
    measure: Callable[[LoaderSetting, str], Trial]
    most_trials: int
    left_seconds: Callable[[], float]
    trials: list[Trial] = field(default_factory=list)

    @property
    def noise(self) -> float | None:
        """By what part the start differs from itself; None if that is not known."""
        first, second = (*self.trials[:2], None, None)[:2]
        if first is None or second is None or first.setting != second.setting:
            return None
        low, high = sorted([first.images_per_second, second.images_per_second])
        return (high - low) / low if low else None

    @property
    def margin(self) -> float:
        """Relative differences up to this margin count as noise."""
        return max(PRACTICAL_MARGIN, self.noise or 0.0)

    def walk(self, start: LoaderSetting) -> None:
        """Try settings for as long as one of them helps."""
        self._try(start, "start")
        # One that cannot be measured at all tells nothing of noise.
        if self.most_trials >= _WITH_CONTROL and self.trials[0].cause is None:
            self._try(start, "start again, to measure noise")
        best, before = start, None
        while best != before:
            before = best
            best = self._best_of_loaders(best)
            best = self._along("workers", best)
            best = self._along("prefetch", best)

    def tuning(self, end: SearchEnd) -> Tuning:
        """Return the trials and the selected setting."""
        rates = _rates(self.trials)
        # The fastest but for noise.
        least = max(rates.values()) / (1 + self.margin)
        near = [setting for setting, rate in rates.items() if rate >= least]
        # Of equals the first: a loader is not better for its name.
        chosen = min(near, key=lambda setting: (setting.workers, setting.prefetch))
        trials, size = tuple(self.trials), len(self.grid)
        return Tuning(trials, chosen, end, self.margin, size, self.noise)

    def _best_of_loaders(self, best: LoaderSetting) -> LoaderSetting:
        for loader in self.grid.loaders:
            other = replace(best, loader=loader)
            best = self._better(other, best, f"{loader} instead of {best.loader}")
        return best

    def _along(self, axis: Axis, best: LoaderSetting) -> LoaderSetting:
        """Go up an axis while that helps; down if going up does not."""
        best_above = self._one_way(axis, best, 1, f"more {axis}")
        if best_above != best:
            return best_above
        fewer = "fewer" if axis == "workers" else "less"
        return self._one_way(axis, best, -1, f"{fewer} {axis}")

    def _one_way(
        self, axis: Axis, best: LoaderSetting, by: int, why: str
    ) -> LoaderSetting:
        """Go one way while that helps; past one setting that only seems not to help."""
        here, passed = best, False
        while (following := self._neighbour(axis, here, by)) is not None:
            better = self._better(following, best, why)
            if better == best and (passed or self._is_worse(following, best)):
                break
            passed = better == best
            best, here = better, following
        return best

    def _neighbour(
        self, axis: Axis, setting: LoaderSetting, by: int
    ) -> LoaderSetting | None:
        values = self.grid.values(axis)
        place = values.index(getattr(setting, axis)) + by
        if not 0 <= place < len(values):
            return None
        neighbour = replace(setting, **{axis: values[place]})
        return neighbour if neighbour in self.grid.settings else None

    def _better(
        self, other: LoaderSetting, best: LoaderSetting, why: str
    ) -> LoaderSetting:
        """Return the other one if it is faster beyond the noise."""
        if other not in _rates(self.trials):
            self._try(other, why)
        rates = _rates(self.trials)
        return other if rates[other] > rates[best] * (1 + self.margin) else best

    def _is_worse(self, other: LoaderSetting, best: LoaderSetting) -> bool:
        """Return whether one is slower than the other beyond the noise."""
        rates = _rates(self.trials)
        return rates[other] * (1 + self.margin) < rates[best]

    def _try(self, setting: LoaderSetting, why: str) -> None:
        if len(self.trials) >= self.most_trials:
            raise _EndedError(end="trial-limit")
        if self.trials and self.left_seconds() <= 0:
            raise _EndedError(end="time-limit")
        trial = replace(self.measure(setting, why), why=why)
        self.trials.append(trial)
        wait = trial.data_wait_share
        if wait is not None and wait <= ENOUGH_WAIT_SHARE:
            raise _EndedError(end="no-data-wait")


def _rates(trials: Iterable[Trial]) -> dict[LoaderSetting, float]:
    """Return the rate of every setting, in the order of the first trials.

    One that failed once of two times is as good as one that always does.
    """
    trials_by_setting: dict[LoaderSetting, list[Trial]] = {}
    for trial in trials:
        trials_by_setting.setdefault(trial.setting, []).append(trial)
    return {
        setting: 0.0
        if any(trial.cause is not None for trial in many)
        else fmean(trial.images_per_second for trial in many)
        for setting, many in trials_by_setting.items()
    }
