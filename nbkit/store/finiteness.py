"""Divergence of a training (NaN or Inf), determined from a run's files."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from nbkit.reading import LINE_BYTES, open_regular, parse_object
from nbkit.store.nonfinite import NonFinite

_WITHOUT_LOSS = "load"
"""Task whose steps have no loss."""
_BLOCK_BYTES = 1 << 20
_SIGNS = (b'"nonfinite"', b'"loss":null', b'"loss": null')
"""A line without any of these says nothing about it."""

Line = Mapping[str, Any]


class FiniteReading:
    """What the lines of ``metrics.jsonl`` say, taken in their order.

    What a resumed attempt repeats counts from that attempt on.
    """

    def __init__(self) -> None:
        self.lost_step: int | None = None
        """First step whose loss is null: it was infinite or not a number."""
        self.attempt = 0
        self._reported: NonFinite | None = None

    @classmethod
    def of(cls, lines: Iterable[Line]) -> Self:
        """Return what these lines say."""
        reading = cls()
        for line in lines:
            reading.take(line)
        return reading

    def take(self, line: Line) -> None:
        """Take in the next line."""
        kind, step = line["kind"], line.get("step", 0)
        if line.get("attempt", 0) > self.attempt:
            self.attempt = line["attempt"]
            first_step_again = step if kind in ("step", "log") else step + 1
            if self._reported is not None and self._reported.step >= first_step_again:
                self._reported = None
            if self.lost_step is not None and self.lost_step >= first_step_again:
                self.lost_step = None
        if kind == "nonfinite":
            self._reported = self._reported or NonFinite.from_dict(line)
        elif kind == "step" and line["loss"] is None and self.lost_step is None:
            self.lost_step = step

    def found(self, worker: Line) -> NonFinite | None:
        """Return where the run stopped being finite; None if it did not."""
        if worker.get("task") == _WITHOUT_LOSS:
            return None
        reported = self._reported or NonFinite.from_dict(worker.get("nonfinite"))
        if reported is not None and reported.step <= (self.lost_step or reported.step):
            return reported
        return None if self.lost_step is None else NonFinite("loss", self.lost_step)


class FiniteFollower:
    """The same of a file, which may grow: only lines that matter are parsed."""

    def __init__(self, metrics: Path) -> None:
        self._path = metrics
        self._reading = FiniteReading()
        self._offset = 0
        self.has_all = True
        """Whether the last call of `found` came to the end of the file."""

    def found(
        self, worker: Line, limit_seconds: float = float("inf")
    ) -> NonFinite | None:
        """Read what is new, and return where the run stopped being finite.

        After the time limit it reads no more: the next call continues from there.
        """
        self.has_all = True
        if worker.get("task") == _WITHOUT_LOSS:
            return None
        if worker.get("ranks") and "nonfinite" in worker:
            # Written at the end, of all ranks: nothing more can be found.
            return NonFinite.from_dict(worker["nonfinite"])
        self._read(time.monotonic() + limit_seconds)
        return self._reading.found(worker)

    def _read(self, deadline: float) -> None:
        """Read what is new, one block at least."""
        with suppress(FileNotFoundError), open_regular(self._path) as file:
            file.seek(self._offset)
            while True:
                data = file.read(_BLOCK_BYTES)
                if b"\n" not in data and len(data) == _BLOCK_BYTES:
                    data += file.readline(LINE_BYTES)  # longer than a block
                whole = data[: data.rfind(b"\n") + 1]
                if not whole:
                    break
                self._offset += len(whole)
                file.seek(self._offset)
                self._take(whole)
                if time.monotonic() > deadline and len(data) >= _BLOCK_BYTES:
                    self.has_all = False
                    break

    def _take(self, block: bytes) -> None:
        lines = block.splitlines()
        again = b'"attempt":%d,' % self._reading.attempt
        # Almost every block is of one attempt, and finite.
        if not any(sign in block for sign in _SIGNS) and block.count(again) == len(
            lines
        ):
            return
        for line in lines:
            if again not in line or any(sign in line for sign in _SIGNS):
                self._reading.take(parse_object(line))
                again = b'"attempt":%d,' % self._reading.attempt
