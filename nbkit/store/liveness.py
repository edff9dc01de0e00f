"""Liveness of a run whose processes are not visible from this host."""

from __future__ import annotations

import datetime
import os
import time
from contextlib import suppress
from typing import Any

from nbkit.store.ownership import was_submitted_elsewhere
from nbkit.store.paths import RunPaths
from nbkit.store.processes import ProcessIdentity

STALE_SECONDS = 300.0
"""After so long without a sign it is unknown whether a run continues; its supervisor
gives one every 30 s."""


def is_supervised(paths: RunPaths, supervisor: dict[str, Any]) -> bool | None:
    """Return whether a run's supervisor is alive; None if that cannot be known here."""
    process = ProcessIdentity.from_dict(supervisor)
    alive = process.is_alive()
    if alive is None and process.is_here and is_own_run(paths):
        # /proc hides other users' processes only: one of them has that pid now.
        return False
    return alive


def is_own_run(paths: RunPaths) -> bool:
    """Return whether this user launched a run, or resumed one that was imported."""
    with suppress(OSError):
        is_own = paths.submission.stat().st_uid == os.geteuid()
        return is_own and not was_submitted_elsewhere(paths.submission, paths.imported)
    return False


def is_stale(paths: RunPaths) -> bool:
    """Return whether no process has written in a run's folder for long."""
    return _last_heartbeat(paths) < time.time() - STALE_SECONDS


def unknown_text(paths: RunPaths, supervisor: dict[str, Any]) -> str:
    """Return why it is unknown whether a run continues, and what to do."""
    since = datetime.datetime.fromtimestamp(_last_heartbeat(paths), datetime.UTC)
    is_known = supervisor.keys() >= {"pid", "host"}
    process = "process {pid} of {host}" if is_known else "its supervisor"
    return (
        f"no heartbeat since {since:%Y-%m-%d %H:%M:%S} UTC, and "
        f"{process.format_map(supervisor)} is not visible from this host or container. "
        "If the run has ended, call resume(force=True), or launch it again if it has "
        "no checkpoint"
    )


def _last_heartbeat(paths: RunPaths) -> float:
    """Return when supervisor, ranks or samplers last wrote, in Unix time."""
    newest = 0.0
    for path in (paths.record, paths.submission, paths.metrics, *paths.system_files()):
        with suppress(OSError):
            newest = max(newest, path.stat().st_mtime)
    return newest
