"""Which ranks and nodes the others wait for, in the scaling report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from nbkit.launch.run import Run
from nbkit.questions.scaling.nodes import (
    STRAGGLES,
    NodeTimes,
    node_table,
    node_times,
    stragglers,
)
from nbkit.reports.columns import Column, table
from nbkit.reports.parts import Note, Table
from nbkit.statistics import quantities as wording
from nbkit.statistics.quantities import size_label

_MOST_NAMED = 5
_NODES = (
    Column("precision", "arm"),
    Column("size", lambda row: size_label(row.world_size, row.nnodes)),
    Column("node", "node"),
    Column("runs", "runs"),
    Column(
        *("own time per step, ms", "own_seconds"),
        *(lambda seconds: f"{seconds * 1e3:.3g}", "own_seconds"),
    ),
    Column(
        *("vs. median rank", "against_median", "{:.3f}".format),
        "against_median",
    ),
    Column("data wait", "data_wait_share", wording.percent, "data_wait_share"),
    Column(
        *("communication", "communication_share", wording.percent),
        "communication_share",
    ),
    Column(
        *("GPU utilization, whole run", "gpu_utilization_percent"),
        *("{:.0f}%".format, "gpu_utilization_percent"),
    ),
)


def times_of(run: Run) -> NodeTimes | None:
    """Return where the time of a run's ranks went; None if they did not record it."""
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
    """Return which ranks delay the others, the slowest first; nothing if none does."""
    slow = stragglers(times)
    sentences = [straggler.sentence for straggler in slow[:_MOST_NAMED]]
    more = len(slow) - len(sentences)
    if more:
        sentences.append(f"{more} more ranks are at least {STRAGGLES:.0%} slower.")
    return sentences


def ranks_part(times: Sequence[NodeTimes]) -> Table | Note:
    """Return the nodes of the sizes that span them, and who holds the others up.

    On one node that is a few sentences.
    """
    several = [run for run in times if len(run.ranks) > 1]
    sentences = straggler_sentences(several) or [
        f"No rank is {STRAGGLES:.0%} slower than the median rank of its run."
        if several
        else "A single rank has no stragglers."
    ]
    rows = node_table(several)
    if not rows:
        return Note(sentences)
    return table(
        "Measured step time by node",
        _NODES,
        rows,
        [
            "Own time is the step time without exposed communication. A straggler has "
            "the longest own time, and the other ranks wait for it.",
            "GPU utilization is the mean over the whole run, startup included.",
            *sentences,
        ],
    )


def ranks_result(times: Sequence[NodeTimes]) -> dict[str, Any]:
    """Return the same for programs."""
    return {
        "nodes": [asdict(row) for row in node_table(times)],
        "stragglers": [asdict(straggler) for straggler in stragglers(times)],
    }
