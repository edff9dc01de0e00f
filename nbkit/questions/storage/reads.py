"""Sequential and random reads of every place, without decoding."""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from nbkit.config.fields import LABEL_FAULT_FIELDS
from nbkit.datasets.find import find
from nbkit.questions.storage.places import Place
from nbkit.questions.storage.planning import StoragePlan
from nbkit.readspeed.measuring import CacheState, ReadSpeed, measure
from nbkit.readspeed.temporary_file import temporary_file
from nbkit.readspeed.work import ALIGNMENT_BYTES, Pattern
from nbkit.reports.parts import Table
from nbkit.studies.idle_machine import Wait, wait_before

_PATTERNS: tuple[Pattern, ...] = ("sequential", "random")
_FILES_DRAWN = 20_000
"""Of a data set of many files: to ask a server for the size of a million takes long."""


@dataclass(frozen=True)
class Reads:
    """Read throughput of every place."""

    speeds: tuple[tuple[str, ReadSpeed], ...]
    """By name of the place."""
    wait: Wait | None = None
    """Wait for an idle machine, if requested."""

    @property
    def facts(self) -> dict[str, Any]:
        """Stored values in the study's plan, as JSON values."""
        return {
            "reads": [
                {"place": place, "speed": speed.to_dict()}
                for place, speed in self.speeds
            ],
            **({"wait_before_reads": asdict(self.wait)} if self.wait else {}),
        }

    @classmethod
    def of(cls, plan: Mapping[str, Any]) -> Reads:
        """Return the reads stored in a study's plan."""
        return cls(
            tuple(
                (read["place"], ReadSpeed.from_dict(read["speed"]))
                for read in plan.get("reads", [])
            ),
            Wait(**stored) if (stored := plan.get("wait_before_reads")) else None,
        )

    @property
    def table(self) -> Table:
        """Every place's rates."""
        speeds = [speed for _, speed in self.speeds]
        return Table(
            "Measured reads without a loader",
            [
                *("place", "reads", "page cache at start", "GB/s, median"),
                *("range", "mean", "repeats", "reads/s", "read size"),
                *("threads", "engine"),
            ],
            [_cells(place, speed) for place, speed in self.speeds],
            self._notes,
            {
                "bytes_per_second": [speed.bytes_per_second.median for speed in speeds],
                "mean_bytes_per_second": [
                    speed.mean_bytes_per_second for speed in speeds
                ],
                "operation_bytes": [speed.mean_operation_bytes for speed in speeds],
                "total_bytes": [speed.total_bytes for speed in speeds],
            },
        )

    @property
    def _notes(self) -> list[str]:
        reasons = dict.fromkeys(
            f"{place}: {speed.page_cache}"
            for place, speed in self.speeds
            if speed.cache == "cold"
        )
        engines = dict.fromkeys(
            f"{place}: engine {speed.engine_in_words} ({speed.engine_reason_in_words})"
            for place, speed in self.speeds
        )
        return [
            *([str(self.wait)] if self.wait else []),
            *(f"{reason}." for reason in reasons),
            *(f"{engine}." for engine in engines),
            *dict.fromkeys(map(_in_order, self.speeds)),
            "Repeats are consecutive, so the range is shown instead of a CI. NetApp "
            "reports the mean of five repeats.",
            "Cold: no page of the files is in this machine's page cache; caches of "
            "disks, controllers and hypervisors are unknown.",
        ]


def _in_order(place_speed: tuple[str, ReadSpeed]) -> str:
    """Return what sequential reads are at a place."""
    place, speed = place_speed
    if speed.num_files == 1:
        how = "512 KiB per read, like dd"
    else:
        how = "file by file, at most 512 KiB per read"
    return f"{place}: sequential reads use one thread, {how}."


def _cells(place: str, speed: ReadSpeed) -> list[str]:
    rate = speed.bytes_per_second
    operations = sum(reading.operations_per_second for reading in speed.readings)
    proven = ", proven" if speed.page_cache.proven else ""
    return [
        place,
        speed.pattern,
        f"{speed.page_cache.name}{proven}",
        f"{rate.median / 1e9:.3g}",
        f"{rate.minimum / 1e9:.3g} to {rate.maximum / 1e9:.3g}",
        f"{speed.mean_bytes_per_second / 1e9:.3g}",
        f"{rate.n}",
        f"{operations / len(speed.readings):,.0f}",
        f"{speed.mean_operation_bytes / 1024:,.0f} KiB",
        f"{speed.threads}",
        speed.engine_name,
    ]


def prepare(plan: StoragePlan) -> StoragePlan:
    """Read every place, and return the plan with the results."""
    reads = read(plan)
    limit = plan.preparation_seconds
    limited = {} if math.isinf(limit) else {"read_limit_seconds": limit}
    return replace(plan, prepared={**plan.prepared, **limited, **reads.facts})


def read(plan: StoragePlan) -> Reads:
    """Read every place of a plan, cold and warm, and show the progress.

    With a time limit, each measurement gets an equal share of the remaining time.

    Raises
    ------
    PageCacheError
        If files cannot be dropped from the page cache.
    StoreError
        If a test file cannot be written.
    """
    wait = wait_before(plan.arms.values(), plan.wait_for_idle)
    speeds: list[tuple[str, ReadSpeed]] = []
    size_bytes = plan.prepared["read_bytes"]
    rules = {name: plan.parameters[name] for name in LABEL_FAULT_FIELDS}
    end = time.monotonic() + plan.preparation_seconds
    count = sum(len(_PATTERNS) * len(_caches(place)) for place in plan.places)
    for place in plan.places:
        with _to_read(place, size_bytes, rules) as files:
            for pattern in _PATTERNS:
                for cache in _caches(place):
                    left_seconds = end - time.monotonic()
                    speed = measure(
                        place.folder,
                        files=files,
                        pattern=pattern,
                        cache=cache,
                        repeats=plan.prepared["read_repeats"],
                        operation_bytes=_operation_bytes(place, pattern, files),
                        total_bytes=size_bytes,
                        engine=plan.parameters.read_engine,
                        most_seconds=left_seconds / (count - len(speeds)),
                    )
                    speeds.append((place.name, speed))
                    sys.stdout.write(f"{_progress_line(place, speed)}\n")
                    sys.stdout.flush()
    return Reads(tuple(speeds), wait)


def _caches(place: Place) -> tuple[CacheState, ...]:
    """Return how the page cache is at the start of a read: memory is never cold."""
    return ("warm",) if place.storage["kind"] == "memory" else ("cold", "warm")


@contextmanager
def _to_read(
    place: Place, size_bytes: int, rules: Mapping[str, Any]
) -> Iterator[list[Path]]:
    """Give what to read: files of a data set, or a test file as long as this lasts."""
    if place.is_ours:
        with temporary_file(Path(place.folder), size_bytes) as path:
            yield [path]
    else:
        yield _own_files(place, rules)


def _progress_line(place: Place, speed: ReadSpeed) -> str:
    what = "a temporary test file" if place.is_ours else speed.what
    rate = speed.bytes_per_second.median / 1e9
    return (
        f"{place.name}: {what}, {speed.pattern}, {speed.page_cache.name}: {rate:.3g} "
        f"GB/s by {speed.engine_in_words}"
    )


def _own_files(place: Place, rules: Mapping[str, Any]) -> list[Path]:
    """Return files of a data set, drawn from all where there are very many."""
    listing = find(place.sources[0].data, **rules)
    names = listing.files
    if len(names) > _FILES_DRAWN:
        names = sorted(random.Random(0).sample(names, _FILES_DRAWN))
    return [path for name in names if (path := listing.root / name).exists()]


def _operation_bytes(
    place: Place, pattern: Pattern, files: Sequence[Path]
) -> int | None:
    """Return how much a read takes: at random an image, in whole blocks."""
    if pattern == "sequential":
        return None
    source = place.sources[0]
    if not place.is_ours and source.files >= source.images:
        return max(path.stat().st_size for path in files)
    return math.ceil(source.bytes_per_image / ALIGNMENT_BYTES) * ALIGNMENT_BYTES
