"""Which loader, how many workers, how much prefetch: what to try next, and when to end.

A coordinate search over a grid: from a start, one setting at a time is changed, in
steps of the grid, for as long as that helps. A difference counts only if it is larger
than what the start differs from itself when it is measured twice. Nothing is run here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import fmean
from typing import Any, Literal

from nbkit.errors import ConfigError
from nbkit.statistics import PRACTICAL_MARGIN

__all__ = [
    "ENOUGH_WAIT_SHARE",
    "Grid",
    "Setting",
    "Trial",
    "Tuning",
    "guide_rule_workers",
    "tune",
]

ENOUGH_WAIT_SHARE = 0.02
"""Ranks that wait less for data than this cannot gain more by it: the practical margin
of every verdict."""

_SHARE_OF_GRID = 3
"""At most one of so many settings of the grid is tried."""

_WITH_CONTROL = 6
"""Trials below which the start is not measured twice: too few would be left."""

Axis = Literal["loader", "workers", "prefetch"]


@dataclass(frozen=True, order=True)
class Setting:
    """One way to load."""

    workers: int
    """Loading processes per GPU, or threads where the loader has these."""
    prefetch: int
    """Batches prepared ahead."""
    loader: str


@dataclass(frozen=True)
class Trial:
    """What one setting did; None is unknown."""

    setting: Setting
    images_per_second: float
    """Of all ranks: images of the measured window over its wall time."""
    data_wait_share: float | None = None
    cpu_ms_per_image: float | None = None
    run_id: str | None = None
    why: str = ""
    """Why it was tried."""


@dataclass(frozen=True)
class Grid:
    """Every setting that may be tried."""

    loaders: Sequence[str]
    workers: Sequence[int]
    """Growing."""
    prefetch: Sequence[int]
    """Growing."""

    def __len__(self) -> int:
        return len(self.loaders) * len(self.workers) * len(self.prefetch)

    @property
    def settings(self) -> list[Setting]:
        """Every setting."""
        return [
            Setting(workers, prefetch, loader)
            for loader in self.loaders
            for workers in self.workers
            for prefetch in self.prefetch
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
    """What was tried, what was chosen, and why."""

    trials: Sequence[Trial]
    """In the order in which they were measured."""
    chosen: Setting
    why: str
    """Why this one, and why nothing else was tried."""
    margin: float
    """Differences up to this part are taken for noise."""
    grid_size: int

    @property
    def images_per_second(self) -> float:
        """Rate of the chosen setting; the mean if it was measured twice."""
        return _rates(self.trials)[self.chosen]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Tuning:
        """Return what `to_dict` was called on."""
        trials = [
            Trial(**{**trial, "setting": Setting(**trial["setting"])})
            for trial in values["trials"]
        ]
        chosen = Setting(**values["chosen"])
        return cls(**{**values, "trials": trials, "chosen": chosen})


def guide_rule_workers(cores: float, gpus: int) -> int:
    """Return how many workers of a GPU a rule of Dell's guide gives; maybe below 1.

    "Cores minus 4 per GPU", which is read here as: of each GPU's share of the cores,
    4 are left to everything else.

    Parameters
    ----------
    cores
        That the ranks of a node may use.
    gpus
        Ranks of the node.

    References
    ----------
    Dell EMC Ready Solutions for AI: Deep Learning with NVIDIA, architecture guide
    (2018)
    """
    return int(cores / gpus - 4)


def tune(
    grid: Grid,
    start: Setting,
    measure: Callable[[Setting, str], Trial],
    *,
    most_trials: int | None = None,
) -> Tuning:
    """Find a setting whose rate is near the best of the grid, in few trials.

    Parameters
    ----------
    grid
        What may be tried.
    start
        Tried first; one of the grid.
    measure
        Tries a setting, for the reason that is given.
    most_trials
        None for `Grid.most_trials`.

    Returns
    -------
    Tuning
        Chosen is the fastest; of settings that differ by no more than the practical
        margin, the one with the fewest workers, then the least prefetch.

    Raises
    ------
    ConfigError
        If the start is not in the grid.
    """
    if start not in grid.settings:
        message = f"start={start} is none of the {len(grid)} settings; use one of them."
        raise ConfigError(message)
    search = _Search(grid, measure, most_trials or grid.most_trials)
    try:
        search.walk(start)
        ended = "no neighbour was faster"
    except _EndedError as end:
        ended = str(end)
    return search.tuning(ended)


class _EndedError(Exception):
    """The search is over; the text says why."""


@dataclass
class _Search:
    grid: Grid
    measure: Callable[[Setting, str], Trial]
    most_trials: int
    trials: list[Trial] = field(default_factory=list)
    margin: float = PRACTICAL_MARGIN

    def walk(self, start: Setting) -> None:
        """Try settings for as long as one of them helps."""
        self._try(start, "start")
        if self.most_trials >= _WITH_CONTROL:
            self._try(start, "the start again: what differs is noise")
            first, second = (trial.images_per_second for trial in self.trials)
            self.margin = max(self.margin, abs(first - second) / min(first, second))
        best, before = start, None
        while best != before:
            before = best
            best = self._best_of_loaders(best)
            best = self._along("workers", best)
            best = self._along("prefetch", best)

    def tuning(self, ended: str) -> Tuning:
        """Return what was found."""
        rates = _rates(self.trials)
        fastest = max(rates.values())
        near = [one for one, rate in rates.items() if rate >= fastest / _NEAR]
        chosen = min(near)
        why = "the fastest that was tried"
        if rates[chosen] < fastest:
            why = (
                f"within {PRACTICAL_MARGIN * 100:g} % of the fastest that was tried, "
                "with fewer workers or less prefetch"
            )
        text = f"{why}; the search ended because {ended}"
        return Tuning(tuple(self.trials), chosen, text, self.margin, len(self.grid))

    def _best_of_loaders(self, best: Setting) -> Setting:
        for loader in self.grid.loaders:
            other = replace(best, loader=loader)
            best = self._better(other, best, f"{loader} in the place of {best.loader}")
        return best

    def _along(self, axis: Axis, best: Setting) -> Setting:
        """Go up an axis while that helps; down if going up does not."""
        found = self._one_way(axis, best, 1, f"more {axis}")
        if found != best:
            return found
        fewer = "fewer" if axis == "workers" else "less"
        return self._one_way(axis, best, -1, f"{fewer} {axis}")

    def _one_way(self, axis: Axis, best: Setting, by: int, why: str) -> Setting:
        """Go one way while that helps; past one setting that only seems not to help."""
        here, passed = best, False
        while (following := self._neighbour(axis, here, by)) is not None:
            found = self._better(following, best, why)
            if found == best and (passed or self._is_worse(following, best)):
                break
            passed = found == best
            best, here = found, following
        return best

    def _neighbour(self, axis: Axis, setting: Setting, by: int) -> Setting | None:
        values = self.grid.values(axis)
        place = values.index(getattr(setting, axis)) + by
        if not 0 <= place < len(values):
            return None
        return replace(setting, **{axis: values[place]})

    def _better(self, other: Setting, best: Setting, why: str) -> Setting:
        """Return the other one if it is faster beyond the noise."""
        if other not in _rates(self.trials):
            self._try(other, why)
        rates = _rates(self.trials)
        return other if rates[other] > rates[best] * (1 + self.margin) else best

    def _is_worse(self, other: Setting, best: Setting) -> bool:
        """Return whether one is slower than the other beyond the noise."""
        rates = _rates(self.trials)
        return rates[other] * (1 + self.margin) < rates[best]

    def _try(self, setting: Setting, why: str) -> None:
        if len(self.trials) >= self.most_trials:
            message = f"{self.most_trials} trials were allowed"
            raise _EndedError(message)
        trial = replace(self.measure(setting, why), why=why)
        self.trials.append(trial)
        wait = trial.data_wait_share
        if wait is not None and wait <= ENOUGH_WAIT_SHARE:
            message = f"ranks waited for data only {wait * 100:.1f} % of the time"
            raise _EndedError(message)


_NEAR = 1 + PRACTICAL_MARGIN


def _rates(trials: Iterable[Trial]) -> dict[Setting, float]:
    """Return the rate of every setting, in the order of the first trials."""
    found: dict[Setting, list[float]] = {}
    for trial in trials:
        found.setdefault(trial.setting, []).append(trial.images_per_second)
    return {setting: fmean(rates) for setting, rates in found.items()}
