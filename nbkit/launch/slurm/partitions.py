"""Partitions of a Slurm cluster, and how many of their GPUs are free.

References
----------
https://slurm.schedmd.com/sinfo.html
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from nbkit.store.slurm import ask_slurm

LIMIT_SECONDS = 10.0
_FIELDS = ("Partition", "Available", "Time", "NodeList", "StateCompact")
_GRES_FIELDS = ("Gres", "GresUsed")

_IDLE, _SHARED = {"idle"}, {"alloc", "comp", "mix", "plnd"}
_NO_ANSWER = "*"
"""After the state of a node that does not answer; other marks are harmless."""
_GPUS = re.compile(r"(?<!\w)gpu(?::([^:(),]+|\(null\)))?:(\d+)")
"""Such as ``gpu:a100:8(S:0-1)``, ``gpu:2``, ``gpu:(null):1(IDX:0)``."""


@dataclass
class GpuCount:
    """GPUs of one type in a partition."""

    free: int = 0
    """Of nodes that take jobs now."""
    total: int = 0


@dataclass
class Partition:
    """One partition, as sinfo tells it."""

    name: str
    is_default: bool
    is_up: bool
    """Whether it starts jobs now."""
    time_limit: str
    """In Slurm's form, such as ``1-00:00:00``, or ``infinite``."""
    nodes_idle: int = 0
    """Nodes on which nothing runs, and which take jobs."""
    nodes_total: int = 0
    gpus: dict[str, GpuCount] = field(default_factory=dict)
    """By type, such as ``a100``; ``gpu`` where the cluster names no type."""


def partitions() -> list[Partition]:
    """Return the partitions of this machine's cluster, the default one first."""
    by_name: dict[str, Partition] = {}
    for row in _rows():
        name, available, time_limit, _, state, gres, used = row
        partition = by_name.setdefault(
            name.rstrip("*"),
            Partition(
                name.rstrip("*"), name.endswith("*"), available == "up", time_limit
            ),
        )
        _add_node(partition, state, _gpus(gres), _gpus(used))
    return sorted(by_name.values(), key=lambda p: (not p.is_default, p.name))


def _add_node(
    partition: Partition, state: str, gpus: dict[str, int], used: dict[str, int]
) -> None:
    word = re.sub(r"\W+$", "", state)
    takes_jobs = word in _IDLE | _SHARED and _NO_ANSWER not in state
    partition.nodes_total += 1
    partition.nodes_idle += word in _IDLE and takes_jobs
    for kind, total in gpus.items():
        count = partition.gpus.setdefault(kind, GpuCount())
        count.total += total
        if takes_jobs:
            count.free += max(0, total - used.get(kind, 0))


def _gpus(gres: str) -> dict[str, int]:
    """Return how many GPUs of each type a node's ``Gres`` names."""
    counts: dict[str, int] = {}
    for kind, count in _GPUS.findall(gres):
        name = kind if kind not in ("", "(null)") else "gpu"
        counts[name] = counts.get(name, 0) + int(count)
    return counts


def _rows() -> Iterable[list[str]]:
    """Return a row for every node of every partition."""
    fields = (*_FIELDS, *_GRES_FIELDS)
    # A mark after a field replaces a width, which would cut it off.
    columns = ",".join(f"{name}:|" for name in fields)
    arguments = ("--noheader", "--Node", f"--Format={columns}")
    text = ask_slurm("sinfo", *arguments, limit_seconds=LIMIT_SECONDS)
    rows = (line.split("|") for line in text.splitlines())
    return [
        [part.strip() for part in row[: len(fields)]]
        for row in rows
        if len(row) > len(fields)
    ]
