"""Text cache that a user's processes on a host share.

They are in the user's cache folder, one SQLite file for a kind and host, which may be
deleted at any time. Where there is no such folder, or its file system has no locks,
nothing is kept, and each process does its own work.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import platformdirs

from nbkit.errors import NbkitError
from nbkit.store.processes import boot_id, hostname

_TABLE = (
    "CREATE TABLE IF NOT EXISTS texts (key BLOB, name TEXT, stamp TEXT, text TEXT, "
    "PRIMARY KEY (key, name)) WITHOUT ROWID"
)


class Cache:
    """Texts with stamps, by key and name; this process alone has it until its exit.

    Parameters
    ----------
    kind
        Which file of the user's.
    wait_seconds
        How long another process may have it; after that this one finds and keeps
        nothing.
    """

    def __init__(self, kind: str, wait_seconds: float) -> None:
        self._connection: sqlite3.Connection | None = None
        # Without a home folder there is no path, and a cache is not worth an error.
        with suppress(OSError, RuntimeError, sqlite3.OperationalError):
            folder = platformdirs.user_cache_path("nbkit", appauthor=False)
            self._open(folder / f"{kind}-{hostname()}.sqlite", wait_seconds)

    def _open(self, path: Path, wait_seconds: float) -> None:
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
        # Not if it is there: closing any descriptor of it gives up its locks.
        if not path.exists():
            path.touch(0o600)
        connection = sqlite3.connect(path, wait_seconds, isolation_level=None)
        try:
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(_TABLE)
        except sqlite3.DatabaseError as error:
            connection.close()
            if not isinstance(error, sqlite3.OperationalError):
                path.unlink()  # it is damaged
        else:
            self._connection = connection

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.execute("COMMIT")
            self._connection.close()

    def read(self, key: str) -> dict[str, tuple[str, str]]:
        """Return stamp and text of each name."""
        query = "SELECT name, stamp, text FROM texts WHERE key = ?"
        if self._connection is not None:
            with suppress(sqlite3.Error):
                rows = self._connection.execute(query, [os.fsencode(key)])
                return {name: (stamp, text) for name, stamp, text in rows}
        return {}

    def write(
        self,
        key: str,
        texts: Mapping[str, tuple[str, str]],
        gone: Iterable[str] = (),
    ) -> None:
        """Keep stamps and texts by name, and forget what is gone."""
        rows = [(os.fsencode(key), name, *texts[name]) for name in texts]
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.executemany(
                    "REPLACE INTO texts VALUES (?, ?, ?, ?)", rows
                )
                self._connection.executemany(
                    "DELETE FROM texts WHERE key = ? AND name = ?",
                    [(os.fsencode(key), name) for name in gone],
                )


@dataclass(frozen=True)
class Answer:
    """What was answered."""

    text: str
    asked_at: float
    """On this host's monotonic clock."""
    asked_time: float
    """The same moment in Unix time, to compare with what others have written down."""
    ended_at: float
    """On the monotonic clock."""
    trouble: str | None = None
    """Why there is no answer, in words."""

    def is_new(self, began: float, max_age_seconds: float) -> bool:
        """Return whether it does for a question that began then."""
        if self.trouble is not None:
            return self.ended_at > began  # only if that has waited for it
        return self.asked_at > began - max_age_seconds


def ask_shared(
    key: str,
    ask: Callable[[], str],
    *,
    max_age_seconds: float,
    limit_seconds: float,
    error: type[NbkitError],
) -> Answer:
    """Return another process's answer if it is new enough, else ask.

    Those that come meanwhile wait for the answer, or for why there is none.
    """
    began = time.monotonic()
    with Cache("answers", limit_seconds) as cache:
        answer = _last_answer(cache, key)
        if answer is None or not answer.is_new(began, max_age_seconds):
            answer = _asked(ask, error)
            text = json.dumps(asdict(answer))
            cache.write(key, {"answer": (boot_id(), text)})
    if answer.trouble is not None:
        raise error(answer.trouble)
    return answer


def _last_answer(cache: Cache, key: str) -> Answer | None:
    """Return the last answer of this boot of the host: its monotonic clock restarts."""
    stamp, text = cache.read(key).get("answer", (None, ""))
    with suppress(TypeError, ValueError):  # of another version of nbkit
        return Answer(**json.loads(text)) if stamp == boot_id() else None
    return None


def _asked(ask: Callable[[], str], error: type[NbkitError]) -> Answer:
    text, trouble = "", None
    asked_at, asked_time = time.monotonic(), time.time()
    try:
        text = ask()
    except error as raised:
        trouble = str(raised)
    return Answer(text, asked_at, asked_time, time.monotonic(), trouble)
