"""Where each node of a run spends the time of a step, and which ranks others wait for.

Ranks exchange gradients in every step, so that each step is as long as that of the
slowest: who is fast waits in the exchange. What tells ranks apart is therefore their
*own time*, a step without the exposed communication, in which they read, compute and
update. It is compared within each run, because a queue gives every run other nodes.

For one rank it is not enough. The others get the buffers of rank 0 in the forward pass,
so that they wait for its input there, which counts as their own time. Rank 0 is late by
what it waits for its input beyond the median rank, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from nbkit.statistics import median_of
from nbkit.statistics.quantities import size_label

STRAGGLES = 0.05
"""Own time above the median rank's, as a part of it, from which a rank is named."""


@dataclass(frozen=True)
class PlacedRank:
    """One rank's measured steps."""

    rank: int
    local_rank: int
    node: str
    own_seconds: float
    """Of a step, on average: what it did not wait for the others."""
    data_wait_seconds: float
    """Of a step, on average: what it waited for its input."""
    data_wait_share: float
    """Part of the time of a step."""
    communication_share: float
    """Part of the time of a step that it waited for gradients, with nothing left to
    compute."""


@dataclass(frozen=True)
class NodeTimes:
    """One finished run, rank by rank."""

    arm: str
    world_size: int
    nnodes: int
    ranks: Sequence[PlacedRank]
    gpu_utilization_percent: Mapping[str, float]
    """Mean over all samples of a node's GPUs, those of the start included, by node;
    those that are known."""


@dataclass(frozen=True)
class NodeRow:
    """What the runs of one arm and size show of one node."""

    arm: str
    world_size: int
    nnodes: int
    node: str
    runs: int
    own_seconds: float
    """Of a step: median over runs of the median over its ranks."""
    against_median: float
    """Own time over the median of all ranks of the run: median over runs."""
    data_wait_share: float | None
    communication_share: float | None
    gpu_utilization_percent: float | None


@dataclass(frozen=True)
class Straggler:
    """A place whose rank needs longer than the median rank, in most runs."""

    arm: str
    world_size: int
    nnodes: int
    node: str
    local_rank: int
    ranks: tuple[int, ...]
    """Which ranks of the runs were there."""
    excess: float
    """By how much it is late, as a part of the median rank's own time: median over
    runs."""
    runs: int
    """In which a rank was there."""

    @property
    def sentence(self) -> str:
        """Who it is, and how much longer it needs."""
        several = "" if len(self.ranks) == 1 else "s"
        who = f"rank{several} {', '.join(map(str, self.ranks))}"
        ranks = f"{size_label(self.world_size, self.nnodes)} ranks"
        return (
            f"Straggler ({self.arm}, {ranks}): {who} on {self.node} (local rank "
            f"{self.local_rank}), {self.excess:.1%} slower than the median rank "
            f"(n={self.runs})."
        )


def node_times(
    arm: str,
    nnodes: int,
    ranks: Iterable[Mapping[str, Any]],
    names: Sequence[str] = (),
    system: Mapping[str, Any] | None = None,
) -> NodeTimes | None:
    """Return a run's times by rank; None if its ranks have not written all of them."""
    rank_facts = list(ranks)
    if not rank_facts or any(not rank.get("step_time_seconds") for rank in rank_facts):
        return None
    ranks_per_node = max(1, len(rank_facts) // nnodes)
    return NodeTimes(
        arm,
        len(rank_facts),
        nnodes,
        [_placed(rank, ranks_per_node, names) for rank in rank_facts],
        _utilization(system or {}),
    )


def node_table(runs: Iterable[NodeTimes]) -> list[NodeRow]:
    """Return a row for every node of every size, of the sizes that span nodes.

    Sizes ascend within an arm, and nodes are in the order of their names.
    """
    groups: dict[tuple[str, int, int], list[NodeTimes]] = {}
    for run in runs:
        if run.nnodes > 1:
            key = (run.arm, run.world_size, run.nnodes)
            groups.setdefault(key, []).append(run)
    arms = list(dict.fromkeys(arm for arm, _, _ in groups))
    rows: list[NodeRow] = []
    for key in sorted(groups, key=lambda key: (arms.index(key[0]), *key[1:])):
        seen = [_Seen.of(run, node) for run in groups[key] for node in _nodes(run)]
        for name in sorted({rank.node for rank in seen}):
            there = [rank for rank in seen if rank.node == name]
            rows.append(
                NodeRow(
                    *key,
                    node=name,
                    runs=len(there),
                    own_seconds=median(rank.own_seconds for rank in there),
                    against_median=median(rank.against_median for rank in there),
                    data_wait_share=median_of(there, lambda rank: rank.data_wait_share),
                    communication_share=median_of(
                        there, lambda rank: rank.communication_share
                    ),
                    gpu_utilization_percent=median_of(
                        there, lambda rank: rank.gpu_utilization_percent
                    ),
                )
            )
    return rows


def stragglers(runs: Iterable[NodeTimes], least: float = STRAGGLES) -> list[Straggler]:
    """Return the places that hold the others up, the slowest first."""
    excess: dict[tuple[str, int, int, str, int], list[float]] = {}
    ranks: dict[tuple[str, int, int, str, int], set[int]] = {}
    for run in runs:
        middle = median(rank.own_seconds for rank in run.ranks)
        if len(run.ranks) < 2 or middle <= 0:
            continue
        waited = median(rank.data_wait_seconds for rank in run.ranks)
        for rank in run.ranks:
            key = (run.arm, run.world_size, run.nnodes, rank.node, rank.local_rank)
            late = rank.own_seconds / middle - 1
            if rank.rank == 0:
                late = max(late, (rank.data_wait_seconds - waited) / middle)
            excess.setdefault(key, []).append(late)
            ranks.setdefault(key, set()).add(rank.rank)
    slow = [
        Straggler(*key, tuple(sorted(ranks[key])), median(parts), len(parts))
        for key, parts in excess.items()
        if median(parts) >= least
    ]
    return sorted(slow, key=lambda straggler: straggler.excess, reverse=True)


@dataclass(frozen=True)
class _Seen:
    """One node in one run."""

    node: str
    own_seconds: float
    against_median: float
    data_wait_share: float
    communication_share: float
    gpu_utilization_percent: float | None

    @classmethod
    def of(cls, run: NodeTimes, node: str) -> _Seen:
        there = [rank for rank in run.ranks if rank.node == node]
        own = median(rank.own_seconds for rank in there)
        return cls(
            node,
            own,
            own / median(rank.own_seconds for rank in run.ranks),
            median(rank.data_wait_share for rank in there),
            median(rank.communication_share for rank in there),
            run.gpu_utilization_percent.get(node),
        )


def _nodes(run: NodeTimes) -> list[str]:
    return list(dict.fromkeys(rank.node for rank in run.ranks))


def _placed(
    values: Mapping[str, Any], ranks_per_node: int, names: Sequence[str]
) -> PlacedRank:
    rank, total = values["rank"], values["step_time_seconds"]
    place = rank // ranks_per_node
    waited = values["communication_exposed_seconds"]
    named = str(names[place]) if place < len(names) else f"node {place}"
    return PlacedRank(
        rank,
        rank % ranks_per_node,
        str(values.get("node") or named),
        (total - waited) / values["steps"],
        values["data_wait_seconds"] / values["steps"],
        values["data_wait_seconds"] / total,
        waited / total,
    )


def _utilization(system: Mapping[str, Any]) -> dict[str, float]:
    """Return the mean over the samples of each node's GPUs, where there are any."""
    utilization: dict[str, float] = {}
    for name, sums in (system.get("nodes") or {}).items():
        gpus = (sums or {}).get("gpus", {}).values()
        samples = sum(gpu["gpu_utilization_samples"] for gpu in gpus)
        if samples:
            total = sum(gpu["gpu_utilization_percent_sum"] or 0 for gpu in gpus)
            utilization[name] = total / samples
    return utilization
