"""Step time by node, and the ranks that others wait for.

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
from dataclasses import asdict, dataclass, replace
from operator import attrgetter
from statistics import median
from typing import Any

from nbkit.launch.run import Run
from nbkit.reports.columns import Column, number, table
from nbkit.reports.parts import Table
from nbkit.statistics import median_of
from nbkit.statistics import quantities as wording
from nbkit.statistics.quantities import size_label

STRAGGLES = 0.05
"""Relative excess of own time over the median rank that makes a straggler."""
_MOST_NAMED = 5


@dataclass(frozen=True)
class PlacedRank:
    """One rank's measured steps."""

    rank: int
    local_rank: int
    node: str
    own_seconds: float
    """Mean time per step without waiting for other ranks."""
    data_wait_seconds: float
    """Mean data wait per step."""
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
    """Times of one node, for one arm and size."""

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
    """A rank position that is slower than the median rank in most runs."""

    arm: str
    world_size: int
    nnodes: int
    node: str
    local_rank: int
    ranks: tuple[int, ...]
    """Which ranks of the runs were there."""
    excess: float
    """Excess over the median rank's own time, relative to it: median over runs."""
    runs: int
    """In which a rank was there."""

    @property
    def sentence(self) -> str:
        """The straggler and its excess in words."""
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
    """Return a run's times by rank; None if they are incomplete."""
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
    by_node: dict[tuple[str, int, int, str], list[NodeRow]] = {}
    arms: dict[str, int] = {}
    for run in runs:
        if run.nnodes > 1:
            arms.setdefault(run.arm, len(arms))
            for node in {rank.node for rank in run.ranks}:
                key = (run.arm, run.world_size, run.nnodes, node)
                by_node.setdefault(key, []).append(_of_run(run, node))
    return [
        replace(
            by_node[key][0],
            runs=len(by_node[key]),
            **{n: median_of(by_node[key], attrgetter(n)) for n in _MEDIANS},
        )
        for key in sorted(by_node, key=lambda key: (arms[key[0]], *key[1:]))
    ]


_MEDIANS = (
    *("own_seconds", "against_median", "data_wait_share", "communication_share"),
    "gpu_utilization_percent",
)


def _of_run(run: NodeTimes, node: str) -> NodeRow:
    """Return one node in one run."""
    there = [rank for rank in run.ranks if rank.node == node]
    own = median(rank.own_seconds for rank in there)
    return NodeRow(
        run.arm,
        run.world_size,
        run.nnodes,
        node,
        runs=1,
        own_seconds=own,
        against_median=own / median(rank.own_seconds for rank in run.ranks),
        data_wait_share=median(rank.data_wait_share for rank in there),
        communication_share=median(rank.communication_share for rank in there),
        gpu_utilization_percent=run.gpu_utilization_percent.get(node),
    )


def stragglers(runs: Iterable[NodeTimes]) -> list[Straggler]:
    """Return the stragglers, the slowest first."""
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
        if median(parts) >= STRAGGLES
    ]
    return sorted(slow, key=lambda straggler: straggler.excess, reverse=True)


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


_NODES = (
    Column("precision", "arm"),
    Column("size", lambda row: size_label(row.world_size, row.nnodes)),
    Column("node", "node"),
    Column("runs", "runs"),
    number("own time per step, ms", "own_seconds", lambda own: f"{own * 1e3:.3g}"),
    number("vs. median rank", "against_median", "{:.3f}".format),
    number("data wait", "data_wait_share", wording.percent),
    number("communication", "communication_share", wording.percent),
    number("GPU utilization, whole run", "gpu_utilization_percent", "{:.0f}%".format),
)


def times_of(run: Run) -> NodeTimes | None:
    """Return the times of a run's ranks; None if they were not recorded."""
    record, config = run.record, run.config
    job = (record.get("launch") or {}).get("job") or {}
    host = (record.get("machine") or {}).get("hostname")
    alone = [str(host)] if host and config.nnodes == 1 else []
    return node_times(
        config.precision,
        config.nnodes,
        run.worker.get("ranks") or [],
        job.get("nodes") or alone,
        record.get("system"),
    )


def straggler_sentences(times: Sequence[NodeTimes]) -> list[str]:
    """Return a sentence per straggler, the slowest first; may be empty."""
    slow = stragglers(times)
    sentences = [straggler.sentence for straggler in slow[:_MOST_NAMED]]
    more = len(slow) - len(sentences)
    if more:
        sentences.append(f"Stragglers not listed: {more}.")
    return sentences


def ranks_table(times: Sequence[NodeTimes]) -> Table | None:
    """Return the times by node, and the stragglers; None if no size spans nodes."""
    rows = node_table(times)
    if not rows:
        return None
    sentences = straggler_sentences(times) or [
        f"No stragglers: no rank is {STRAGGLES:.0%} slower than the median rank."
    ]
    return table(
        "Measured step time by node",
        _NODES,
        rows,
        [
            "Own time: step time without exposed communication. A straggler has the "
            "longest own time; the other ranks wait for it.",
            "GPU utilization: mean over the whole run, including startup.",
            *sentences,
        ],
    )


def ranks_result(times: Sequence[NodeTimes]) -> dict[str, Any]:
    """Return the same for programs."""
    return {
        "nodes": [asdict(row) for row in node_table(times)],
        "stragglers": [asdict(straggler) for straggler in stragglers(times)],
    }
