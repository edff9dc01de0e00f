"""TensorBoard's event files of a run."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

from nbkit.store.ownership import make_folder
from nbkit.worker.rank import Rank

_FLUSH_SECONDS = 5


class TensorBoard:
    """Writes numbers into the run's folder; imported with the first of them."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._writer: Any = None
        self._is_missing = False
        self._has_begun = False

    def write(
        self,
        values: Mapping[str, float | None],
        step: int,
        *,
        beside_steps: bool = False,
    ) -> None:
        """Write the numbers of a step, or beside the steps; None is left out."""
        if self._is_missing:
            return
        try:
            # Not torch's writer: with it, a script's first number imports torch.
            from tensorboard.compat.proto import event_pb2, summary_pb2
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError as error:
            self._is_missing = True
            sys.stderr.write(
                f"nbkit: no TensorBoard files are written: {error}. Install "
                "tensorboard, or set tensorboard=False.\n"
            )
            return

        events: Any = event_pb2  # generated: types are not known
        summaries: Any = summary_pb2

        def add(**content: Any) -> None:
            event = events.Event(wall_time=time.time(), step=step, **content)
            self._writer.add_event(event)

        if self._writer is None:
            folder = self._rank.paths.tensorboard
            make_folder(folder, self._rank.paths.root)
            self._writer = EventFileWriter(str(folder), flush_secs=_FLUSH_SECONDS)
        if not self._has_begun and not beside_steps:
            self._has_begun = True
            # TensorBoard drops what attempts before wrote from this step on. It takes
            # the first such event for that of the first attempt.
            add(session_log=events.SessionLog(status=events.SessionLog.START))
        scalars = [
            summaries.Summary.Value(tag=name, simple_value=float(value))
            for name, value in values.items()
            if value is not None
        ]
        add(summary=summaries.Summary(value=scalars))

    def close(self) -> None:
        """Write what is left."""
        if self._writer is not None:
            self._writer.close()
