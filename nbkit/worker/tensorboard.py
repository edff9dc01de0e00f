"""TensorBoard's event files of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nbkit.store.ownership import make_folder
from nbkit.worker.rank import Rank


class TensorBoard:
    """Writes numbers into the run's folder; imported with the first of them."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._writer: Any = None

    def write(self, values: Mapping[str, float | None], step: int) -> None:
        """Write the numbers of a step; None is left out."""
        if self._writer is None:
            from torch.utils.tensorboard.writer import SummaryWriter

            purge = step if self._rank.attempt else None
            folder = self._rank.paths.tensorboard
            make_folder(folder)
            self._writer = SummaryWriter(str(folder), purge_step=purge, flush_secs=5)
            self._writer.is_of_nbkit = True  # for nbkit.worker.trackers
        for name, value in values.items():
            if value is not None:
                self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Write what is left."""
        if self._writer is not None:
            self._writer.close()
