"""Published results of concurrent jobs, with their statistics recomputed.

A report prints a rate for each job, or a total, and says in a sentence that jobs do not
disturb each other. What follows from the printed rates is computed here by the same
definitions as for what is measured. One number each: there is no interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from nbkit.questions.concurrent_jobs.slowdown import fairness, fastest_over_slowest
from nbkit.references.rows import PublishedRow, printed_seconds, published


@dataclass(frozen=True)
class PublishedRound:
    """Jobs that ran concurrently."""

    name: str
    sizes: tuple[int, ...]
    """GPUs of each job."""
    rates: tuple[float, ...] | None
    """Images/s by job; None where only the total was printed."""
    total: float
    """Images/s of all jobs."""
    alone: float
    """Images/s of such a job alone."""
    alone_is: str
    """What was alone, in a few words."""
    is_rounded: bool
    """Whether the report says "about", so that neither slowdown nor fairness is exact
    beyond two figures."""
    one_job: float | None
    """Images/s of one job on as many GPUs; None where it is not stated."""
    seconds: tuple[float, ...] | None
    """Run time by job, in the order printed."""
    alone_seconds: float | None
    rows: tuple[PublishedRow, ...]
    """From which all of it comes."""

    @property
    def slowdowns(self) -> tuple[float, ...] | None:
        """Rate alone over rate, by job; above 1 is slower."""
        return self.rates and tuple(self.alone / rate for rate in self.rates)

    @property
    def slowdowns_by_time(self) -> tuple[float, ...] | None:
        """Run time over run time alone, by job; above 1 is slower."""
        if self.seconds is None or self.alone_seconds is None:
            return None
        return tuple(seconds / self.alone_seconds for seconds in self.seconds)

    @property
    def sum_alone(self) -> float:
        """Images/s of as many jobs, had each been as fast as alone."""
        return self.alone * len(self.sizes)

    @property
    def aggregate_efficiency(self) -> float:
        """The total over the sum of the jobs alone."""
        return self.total / self.sum_alone

    @property
    def against_one_job(self) -> float | None:
        """The total over the rate of one job on as many GPUs."""
        return None if self.one_job is None else self.total / self.one_job

    @property
    def fairness(self) -> float | None:
        """Jain's index; None where jobs were printed as one number."""
        return None if self.rates is None or self.is_rounded else fairness(self.rates)

    @property
    def fastest_over_slowest(self) -> float | None:
        """None where jobs were printed as one number."""
        if self.rates is None or self.is_rounded:
            return None
        return fastest_over_slowest(self.rates)


def published_rounds() -> list[PublishedRound]:
    """Return published results of concurrent jobs, five jobs first."""
    jobs = _rows("NetApp", "of 5 concurrent single-node jobs")
    [netapp_alone] = _rows("NetApp", "single job, NetApp")
    [alone] = _rows("Dell", "1 VM and 1 GPU per node", world_size=1)
    [one_job] = _rows("Dell", "setup 1:")
    [halves] = _rows("Dell", "setup 2:")
    [pairs] = _rows("Dell", "setup 3:")
    return [
        PublishedRound(
            name="NetApp: 5 jobs of 8 GPUs on shared storage",
            sizes=tuple(row.world_size for row in jobs),
            rates=tuple(map(_rate, jobs)),
            total=math.fsum(map(_rate, jobs)),
            alone=_rate(netapp_alone),
            alone_is="1 job on the same storage",
            is_rounded=False,
            one_job=None,
            seconds=tuple(map(printed_seconds, jobs)),
            alone_seconds=printed_seconds(netapp_alone),
            rows=(*jobs, netapp_alone),
        ),
        PublishedRound(
            name="Dell: 2 VMs of 1 GPU on a server",
            sizes=(1, 1),
            rates=(_rate(halves), _rate(halves)),
            total=2 * _rate(halves),
            alone=_rate(alone),
            alone_is="1 VM of 1 GPU",
            is_rounded=True,
            one_job=_rate(one_job),
            seconds=None,
            alone_seconds=None,
            rows=(halves, alone, one_job),
        ),
        PublishedRound(
            name="Dell: 2 VMs of 2 GPUs on a server",
            sizes=(2, 2),
            rates=None,
            total=_rate(pairs),
            alone=_rate(one_job),
            alone_is="1 VM of 2 GPUs",
            is_rounded=True,
            one_job=None,
            seconds=None,
            alone_seconds=None,
            rows=(pairs, one_job),
        ),
    ]


def _rows(
    publisher: str, part: str, world_size: int | None = None
) -> list[PublishedRow]:
    """Return the rows of a publisher whose conditions say something."""
    return [
        row
        for row in published()
        if row.publisher == publisher
        and part in (row.conditions or "")
        and world_size in (None, row.world_size)
    ]


def _rate(row: PublishedRow) -> float:
    assert row.images_per_second is not None
    return row.images_per_second
