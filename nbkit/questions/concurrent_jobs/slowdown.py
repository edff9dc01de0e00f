"""Overlap, slowdown, fairness and total throughput of concurrent jobs.

A *round* is one time that several jobs are started together. A job's rate in a round is
images over the time of those of its measured steps during which every other job of the
round was measured too: before and after that, one of them had the machine to itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from nbkit import statistics
from nbkit.statistics import NoiseFloor, Ratio, RunsNeeded, Summary

MINIMUM_OVERLAP = 0.5
"""A round counts if its jobs were measured together for at least this part of the time
that the quickest of them was measured: with less, most of what was seen of that job is
not a job among others."""

Step = Mapping[str, Any]


@dataclass(frozen=True)
class Overlap:
    """Period in which all jobs of a round were measured."""

    seconds: float
    share: float
    """Of the time that the quickest job was measured: 0 to 1."""
    steps: tuple[tuple[Step, ...], ...]
    """Of each job, those that are in it as a whole."""

    @property
    def is_enough(self) -> bool:
        """Whether the round counts."""
        return self.share >= MINIMUM_OVERLAP and all(self.steps)

    @property
    def images_per_second(self) -> tuple[float | None, ...]:
        """Images / time of the steps of each job; None without a step."""
        return tuple(map(statistics.images_per_second, self.steps))


def overlap(jobs: Sequence[Sequence[Step]]) -> Overlap:
    """Return the time in which all jobs of a round were measured."""
    if not all(jobs):
        return Overlap(0.0, 0.0, tuple(() for _ in jobs))
    begins = [_begin(steps[0]) for steps in jobs]
    ends = [steps[-1]["t"] for steps in jobs]
    first, last = max(begins), min(ends)
    quickest = min(end - begin for begin, end in zip(begins, ends, strict=True))
    seconds = max(0.0, last - first)
    return Overlap(
        seconds=seconds,
        share=seconds / quickest if quickest > 0 else 0.0,
        steps=tuple(
            tuple(step for step in steps if _begin(step) >= first and step["t"] <= last)
            for steps in jobs
        ),
    )


def _begin(step: Step) -> float:
    return step["t"] - step["step_time_seconds"]


def fairness(shares: Sequence[float]) -> float:
    """Return Jain's index: 1 for equal shares, 1/n if one of n has everything.

    References
    ----------
    R. Jain, D. Chiu and W. Hawe, A quantitative measure of fairness and discrimination
    for resource allocation in shared computer systems, DEC-TR-301 (1984),
    https://arxiv.org/abs/cs/9809099
    """
    total = math.fsum(shares)
    return total**2 / (len(shares) * math.fsum(share**2 for share in shares))


def fastest_over_slowest(shares: Sequence[float]) -> float:
    """Return the largest share over the smallest one."""
    return max(shares) / min(shares)


@dataclass(frozen=True)
class Round:
    """What one round measured."""

    repeat: int
    run_ids: tuple[str, ...]
    overlap: Overlap

    @property
    def is_valid(self) -> bool:
        """Whether its jobs overlapped for long enough."""
        return self.overlap.is_enough

    @property
    def rates(self) -> tuple[float, ...]:
        """Images/s by job; of a round that counts."""
        return tuple(rate for rate in self.overlap.images_per_second if rate)


@dataclass(frozen=True)
class IsolatedRuns:
    """Runs of a job alone, one value per process start."""

    arm: str
    rates: Mapping[int, float]
    """Images/s by repeat, over the time of the measured steps."""
    is_valid: bool = True
    """Whether its trainings were finite, so that others may be compared with it."""

    @property
    def images_per_second(self) -> Summary | None:
        """Over process starts; None without one."""
        rates = list(self.rates.values())
        return statistics.summarise(rates) if rates else None


@dataclass(frozen=True)
class ConcurrentJob:
    """One concurrent job compared with the same job alone."""

    arm: str
    world_size: int
    alone: IsolatedRuns
    rates: tuple[float, ...]
    """Images/s by round that counts."""
    noise_floor: NoiseFloor | None = None
    is_valid: bool = True
    """Whether its trainings were finite; alone, `IsolatedRuns.is_valid` says."""
    comparisons: int = 1
    """How many verdicts of the report share the error rate."""

    @property
    def images_per_second(self) -> Summary | None:
        """Over rounds; None without one that counts."""
        return statistics.summarise(self.rates) if self.rates else None

    @property
    def is_comparable(self) -> bool:
        """Whether it has rates of finite trainings, among others and alone."""
        return bool(
            self.rates and self.alone.rates and self.is_valid and self.alone.is_valid
        )

    @cached_property
    def rate_ratio(self) -> Ratio | None:
        """Concurrent rate / rate alone; None if one is missing or not finite."""
        if not self.is_comparable:
            return None
        return statistics.ratio(
            self.rates,
            list(self.alone.rates.values()),
            a_name=self.arm,
            b_name=self.alone.arm,
            noise_floor=self.noise_floor,
            comparisons=self.comparisons,
        )

    @property
    def slowdown(self) -> tuple[float, float | None, float | None] | None:
        """Rate alone / concurrent rate, with its 95 % interval; above 1 is slower.

        None if they cannot be compared.
        """
        ratio = self.rate_ratio
        if ratio is None:
            return None
        low = None if ratio.ci_high is None else 1 / ratio.ci_high
        high = None if ratio.ci_low is None else 1 / ratio.ci_low
        return 1 / ratio.estimate, low, high

    @cached_property
    def needed(self) -> RunsNeeded | None:
        """Number of repeats needed for a verdict; None before two repeats."""
        ratio = self.rate_ratio
        if ratio is None or min(ratio.n_a, ratio.n_b) < 2:
            return None
        return statistics.runs_needed(
            ratio.a_runs,
            ratio.b_runs,
            confidence=ratio.verdict_confidence,
            noise_floor=self.noise_floor,
        )


@dataclass(frozen=True)
class ConcurrentJobs:
    """Concurrent jobs in one setting compared with the same jobs alone."""

    name: str
    """Such as ``1,1 (pinned)``."""
    setting: str
    """Such as ``pinned``."""
    jobs: tuple[ConcurrentJob, ...]
    rounds: tuple[Round, ...]
    noise_floor: NoiseFloor | None = None
    comparisons: int = 1
    """As of `ConcurrentJob`."""

    @property
    def counted(self) -> list[Round]:
        """The rounds whose jobs overlapped for long enough."""
        return [round_ for round_ in self.rounds if round_.is_valid]

    @property
    def totals(self) -> list[float]:
        """Images/s of all jobs together, by round that counts."""
        return [math.fsum(round_.rates) for round_ in self.counted]

    @property
    def images_per_second(self) -> Summary | None:
        """The total over rounds; None without one that counts."""
        return statistics.summarise(self.totals) if self.totals else None

    @property
    def sums_alone(self) -> list[float]:
        """Images/s of the same jobs alone, added, by repeat that all have."""
        repeats = set(self.jobs[0].alone.rates)
        repeats = repeats.intersection(*(job.alone.rates for job in self.jobs))
        return [
            math.fsum(job.alone.rates[repeat] for job in self.jobs)
            for repeat in sorted(repeats)
        ]

    @property
    def is_valid(self) -> bool:
        """Whether all trainings of its concurrent jobs were finite."""
        return all(job.is_valid for job in self.jobs)

    @cached_property
    def aggregate_efficiency(self) -> Ratio | None:
        """Total rate / sum of the jobs alone; None if one is missing."""
        if not all(job.alone.is_valid for job in self.jobs):
            return None
        return self._ratio(self.sums_alone, "sum of jobs alone")

    def against_one_job(self, one_job: IsolatedRuns) -> Ratio | None:
        """Return total rate / rate of one job on all devices."""
        if not one_job.is_valid:
            return None
        return self._ratio(list(one_job.rates.values()), one_job.arm)

    def against(self, other: ConcurrentJobs) -> Ratio | None:
        """Return total rate / total rate of the same jobs in another setting."""
        if not other.is_valid:
            return None
        return self._ratio(other.totals, f"{other.name} concurrent")

    def _ratio(self, base: Sequence[float], base_name: str) -> Ratio | None:
        if not self.totals or not base or not self.is_valid:
            return None
        return statistics.ratio(
            self.totals,
            base,
            a_name=f"{self.name} concurrent",
            b_name=base_name,
            noise_floor=self.noise_floor,
            comparisons=self.comparisons,
        )

    @property
    def fairness(self) -> Summary | None:
        """Jain's index of concurrent rate / rate alone of all jobs, over rounds."""
        indices = [fairness(shares) for shares in self._shares]
        return statistics.summarise(indices) if indices else None

    @property
    def fastest_over_slowest(self) -> Summary | None:
        """Over rounds, of each job's rate over its rate alone."""
        ratios = [fastest_over_slowest(shares) for shares in self._shares]
        return statistics.summarise(ratios) if ratios else None

    @property
    def _shares(self) -> list[list[float]]:
        if not all(job.is_valid and job.alone.is_valid for job in self.jobs):
            return []
        alone = statistics.all_known(job.alone.images_per_second for job in self.jobs)
        return [
            [r / base.median for r, base in zip(round_.rates, alone, strict=True)]
            for round_ in (self.counted if alone else [])
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values, every round and every number that was computed."""
        return {
            "name": self.name,
            "setting": self.setting,
            "jobs": [
                {
                    "arm": job.arm,
                    "world_size": job.world_size,
                    "alone": job.alone.arm,
                    "images_per_second": list(job.rates),
                    "slowdown": job.slowdown and list(job.slowdown),
                    "verdict": job.rate_ratio and job.rate_ratio.verdict,
                }
                for job in self.jobs
            ],
            "totals": self.totals,
            "aggregate_efficiency": self.aggregate_efficiency
            and asdict(self.aggregate_efficiency),
            "fairness": self.fairness and asdict(self.fairness),
            "rounds": [
                {
                    "repeat": round_.repeat,
                    "run_ids": list(round_.run_ids),
                    "overlap_seconds": round_.overlap.seconds,
                    "overlap_share": round_.overlap.share,
                    "is_valid": round_.is_valid,
                }
                for round_ in self.rounds
            ],
        }


@dataclass(frozen=True)
class Effect:
    """Effect of a setting: images/s with it / images/s without it."""

    measured: str
    """What ran, such as ``1,1 concurrent``."""
    what: str
    """The setting, such as ``pinned vs. not pinned``."""
    ratio: Ratio
    is_concurrent: bool
    """Whether jobs ran together, and it is their total."""
