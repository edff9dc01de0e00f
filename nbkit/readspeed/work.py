"""The read operations of a measurement: the same for every engine."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from nbkit.errors import ConfigError
from nbkit.plural import plural

Pattern: TypeAlias = Literal["sequential", "random"]

Operation: TypeAlias = tuple[int, int, int]
"""Number of the file, offset and length in bytes."""

ALIGNMENT_BYTES = 4096
"""Of offsets and lengths, where the page cache is passed by (O_DIRECT)."""


@dataclass(frozen=True)
class ReadWork:
    """Operations of several threads; no byte is read twice.

    One file is divided into equal parts, one per thread. Each thread reads its part
    from front to back, or its blocks in random order.
    """

    files: tuple[Path, ...]
    pattern: Pattern
    operation_bytes: int
    """Of one operation; less at the end of each of several files."""
    threads: int
    direct: bool
    parts: tuple[tuple[Operation, ...], ...]
    """What each thread reads, in the order of the files."""

    @property
    def total_bytes(self) -> int:
        """Bytes of all operations."""
        return sum(length for part in self.parts for _, _, length in part)

    @property
    def num_operations(self) -> int:
        """Operations of all threads."""
        return sum(map(len, self.parts))

    @property
    def extents(self) -> dict[Path, int]:
        """End of the last operation in each file that is read, in bytes."""
        ends: dict[int, int] = {}
        for part in self.parts:
            for number, offset, length in part:
                ends[number] = max(ends.get(number, 0), offset + length)
        return {self.files[number]: ends[number] for number in sorted(ends)}

    def in_order(self, seed: int | str) -> Iterator[list[Operation]]:
        """Yield the operations of each thread, in order."""
        for number, part in enumerate(self.parts):
            operations = list(part)
            if self.pattern == "random":
                random.Random(f"{seed}/{number}").shuffle(operations)
            yield operations


def work_on(
    files: Sequence[Path],
    pattern: Pattern,
    *,
    operation_bytes: int,
    total_bytes: int,
    threads: int,
    direct: bool,
) -> ReadWork:
    """Return the operations that read some files."""
    sizes = _sizes(files)
    if len(files) == 1:
        # Whole operations alone, so that every engine reads the same.
        count = min(sizes[0], total_bytes) // operation_bytes
        operations = [(0, n * operation_bytes, operation_bytes) for n in range(count)]
    else:
        operations = list(_file_reads(sizes, pattern, operation_bytes, total_bytes))
    per_thread = len(operations) // threads
    if per_thread == 0:
        held = sum(sizes)
        more = f" and {plural(len(files) - 1, 'more file')}" if len(files) > 1 else ""
        have, remedy = f"{files[0]}{more}: {held:,} bytes", "larger files"
        if total_bytes < held:
            have, remedy = f"total_bytes={total_bytes:,}", "more bytes"
        fewer = ", fewer threads" if threads > 1 else ""
        message = (
            f"{have}, but one operation per thread ({plural(threads, 'thread')}) "
            f"requires {threads * operation_bytes:,} bytes. Use {remedy}{fewer} or "
            "smaller operations."
        )
        raise ConfigError(message)
    starts = range(0, per_thread * threads, per_thread)
    parts = tuple(tuple(operations[start : start + per_thread]) for start in starts)
    return ReadWork(tuple(files), pattern, operation_bytes, threads, direct, parts)


def _sizes(files: Sequence[Path]) -> list[int]:
    """Return the sizes of files; one with several names has none by the others."""
    # What is read a second time comes from memory.
    seen: dict[tuple[int, int], Path] = {}
    sizes = []
    for path in files:
        status = path.stat()
        first = seen.setdefault((status.st_dev, status.st_ino), path)
        # Some file systems number no file, or several alike.
        is_again = (
            status.st_ino
            and first is not path
            and (status.st_nlink > 1 or first.resolve() == path.resolve())
        )
        sizes.append(0 if is_again else status.st_size)
    return sizes


def _file_reads(
    sizes: Sequence[int], pattern: Pattern, operation_bytes: int, total_bytes: int
) -> Iterator[Operation]:
    numbers = list(range(len(sizes)))
    if pattern == "random":
        random.Random(0).shuffle(numbers)
    remaining_bytes = total_bytes
    for number in numbers:
        for offset in range(0, sizes[number], operation_bytes):
            length = min(operation_bytes, sizes[number] - offset)
            if length > remaining_bytes:
                return
            remaining_bytes -= length
            yield number, offset, length
