"""`measure`: the read speed of a file or a folder."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from nbkit import statistics
from nbkit.errors import ConfigError
from nbkit.plural import plural
from nbkit.reading import expanded
from nbkit.readspeed import fio, reader
from nbkit.readspeed.cache import (
    PageCacheState,
    check_warm,
    drop_page_cache,
    one_of_each_device,
)
from nbkit.readspeed.meter import Interval, Meter
from nbkit.readspeed.places import block_devices, describe_place
from nbkit.readspeed.temporary_file import temporary_file
from nbkit.readspeed.work import ALIGNMENT_BYTES, Pattern, ReadWork, work_on
from nbkit.statistics import Summary
from nbkit.store.record import utc_now

CacheState: TypeAlias = Literal["cold", "warm"]
ReadEngine: TypeAlias = Literal["auto", "python", "fio"]

# dd bs=512k count=2048, as NetApp's report has it.
_SEQUENTIAL_BYTES = 512 * 2**10
_TOTAL_BYTES = 2**30
_RANDOM_BYTES = 112 * 2**10
"""The mean file of ImageNet has 110 kB; in whole blocks."""
_RANDOM_THREADS = 16

FIO_FROM_BYTES = 2**30
"""Each of fio's threads counts its own time, in milliseconds: of a few, which threads
in memory need, the sum of their rates is not a rate."""

EngineReason: TypeAlias = Literal[
    "requested", "many-files", "small-file", "installed", "not-installed"
]
_ENGINE_REASONS: dict[EngineReason, str] = {
    "requested": "as requested",
    "many-files": "many files are read",
    "small-file": "for less than 1 GiB, fio's time resolution of 1 ms is too coarse",
    "installed": "installed",
    "not-installed": "fio is not installed",
}
_PYTHON = "python"
_ONE_PROCESS_PER_SECOND = 50_000
"""Operations from which Python's lock may hold the Python reader back."""


@dataclass(frozen=True)
class Reading:
    """One repeat of a measurement."""

    started: str
    """Start time in UTC, ISO 8601."""
    seconds: float
    bytes_per_second: float
    operations_per_second: float
    page_cache: PageCacheState
    """State of the page cache right before; after a cold reading, it also says whether
    the bytes came from the device."""
    device_bytes: int | None
    """Bytes that the devices delivered during the reading; None if not counted."""
    intervals: tuple[Interval, ...]
    """Read rate over time, from the counters named in `ReadSpeed.counted_by`."""


@dataclass(frozen=True)
class ReadSpeed:
    """Read speed of a file or files, with every repeat."""

    path: str
    """The file or folder that was passed."""
    what: str
    """What was read, such as ``1 file`` or ``temporary test file``."""
    pattern: Pattern
    cache: CacheState
    engine: str
    """``python`` or fio's version."""
    engine_reason: EngineReason
    """Why this engine was used."""
    operation_bytes: int
    """Size of a read; the last read of a file may be smaller."""
    threads: int
    direct: bool
    num_files: int
    """Files that are read, in whole or in part."""
    total_bytes: int
    """Bytes read in each repeat."""
    num_operations: int
    """Reads in each repeat."""
    storage: dict[str, Any]
    """See `nbkit.readspeed.places.describe_place`."""
    counted_by: str
    """Source of the intervals: ``device nvme0n1p1`` or ``reading process``."""
    readings: tuple[Reading, ...]

    @property
    def bytes_per_second(self) -> Summary:
        """Summary of the repeats, without an interval: they are not independent."""
        rates = [reading.bytes_per_second for reading in self.readings]
        return statistics.summarise(rates, independent=False)

    @property
    def mean_bytes_per_second(self) -> float:
        """Mean of the repeats' rates, as NetApp's report prints it."""
        return sum(r.bytes_per_second for r in self.readings) / len(self.readings)

    @property
    def page_cache(self) -> PageCacheState:
        """The least certain page cache state of all repeats."""
        return min(
            (reading.page_cache for reading in self.readings),
            key=lambda page_cache: (
                page_cache.state != "not proven",
                page_cache.proven,
                page_cache.state == "client cold",
                -1.0
                if page_cache.resident_share is None
                else page_cache.resident_share,
            ),
        )

    @property
    def engine_name(self) -> str:
        """The engine, as a table names it."""
        return "Python reader" if self.engine == _PYTHON else self.engine

    @property
    def engine_in_words(self) -> str:
        """The engine, with a note if it may be slower than the storage."""
        name = self.engine_name
        most = max(reading.operations_per_second for reading in self.readings)
        is_slow = self.engine == _PYTHON and self.threads > 1
        if is_slow and self.cache == "cold" and most > _ONE_PROCESS_PER_SECOND:
            return (
                f"{name}, whose single process may be the bottleneck; fio is faster "
                "for one file"
            )
        return name

    @property
    def engine_reason_in_words(self) -> str:
        """Why this engine was used."""
        return _ENGINE_REASONS[self.engine_reason]

    @property
    def mean_operation_bytes(self) -> float:
        """Mean size of a read."""
        return self.total_bytes / self.num_operations

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> ReadSpeed:
        """Return the read speed that `to_dict` described."""
        readings = tuple(
            Reading(
                **{
                    **reading,
                    "page_cache": PageCacheState(**reading["page_cache"]),
                    "intervals": tuple(
                        Interval(**interval) for interval in reading["intervals"]
                    ),
                }
            )
            for reading in values["readings"]
        )
        return cls(**{**values, "readings": readings})

    def __str__(self) -> str:
        rate = self.bytes_per_second
        return (
            f"{self.path}: {self.pattern}, {self.page_cache}: median "
            f"{rate.median / 1e9:.3g} GB/s, {rate.minimum / 1e9:.3g} to "
            f"{rate.maximum / 1e9:.3g} ({plural(rate.n, 'repeat')}; {self.threads} x "
            f"{self.mean_operation_bytes / 1024:.4g} KiB by {self.engine_in_words}; "
            f"{self.what})"
        )


def measure(
    path: str | os.PathLike[str],
    *,
    files: Sequence[Path] | None = None,
    pattern: Pattern = "sequential",
    cache: CacheState = "cold",
    repeats: int = 5,
    operation_bytes: int | None = None,
    total_bytes: int = _TOTAL_BYTES,
    threads: int | None = None,
    engine: ReadEngine = "auto",
    direct: bool = False,
    on_repeat: Callable[[int], None] | None = None,
    most_seconds: float = math.inf,
) -> ReadSpeed:
    """Read a file, or files, several times, and return the read speed.

    Before every repeat the page cache is put into the requested state, and its actual
    state is recorded. Nothing is written except a test file, if ``path`` is a folder
    and ``files`` is None.

    Parameters
    ----------
    path
        A file; or a folder, in which a test file of ``total_bytes`` is created, and
        removed at the end. If the process is killed, the file remains, as
        ``.nbkit-readspeed-*``.
    files
        Files to read instead, such as those of a data set below ``path``; no test file
        is written.
    pattern
        ``sequential``, like ``dd`` if there is one thread; or ``random``.
    cache
        ``cold``: the files are dropped from the page cache. It is verified that no page
        is left, and that the device delivered at least half of the bytes; otherwise, as
        for a file with holes, the reading is ``not proven``. ``warm``: the same reads
        are done once before.
    repeats
        Number of readings.
    operation_bytes
        Size of one read; None uses 512 KiB, or 112 KiB (about the size of an image)
        with ``random``. To read whole files, pass the size of the largest file.
    total_bytes
        Upper limit of the bytes read in each repeat (default: 1 GiB).
    threads
        Number of threads that read concurrently, each its own part; None uses 1, or 16
        with ``random``. The Python reader runs them in one process, which reads at most
        about 70,000 files per second; fio is faster for one file.
    engine
        ``python`` (nbkit's reader), ``fio``, or ``auto``: fio if it is installed
        and 1 GiB or more of a single file is read.
    direct
        Bypass the page cache (O_DIRECT); for one cold file, if its file system supports
        it.
    on_repeat
        Called before each repeat, with its number, from 0.
    most_seconds
        Time after which no further repeat begins; the first always runs.

    Raises
    ------
    ConfigError
        If an argument cannot be used, or there is no space for the test file.
    PageCacheError
        If ``cache="cold"`` is not possible: pages stay in the page cache, or the file
        system is in memory.
    StoreError
        If the test file cannot be written.

    Examples
    --------
    >>> nbkit.readspeed.measure("/scratch", pattern="random")  # doctest: +SKIP
    """
    place = expanded(path, "path")
    is_random = pattern == "random"
    if operation_bytes is None:
        operation_bytes = _RANDOM_BYTES if is_random else _SEQUENTIAL_BYTES
    if threads is None:
        threads = _RANDOM_THREADS if is_random else 1
    _check(pattern, cache, engine, repeats, operation_bytes, total_bytes, threads)
    if files is not None and not files:
        message = "files=[] is empty. List one or more files, or omit files."
        raise ConfigError(message)
    if direct and cache == "warm":
        message = (
            "direct=True cannot be combined with cache='warm', because direct I/O "
            "bypasses the page cache. Use cache='cold', or direct=False."
        )
        raise ConfigError(message)
    if direct and files is not None and len(files) != 1:
        message = f"direct=True supports 1 file, not {len(files)}. Use direct=False."
        raise ConfigError(message)
    if direct and operation_bytes % ALIGNMENT_BYTES:
        message = (
            f"operation_bytes={operation_bytes} is not a multiple of "
            f"{ALIGNMENT_BYTES}, as direct=True requires. Use a multiple, or "
            "direct=False."
        )
        raise ConfigError(message)
    with ExitStack() as stack:
        paths, what = stack.enter_context(_files_to_read(place, files, total_bytes))
        work = work_on(
            paths,
            pattern,
            operation_bytes=operation_bytes,
            total_bytes=total_bytes,
            threads=threads,
            direct=direct,
        )
        name, reason = _engine(engine, work)
        devices = block_devices(one_of_each_device(list(work.extents)))
        readings: list[Reading] = []
        end = time.monotonic() + most_seconds
        for number in range(repeats):
            if readings and time.monotonic() >= end:
                break
            if on_repeat is not None:
                on_repeat(number)
            readings.append(_read_once(work, cache, name, number, Meter(devices)))
        return ReadSpeed(
            path=str(place),
            what=what,
            pattern=pattern,
            cache=cache,
            engine=name,
            engine_reason=reason,
            operation_bytes=operation_bytes,
            threads=threads,
            direct=direct,
            num_files=len(work.extents),
            total_bytes=work.total_bytes,
            num_operations=work.num_operations,
            storage=describe_place(paths[0]),
            counted_by=Meter(devices).source,
            readings=tuple(readings),
        )


def _check(pattern: str, cache: str, engine: str, repeats: int, *sizes: int) -> None:
    lines = [
        f"{name}={value!r} is unknown. Use one of {', '.join(choices)}."
        for name, value, choices in (
            ("pattern", pattern, ("sequential", "random")),
            ("cache", cache, ("cold", "warm")),
            ("engine", engine, ("auto", "python", "fio")),
        )
        if value not in choices
    ]
    names = ("repeats", "operation_bytes", "total_bytes", "threads")
    lines += [
        f"{name}={value} is below 1. Use 1 or more."
        for name, value in zip(names, (repeats, *sizes), strict=True)
        if value < 1
    ]
    if lines:
        raise ConfigError("\n".join(lines))


@contextmanager
def _files_to_read(
    place: Path, files: Sequence[Path] | None, total_bytes: int
) -> Iterator[tuple[Sequence[Path], str]]:
    """Give what to read, and what it is; a test file is there as long as this lasts."""
    if files is not None:
        yield files, "1 file" if len(files) == 1 else f"{len(files):,} files"
    elif place.is_file():
        yield [place], "1 file"
    else:
        with temporary_file(place, total_bytes) as path:
            yield [path], "temporary test file"


def _engine(requested: ReadEngine, work: ReadWork) -> tuple[str, EngineReason]:
    """Return which engine reads, and why."""
    if requested == "python":
        return _PYTHON, "requested"
    if len(work.files) > 1:
        if requested == "fio":
            message = (
                f"engine='fio' supports 1 file, not {len(work.files)}. Use "
                "engine='python'."
            )
            raise ConfigError(message)
        return _PYTHON, "many-files"
    if requested == "auto" and work.total_bytes < FIO_FROM_BYTES:
        return _PYTHON, "small-file"
    version = fio.fio_version()
    if version is not None:
        return version, "requested" if requested == "fio" else "installed"
    if requested == "fio":
        message = (
            "engine='fio': fio is not installed. Install fio, or use engine='python'."
        )
        raise ConfigError(message)
    return _PYTHON, "not-installed"


def _read_once(
    work: ReadWork, cache: CacheState, engine: str, seed: int, meter: Meter
) -> Reading:
    extents = work.extents
    if cache == "cold":
        page_cache = drop_page_cache(list(extents))
    else:
        # Exactly what is timed: more might push it out again.
        reader.read(work, seed)
        page_cache = check_warm(list(extents), extents)
    started = utc_now()
    with meter:
        if engine == _PYTHON:
            seconds = reader.read(work, seed)
        else:
            seconds = fio.read(work, seed, meter.watch)
    return Reading(
        started=started,
        seconds=seconds,
        bytes_per_second=work.total_bytes / seconds,
        operations_per_second=work.num_operations / seconds,
        page_cache=page_cache.after_reading(meter.bytes_read, work.total_bytes),
        device_bytes=meter.bytes_read,
        intervals=meter.intervals,
    )
