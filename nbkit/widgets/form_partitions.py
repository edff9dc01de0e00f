"""The partitions that the form offers for a Slurm run, with their free GPUs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from nbkit.launch.slurm.partitions import Partition, partitions
from nbkit.store.slurm import SlurmSilentError

_GOOD_SECONDS = 15.0
"""An answer is reused for this long: pages ask often, and a controller serves all."""

NOT_ASKED: dict[str, Any] = {"text": "Asking Slurm …", "partitions": []}
"""What is shown before the first answer."""


class PartitionLook:
    """Asks Slurm in a separate thread: a controller may hang."""

    def __init__(self, show: Callable[[dict[str, Any]], None]) -> None:
        self._show = show
        self._lock = threading.Lock()
        self._under_way: threading.Thread | None = None
        self._asked_at = float("-inf")

    def start(self) -> None:
        """Ask, unless an answer is under way or a moment old."""
        with self._lock:
            now = time.monotonic()
            is_asking = self._under_way is not None and self._under_way.is_alive()
            if is_asking or now - self._asked_at < _GOOD_SECONDS:
                return
            self._asked_at = now
            self._under_way = threading.Thread(
                target=self._look, name="form-partitions", daemon=True
            )
            self._under_way.start()

    def _look(self) -> None:
        try:
            offer = describe_partitions(partitions())
        except SlurmSilentError as error:
            text = f"Partitions are unknown: {error}. Enter a partition manually."
            offer = {"text": text, "partitions": []}
        self._show(offer)


def describe_partitions(listed: list[Partition]) -> dict[str, Any]:
    """Return what the form shows of the partitions."""
    gpus = [count for partition in listed for count in partition.gpus.values()]
    free = sum(count.free for count in gpus)
    text = f"{len(listed)} in this cluster"
    if len(listed) == 1 and gpus:
        text += f"; {free} of {sum(count.total for count in gpus)} GPUs free"
    return {"text": f"{text}.", "partitions": [_row(partition) for partition in listed]}


def _row(partition: Partition) -> dict[str, Any]:
    default = " (default)" if partition.is_default else ""
    is_unlimited = partition.time_limit == "infinite"
    limit = "no time limit" if is_unlimited else f"time limit {partition.time_limit}"
    counts = partition.gpus.items()
    kinds = [
        f"{count.free} of {count.total} {'GPUs' if kind == 'gpu' else kind}"
        for kind, count in counts
    ]
    nodes = f"{partition.nodes_idle} of {partition.nodes_total} nodes idle"
    has_room = any(count.free for _, count in counts)
    return {
        "name": partition.name,
        "title": f"{partition.name}{default}",
        "load": f"{nodes}, {limit}" if partition.is_up else f"starts no jobs, {limit}",
        "gpus": f"{', '.join(kinds)} free" if kinds else "no GPUs",
        "is_free": partition.is_up
        and (has_room if kinds else partition.nodes_idle > 0),
    }
