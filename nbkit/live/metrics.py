"""`LiveMetrics`: the content of `metrics.jsonl`, followed while it grows."""

from __future__ import annotations

import time
from array import array
from collections import deque
from collections.abc import Iterator
from math import inf, isnan, nan
from pathlib import Path
from statistics import fmean, median
from typing import Any

from nbkit import statistics
from nbkit.errors import StoreError
from nbkit.live.series import Series, Value
from nbkit.reading import LINE_BYTES, open_regular, parse_object
from nbkit.review.facts import RankTimes, update_share
from nbkit.store.metrics import Restarts
from nbkit.store.nonfinite import FiniteReading
from nbkit.store.progress import RATE_STEPS, newest_rate
from nbkit.visible import visible

_BLOCK_BYTES = 1 << 18
"""Read in one go: between two reads of 300 MB other threads of a kernel continue."""
_PAUSE_SECONDS = 0.002
_MOST_NAMES = 100
"""A function may log under any names; so many are kept."""
_MOST_OMITTED = 10_000
"""Of the others, so many are counted."""
_KINDS = ("step", "log", "evaluation", "checkpoint", "allreduce", "inference")
X_NAMES = {
    "bus_bandwidth_gigabytes_per_second": "message_bytes",
    "served_images_per_second": "batch_size",
    "latency_milliseconds": "batch_size",
}
"""What a line runs over, where that is not steps."""
_ACCURACIES = ("top1_accuracy", "mean_auroc")

Line = dict[str, Any]


class LiveMetrics:
    """Numbers and lines of one run; nothing of it grows with the run but its rates.

    Parameters
    ----------
    path
        The file, which need not be there yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._restarts = Restarts()
        self._begin()

    def _begin(self) -> None:
        self._offset = 0
        self._begin_again = False
        self._highest_step = -1
        self._first_t: float | None = None
        self._seconds: float | None = None
        self._attempt = 0
        self.resumed_seconds: list[float] = []
        """When later attempts began, since the run's first value."""
        self._newest: deque[Line] = deque(maxlen=RATE_STEPS)
        self._newest_measured: deque[Line] = deque(maxlen=RATE_STEPS)
        self._rates = array("d")
        self._measured: dict[str, Any] = {}
        self._data_wait_seconds = self._measured_seconds = 0.0
        self._communication_seconds = self._longest_step_seconds = 0.0
        self._measured_images = 0
        self.damaged_lines = 0
        """Lines that are no JSON or lack a value; the others are shown."""
        self.step: int | None = None
        """The newest step, or the last that a function has logged."""
        self.total_steps: int | None = None
        """Of the run, where its steps say so."""
        self.loss: float | None = None
        self.logged: dict[str, float | None] = {}
        """The last value of each name that a function has logged."""
        self.omitted: set[str] = set()
        """Logged names beyond the first hundred."""
        self.updates_skipped: int | None = None
        """Updates that loss scaling left out; None where nothing is scaled."""
        self.evaluation: Line = {}
        """The last one."""
        self.checkpoint_step: int | None = None
        self.finite = FiniteReading()
        """Whether loss, gradients and weights are finite numbers."""
        self.series: dict[str, Series] = {}
        """Lines by name, over steps; ``loss`` and ``images_per_second`` come first."""

    def read(self, limit_seconds: float = float("inf")) -> bool:
        """Read what is new.

        Parameters
        ----------
        limit_seconds
            Return after that time even if there is more.

        Returns
        -------
        bool
            Whether everything that is there was read.

        Raises
        ------
        OSError
            If the file is there and cannot be read.
        """
        deadline = time.monotonic() + limit_seconds
        while self._read_block():
            if time.monotonic() > deadline:
                return False
            time.sleep(_PAUSE_SECONDS)
        return True

    @property
    def images_per_second(self) -> float | None:
        """The rate of the newest measured steps, or the last that a function logged."""
        rate = newest_rate(self._newest_measured)
        return rate or self.logged.get("images_per_second")

    @property
    def rate_steps(self) -> int:
        """Over how many steps `images_per_second` is; 0 if it was logged."""
        return len(self._newest_measured)

    @property
    def data_wait_share(self) -> float | None:
        """Of the time of the measured steps, on rank 0."""
        return statistics.share([self._data_wait_seconds], [self._measured_seconds])

    @property
    def _rate(self) -> float | None:
        """Images over the time of the measured steps."""
        return statistics.share([self._measured_images], [self._measured_seconds])

    @property
    def rank_0(self) -> RankTimes | None:
        """Where the time of the measured steps went on rank 0; None without one."""
        if not self._rates:
            return None
        return RankTimes(
            rank=0,
            steps=len(self._rates),
            total_seconds=self._measured_seconds,
            data_wait_seconds=self._data_wait_seconds,
            communication_seconds=self._communication_seconds,
        )

    @property
    def update_share(self) -> float | None:
        """Part of the newest measured steps that updating the weights takes."""
        return update_share(self._newest_measured)

    @property
    def num_measured(self) -> int:
        """How many steps were measured."""
        return len(self._rates)

    @property
    def accuracy(self) -> tuple[str, float] | None:
        """Name and value of the last evaluation; None without one."""
        for name in _ACCURACIES:
            if self.evaluation.get(name) is not None:
                return name, self.evaluation[name]
        return None

    def measured(self) -> dict[str, Any]:
        """Return images per second over measured steps: n, rate, median and quartiles.

        ``bursts`` says in words that they come in bursts; None if they do not.
        """
        if self._measured.get("n") != len(self._rates):
            # Half a second for a million steps: only when there are more of them.
            rates = self._rates
            low, high = statistics.quartiles(rates) if rates else (None, None)
            middle = median(rates) if rates else None
            self._measured = {
                "n": len(rates),
                "images_per_second": self._rate,
                "median": middle,
                "q25": low,
                "q75": high,
                "bursts": statistics.bursts_in_words(
                    self._rate, middle, self._longest_step_seconds
                ),
            }
        return self._measured.copy()

    def seconds_left(self, total_steps: int | None) -> float | None:
        """Return how long the remaining steps take at the newest steps' pace."""
        if total_steps is None or self.step is None or not self._newest:
            return None
        # The first steps are slow, and those that are measured come in bursts.
        newest = self._newest_measured or self._newest
        seconds = [line["step_time_seconds"] for line in newest]
        return max(0, total_steps - self.step) * fmean(seconds)

    def _read_block(self) -> bool:
        """Read some lines; return whether there may be more."""
        try:
            with open_regular(self._path) as file:
                file.seek(self._offset)
                data = file.read(_BLOCK_BYTES)
                end = data.rfind(b"\n") + 1
                if not end and len(data) == _BLOCK_BYTES:
                    # The line is longer than a block.
                    data += file.readline(LINE_BYTES)
                    end = data.rfind(b"\n") + 1
        except FileNotFoundError:
            return False
        if not end and len(data) > LINE_BYTES:
            message = (
                f"{self._path} is damaged (a line exceeds {LINE_BYTES:,} bytes). "
                "Restore the file, or remove the folder of its run."
            )
            raise StoreError(message)
        self._offset += end
        for text in data[:end].splitlines():
            try:
                line = parse_object(text)
                again = self._restarts.begins(line)
                if again is not None and again <= self._highest_step:
                    # The lines kept so far cannot be taken apart again; whatever else
                    # begins again is noted first.
                    self._begin_again = True
                if not self._begin_again:
                    self._take(line)
            except (ValueError, LookupError, TypeError, ArithmeticError):
                self.damaged_lines += 1
        is_all = len(data) < _BLOCK_BYTES or not end
        if is_all and self._begin_again:
            self._begin()
            return True
        return not is_all

    def _take(self, line: Line) -> None:
        line.setdefault("attempt", 0)
        if self._restarts.replace(line):
            return
        self._highest_step = max(self._highest_step, line["step"])
        self._take_time(line.get("t"))
        attempt = line.get("attempt", 0)
        if attempt > self._attempt and self._seconds is not None:
            self._attempt = attempt
            # As `Series` rounds what follows.
            self.resumed_seconds.append(round(self._seconds, 2))
        self.finite.take(line)
        if line["kind"] in _KINDS:
            getattr(self, f"_take_{line['kind']}")(line)

    def _take_time(self, t: float | None) -> None:
        if t is None:
            self._seconds = None
            return
        self._first_t = t if self._first_t is None else self._first_t
        self._seconds = t - self._first_t

    def _take_step(self, line: Line) -> None:
        # A line that lacks one of them changes nothing.
        number, loss, warmup = line["step"], line["loss"], line["warmup"]
        seconds, waited = line["step_time_seconds"], line["data_wait_seconds"]
        exposed = line["communication_exposed_seconds"]
        rate = line["images"] / seconds
        self.step, self.loss = number, loss
        self.total_steps = line.get("total_steps")
        if "update_skipped" in line:
            skipped = (self.updates_skipped or 0) + bool(line["update_skipped"])
            self.updates_skipped = skipped
        self._newest.append(line)
        if not warmup:
            self._newest_measured.append(line)
            self._rates.append(rate)
            self._data_wait_seconds += waited
            self._measured_seconds += seconds
            self._measured_images += line["images"]
            self._longest_step_seconds = max(self._longest_step_seconds, seconds)
            self._communication_seconds += exposed
        self._add("loss", number, loss)
        self._add("images_per_second", number, rate)

    def _take_log(self, line: Line) -> None:
        for written, value in line["values"].items():
            name = visible(written)
            if name in self.logged or len(self.logged) < _MOST_NAMES:
                self.logged[name] = value
                if not line.get("at_end"):
                    self._add(name, line["step"], value)
            elif len(self.omitted) < _MOST_OMITTED:
                self.omitted.add(name)
        if not line.get("beside_steps"):
            self.step, self.loss = line["step"], self.logged.get("loss")
            self.total_steps = line.get("total_steps", self.total_steps)

    def _take_evaluation(self, line: Line) -> None:
        self.evaluation = line
        if self.accuracy is not None:
            name, value = self.accuracy
            self._add(name, line["step"], value)

    def _take_checkpoint(self, line: Line) -> None:
        self.checkpoint_step = line["step"]

    def _take_allreduce(self, line: Line) -> None:
        timing = statistics.allreduce_timing(line)
        gigabytes = timing.bus_bandwidth_bytes_per_second / 1e9
        self.logged = {
            "message_bytes": timing.message_bytes,
            "bus_bandwidth_gigabytes_per_second": gigabytes,
        }
        self._add("bus_bandwidth_gigabytes_per_second", timing.message_bytes, gigabytes)

    def _take_inference(self, line: Line) -> None:
        [timing] = statistics.latency_timings([line]).values()
        rate, size = timing.images_per_second, timing.batch_size
        milliseconds = 1e3 * timing.p50_seconds
        self.logged = {
            # The best so far, as the run's summary has it.
            "images_per_second": max(rate, self.logged.get("images_per_second") or 0),
            "batch_size": size,
            "latency_milliseconds": milliseconds,
        }
        self._add("served_images_per_second", size, rate)
        self._add("latency_milliseconds", size, milliseconds)

    def _add(self, name: str, x: int, value: float | None) -> None:
        self.series.setdefault(name, Series()).add(x, value, self._seconds)


class StoredCurve(LiveMetrics):
    """Every value of one line, as it is stored; each takes 24 bytes."""

    def __init__(self, path: Path, name: str) -> None:
        self._name = name
        super().__init__(path)

    def _begin(self) -> None:
        super()._begin()
        self._columns = array("d")

    def values(self, first: float = -inf, last: float = inf) -> Iterator[Value]:
        """Yield the values between two x, of what was read."""
        columns = self._columns[:]  # another thread may read on
        for x, t, y in zip(columns[::3], columns[1::3], columns[2::3], strict=True):
            if first <= x <= last:
                yield int(x), None if isnan(t) else t, None if isnan(y) else y

    def _add(self, name: str, x: int, value: float | None) -> None:
        if name == self._name:
            row = (nan if cell is None else cell for cell in (x, self._seconds, value))
            # Not one by one: of a row with a value that is no number, nothing is kept.
            self._columns += array("d", row)


def final_rate(metrics: LiveMetrics) -> float | None:
    """Return the images per second of a run that has ended, as its summary has them."""
    return metrics.measured()["images_per_second"] or metrics.logged.get(
        "images_per_second"
    )
