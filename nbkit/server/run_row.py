"""A row of the list of runs, part by part: each may be damaged alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nbkit.store.paths import RunPaths
from nbkit.store.processes import hostname
from nbkit.store.progress import total_steps
from nbkit.store.record import RunState, iso, job_nodes, unix_seconds
from nbkit.store.stored_runs import StoredRun
from nbkit.visible import visible

Row = dict[str, Any]


def empty_row(paths: RunPaths) -> Row:
    """Return what is known of a run of which nothing can be read."""
    return {
        "run_id": paths.run_id,
        "name": None,
        "task": None,
        "state": str(RunState.LOST),
        "cause": None,
        "started": None,
        "ended": None,
        "step": None,
        "total_steps": None,
        "images_per_second": None,
        "loss": None,
        "nonfinite": None,
        "devices": [],
        "queue": None,
        "num_nodes": 0,
        "imported_from": None,
        "notebook": None,
        "study_id": None,
        "folder": None,
        "folder_path": str(paths.root.absolute()),
        "tensorboard": False,
        "own": False,
    }


def cause_of(run: StoredRun, state: RunState) -> Row:
    """Return why a run did not finish, or why that is unknown."""
    with_cause = RunState.FAILED, RunState.LOST, RunState.STOPPED, RunState.UNKNOWN
    if state not in with_cause:
        return {}
    message = (run.cause or {}).get("message")
    return {"cause": message and visible(message, lines=True)}


def name_of(record: Row, submission: Row) -> Row:
    """Return a run's name, of which every character can be seen."""
    name = record.get("name") or submission.get("name")
    return {"name": name and visible(name)}


def origin_of(run: StoredRun) -> Row:
    """Return the host from which a run was imported."""
    host = run.imported_from
    return {"imported_from": host and visible(host)}


def times_of(record: Row) -> Row:
    """Return when a run started and ended."""
    times = record.get("time") or {}
    started, ended = times.get("started"), times.get("ended")
    for moment in filter(None, (started, ended)):
        unix_seconds(moment)  # a damaged time raises here
    return {"started": started, "ended": ended}


def planned(config: Row) -> Row:
    """Return a run's task, and its steps if it has a number of them."""
    return {"task": config.get("task", "train"), "total_steps": total_steps(config)}


def devices_of(record: Row) -> Any:
    """Return what a run holds or held."""
    return (record.get("launch") or {}).get("devices") or []


def queue_of(run: StoredRun) -> Row:
    """Return a run's place among those that wait, and for what."""
    queue = run.queue
    if queue is None:
        return {}
    unix_seconds(queue["since"])  # a damaged time raises here
    names = ("position", "length", "reason", "since")
    reason = queue["reason"] and visible(queue["reason"])
    return {"queue": {name: queue[name] for name in names} | {"reason": reason}}


def nodes_of(paths: RunPaths, record: Row) -> list[Path]:
    """Return the files of samples of a run's present nodes other than this host."""
    nodes = job_nodes(record)
    return [
        file
        for file in paths.system_files()
        if file.stem != hostname() and (not nodes or file.stem in nodes)
    ]


def num_nodes(paths: RunPaths, record: Row) -> Row:
    """Return how many other nodes a run has now."""
    return {"num_nodes": len(nodes_of(paths, record))}


def last_heartbeat(paths: RunPaths, begun: bool) -> Row:
    """Return when a run without an end has written something for the last time.

    If its newest attempt has not begun, what is there is of the attempt before.
    """
    own = (paths.record, paths.metrics) if begun else ()
    files = [path for path in own if path.exists()]
    # For a job that never began, other processes have written last.
    files = files or [path for path in (paths.stop, paths.submission) if path.exists()]
    newest = max((file.stat().st_mtime for file in files), default=None)
    if newest is None:
        return {}
    return {"ended": iso(newest)}
