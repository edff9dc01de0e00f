"""Current load of a run's nodes, from the newest sample of each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nbkit.live.devices import own_rows, sample_of
from nbkit.reading import read_end

MOST_NODES = 32
"""More are counted, but not read: a page asks again every few seconds."""
_TAIL_BYTES = 1 << 17
"""The last sample of a node with 16 GPUs and their processes fits in several times."""

NodeRow = dict[str, Any]


def newest_by_node(files: Sequence[Path], uuids: Sequence[str]) -> list[NodeRow]:
    """Return the newest values of nodes."""
    own = frozenset(uuids)
    return [_newest(file, own) for file in files]


def _newest(file: Path, own: frozenset[str]) -> NodeRow:
    sample = _last_sample(file)
    host = sample.get("host") or {}
    return {
        "node": file.stem,
        "t": sample.get("t"),
        "cpu_percent": host.get("cpu_percent"),
        "memory_used_bytes": host.get("memory_used_bytes"),
        "gpus": list(own_rows(sample, own, file.stem)),
        "gpus_unavailable": sample.get("gpus_unavailable"),
    }


def _last_sample(path: Path) -> NodeRow:
    data, _ = read_end(path, _TAIL_BYTES)
    for line in reversed(data[: data.rfind(b"\n") + 1].splitlines()):
        for sample in sample_of(line):
            return sample
    return {}
