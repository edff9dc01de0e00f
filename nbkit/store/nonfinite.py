"""Divergence of a training (NaN or Inf): one definition for its writer and readers."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self

from nbkit.reading import LINE_BYTES, open_regular, parse_object

_WITHOUT_LOSS = "load"
"""Task whose steps have no loss."""
_BLOCK_BYTES = 1 << 20
_SIGNS = (b'"nonfinite"', b'"loss":null', b'"loss": null')
"""A line without any of these says nothing about it."""

Line = Mapping[str, Any]


@dataclass(frozen=True)
class NonFinite:
    """The first step at which loss, gradients or weights were not finite.

    Running statistics of batch normalization count as weights.

    Steps that GradScaler skips while it lowers the loss scale do not count: they leave
    the weights unchanged.
    """

    what: Literal["loss", "gradients", "weights", "evaluation loss"]
    step: int
    """Step at which it was detected, counted from 1. The cause of a non-finite loss may
    be the weight update of the step before."""
    after_step: int | None = None
    """Last step at which everything was known to be finite, if it is not the one before
    ``step``; None if ``step`` is exact."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any] | None) -> Self | None:
        """Return what ``worker.json`` or a line of ``metrics.jsonl`` says, if any."""
        if not values:
            return None
        return cls(values["what"], values["step"], values.get("after_step"))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        if self.after_step is None:
            return f"{self.what} not finite at step {self.step}"
        between = f"between step {self.after_step + 1} and step {self.step}"
        return f"{self.what} not finite {between}"


class FiniteReading:
    """What the lines of ``metrics.jsonl`` say, taken in their order."""

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
        is_of_step = kind != "returned" and not line.get("beside_steps")
        if line.get("attempt", 0) > self.attempt and is_of_step:
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

    def first_nonfinite(self, worker: Line) -> NonFinite | None:
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
        """Whether the last call of `first_nonfinite` came to the end of the file."""

    def first_nonfinite(
        self, worker: Line, limit_seconds: float = float("inf")
    ) -> NonFinite | None:
        """Read what is new, and return where the run stopped being finite."""
        self.has_all = True
        if worker.get("task") == _WITHOUT_LOSS:
            return None
        if worker.get("ranks") and "nonfinite" in worker:
            # Written at the end, of all ranks: nothing more can be found.
            return NonFinite.from_dict(worker["nonfinite"])
        self._read(time.monotonic() + limit_seconds)
        return self._reading.first_nonfinite(worker)

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
