"""Rows of runs that have finally ended, kept so that a long list is read once.

The index is in each user's cache folder, one for a store and host, and may be deleted
at any time. A row counts only while time, size and inode of both its files are those
that it was made from.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from nbkit.errors import StoreError
from nbkit.store.record import DAMAGE_ERRORS, read_json, write_json
from nbkit.store.user_cache import cache_file

_SCHEMA = 1
_LEAST_RUNS = 200
"""Fewer are read as fast without."""
_SETTLED_SECONDS = 2.0
"""A file that changed less long ago than this may change in the same tick."""

Stamp = tuple[int, ...]
"""Time of change (ns), size and inode of ``submission.json``, then of
``record.json``."""

Row = TypeVar("Row")


def stamp_of(folder: str) -> Stamp | None:
    """Return the stamp of a run's files; None if one is not there."""
    try:
        # Without a Path, and one after the other: of ten thousand runs it shows.
        first = os.stat(folder + "/submission.json")  # noqa: PTH116
        last = os.stat(folder + "/record.json")  # noqa: PTH116
    except OSError:
        return None
    return (
        first.st_mtime_ns,
        first.st_size,
        first.st_ino,
        last.st_mtime_ns,
        last.st_size,
        last.st_ino,
    )


@dataclass
class RunIndex(Generic[Row]):
    """Rows by run id, each with the stamp of its files.

    Parameters
    ----------
    file
        Where they are kept; None keeps them in this process alone.
    rows
        What is known.
    """

    file: Path | None
    rows: dict[str, tuple[Stamp, Row]]

    @classmethod
    def of(cls, runs: Path, make: Callable[..., Row]) -> RunIndex[Row]:
        """Read the index of a store; empty if there is none, or it cannot be read."""
        file = cache_file("runs", str(runs))
        if file is None:
            return cls(None, {})
        rows = {}
        with suppress(StoreError, *DAMAGE_ERRORS):
            found = read_json(file) or {}
            if found.get("schema") == _SCHEMA:
                for run_id, (stamp, values) in found["rows"].items():
                    rows[run_id] = tuple(stamp), make(run_id, *values)
        return cls(file, rows)

    def row(self, run_id: str, stamp: Stamp | None) -> Row | None:
        """Return the row of a run whose files are those of the stamp."""
        known = self.rows.get(run_id)
        return known[1] if known is not None and known[0] == stamp else None

    def keep(
        self,
        ended: Mapping[str, tuple[Stamp, Row]],
        present: Iterable[str],
        values: Callable[[Row], Sequence[str | None]],
    ) -> None:
        """Add rows, and write the index if it is worth a file."""
        settled = time.time_ns() - int(_SETTLED_SECONDS * 1e9)
        new = {
            run_id: (stamp, row)
            for run_id, (stamp, row) in ended.items()
            if max(stamp[0], stamp[3]) < settled
        }
        if not new:
            return
        there = set(present)
        merged = {**self.rows, **new}
        # In one step: another thread may be looking.
        self.rows = {name: it for name, it in merged.items() if name in there}
        if self.file is None or len(self.rows) < _LEAST_RUNS:
            return
        rows = {
            run_id: [stamp, values(row)] for run_id, (stamp, row) in self.rows.items()
        }
        # A cache that cannot be written is none.
        with suppress(OSError, StoreError):
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_json(self.file, {"schema": _SCHEMA, "rows": rows}, 0o600)
