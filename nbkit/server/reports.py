"""Pages of studies' reports: made on request, and kept until a run changes."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbkit.errors import RunError, StoreError
from nbkit.reading import file_stamp, read_file
from nbkit.server.child import REFUSED, how_it_ended
from nbkit.server.tensorboard_groups import study_content
from nbkit.store.ownership import is_of_others
from nbkit.store.paths import RunPaths, StudyPaths, is_id, runs_folder, studies_folder

REPORT_COMMAND = ("-m", "nbkit.server.report_process")
_LONGEST_SECONDS = 120.0
_PAGE_BYTES = 64 << 20
_MOST_PAGES = 4
"""So many are kept in memory; with charts each takes some 100 kB."""

_Stamp = tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True)
class StudyFiles:
    """What a report is made of, as of now."""

    stamp: _Stamp
    """Times and sizes of the files."""
    page: bytes | None
    """The page that `nbkit.report` has saved since they last changed."""


class Reports:
    """Pages of reports: made by a process of their own, and kept until a run changes.

    Parameters
    ----------
    command
        The process that makes one, after ``python -P``.
    limit_seconds
        How long it may take.
    """

    def __init__(
        self,
        command: tuple[str, ...] = REPORT_COMMAND,
        limit_seconds: float = _LONGEST_SECONDS,
    ) -> None:
        self._command = [sys.executable, "-P", *command]
        self._limit_seconds = limit_seconds
        self._pages: dict[str, tuple[_Stamp, bytes]] = {}
        self._making = asyncio.Lock()
        """Held by the one process that makes a report."""

    async def page(self, study_id: str, study: StudyFiles) -> bytes:
        """Return the page of a study; raise `RunError` with why there is none."""
        page = study.page or self._cached(study_id, study.stamp)
        if page is not None:
            return page
        async with self._making:
            page = self._cached(study_id, study.stamp) or await self._make(study_id)
            self._pages[study_id] = study.stamp, page
            while len(self._pages) > _MOST_PAGES:
                del self._pages[next(iter(self._pages))]
            return page

    def _cached(self, study_id: str, stamp: _Stamp) -> bytes | None:
        kept = self._pages.get(study_id)
        if kept is None or kept[0] != stamp:
            return None
        self._pages[study_id] = self._pages.pop(study_id)  # now the newest
        return kept[1]

    async def _make(self, study_id: str) -> bytes:
        process = await asyncio.create_subprocess_exec(
            *self._command, study_id, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
        )
        try:
            async with asyncio.timeout(self._limit_seconds):
                page, words = await process.communicate()
        except TimeoutError:
            message = (
                f"The report was not ready after {self._limit_seconds:g} s. In a "
                f"terminal, run nbkit report {study_id}"
            )
            raise RunError(message) from None
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        text = words.decode(errors="replace").strip()
        if process.returncode == REFUSED:
            raise RunError(text)
        if process.returncode:
            last = text.splitlines()[-1:] or [how_it_ended(process.returncode)]
            message = (
                f"The report failed ({last[0][:300]}). To see the full error, run in a "
                f"terminal: nbkit report {study_id}"
            )
            raise RunError(message)
        return page


def study_files(study_id: str) -> StudyFiles:
    """Return what the report of a study is made of; called by the store's thread."""
    content = study_content(study_id)
    paths = StudyPaths(studies_folder() / study_id)
    files = [paths.study, *_records(content.get("runs") or [])]
    stamp = tuple(map(file_stamp, files))
    page: bytes | None = None
    with suppress(FileNotFoundError, StoreError):
        saved = paths.root / "report.html"
        changed_ns = max((each[1] for each in stamp if each), default=0)
        # The page of a run that was removed is made again.
        is_newest = None not in stamp and saved.stat().st_mtime_ns > changed_ns
        # What came in a bundle, or others can write, was not made by this user.
        if is_newest and not is_of_others(paths.imported, [paths.root, saved]):
            page = read_file(saved, _PAGE_BYTES)
    return StudyFiles(stamp, page)


def _records(runs: list[Any]) -> Iterator[Path]:
    for run in runs:
        run_id = run.get("run_id") if isinstance(run, dict) else None
        if isinstance(run_id, str) and is_id(run_id):
            yield RunPaths(runs_folder() / run_id).record
