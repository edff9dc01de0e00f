"""TensorBoard's event files of a run."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from nbkit.store.ownership import make_folder
from nbkit.worker.rank import Rank


class TensorBoard:
    """Writes numbers into the run's folder; imported with the first of them."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._writer: Any = None
        self._is_missing = False

    def write(self, values: Mapping[str, float | None], step: int) -> None:
        """Write the numbers of a step; None is left out."""
        if self._is_missing:
            return
        if self._writer is None:
            try:
                from torch.utils.tensorboard.writer import SummaryWriter
            except ImportError as error:
                self._is_missing = True
                sys.stderr.write(f"nbkit: no TensorBoard files are written: {error}.\n")
                return
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
