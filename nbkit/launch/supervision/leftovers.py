"""Processes that a run left running, and their termination.

Killing a process group or a tree of children does not reach all of them: ranks lead
their own sessions, and the orphans of a killed process have a new parent. Every
process of a run carries ``NBKIT_RUN_ID`` in its environment instead, and every rank
records its pid and start time before it does anything else. Processes of a copy of the
run, in another store, name another folder in ``NBKIT_RUN_FOLDER``; those of a job that
a rank has submitted are in a job other than that of ``NBKIT_JOB``. README.md has a
table of which of them end with a run.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbkit.errors import StoreError
from nbkit.launch.supervision.ranks import collect_orphans
from nbkit.store.liveness import is_supervised
from nbkit.store.ownership import imported_from, what_others_own
from nbkit.store.paths import RunPaths, runs_folder
from nbkit.store.processes import (
    RUN_FOLDER_VARIABLE,
    RUN_ID_VARIABLE,
    ProcessIdentity,
    is_cleaner,
    is_of_another_job,
    kill,
)
from nbkit.store.record import RunState, read_json, report_corruption
from nbkit.store.stored_runs import list_run_folders
from nbkit.telemetry.processes import parent_of

_LEFTOVER_SECONDS = 5.0
_PARTS_OF_A_RANK = (b"nbkit.worker", b"nbkit.launch", b"multiprocessing")


@dataclass(frozen=True)
class Leftover:
    """A process of a run whose supervisor has exited."""

    run_id: str
    process: ProcessIdentity
    is_zombie: bool
    """Whether it is a zombie: it has exited, but its parent has not waited for it."""
    ended: bool
    """Whether it was killed; for a zombie, whether it is gone."""


def marked_processes() -> Iterator[tuple[str, str, ProcessIdentity]]:
    """Yield (run id, folder, process) for every process of a run, not of its jobs."""
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            environment = _environment(int(entry.name))
            run_id = environment.get(RUN_ID_VARIABLE)
            if run_id and not is_of_another_job(environment):
                folder = environment.get(RUN_FOLDER_VARIABLE, "")
                yield run_id, folder, ProcessIdentity.of(int(entry.name))
        except OSError:
            # It ended meanwhile, or it is another user's.
            continue


def descendants(run_id: str) -> set[ProcessIdentity]:
    """Return what descends from this process, the supervisor of a run.

    Once a rank has ended, this process is the parent of what it has detached, also of
    what was started without the run's variables. Another run that a rank has launched,
    or its job, is left out with all that it has started.
    """
    children: dict[int, list[int]] = {}
    for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):  # noqa: PTH208
        if parent := parent_of(pid):
            children.setdefault(parent.parent_pid, []).append(pid)
    processes: set[ProcessIdentity] = set()
    waiting = children.get(os.getpid(), [])
    while waiting:
        pid = waiting.pop()
        try:
            environment = _environment(pid)
            own_id = environment.get(RUN_ID_VARIABLE, run_id)
            is_job = RUN_ID_VARIABLE in environment and is_of_another_job(environment)
            process = ProcessIdentity.of(pid)
            if own_id == run_id and not is_job and process.is_alive():
                processes.add(process)
                waiting += children.get(pid, [])
        except OSError:
            continue  # it has ended, or is another user's
    return processes


def _environment(pid: int) -> dict[str, str]:
    """Return the variables with which a process was started."""
    variables = os.fsdecode(Path(f"/proc/{pid}/environ").read_bytes()).split("\0")
    return {name: value for name, _, value in (row.partition("=") for row in variables)}


def is_elsewhere(folder: str, paths: RunPaths) -> bool:
    """Tell whether a process of that folder belongs to a copy of a run."""
    if folder in ("", str(paths.root)):
        return False
    try:
        return not paths.root.samefile(folder)
    except FileNotFoundError:
        return False  # the store was moved, or a container has it at another place
    except OSError:
        return True  # what cannot be known is not ended


def processes_of_run(
    paths: RunPaths,
    sessions: Set[int] | None = None,
    adopted: Set[ProcessIdentity] = frozenset(),
) -> list[ProcessIdentity]:
    """Return the run's processes on this host: by marker and by the ranks' own files.

    Zombies have no environment left; they are found by the ranks' files. With
    `sessions`, those of its ranks, without what these have detached from them. The
    supervisor itself knows which processes it has `adopted`, by `descendants`.
    """
    marked, elsewhere = set(adopted), set()
    for run_id, folder, process in marked_processes():
        if run_id == paths.run_id:
            marked.add(process)
            if is_elsewhere(folder, paths):
                elsewhere.add(process.pid)
    identities = filter(None, map(read_json, _own_process_files(paths)))
    ranks = list(map(ProcessIdentity.from_dict, identities))
    if sessions is not None:
        inside = {process for process in marked if _session(process.pid) in sessions}
        outside = {process for process in marked - inside if process.pid != os.getpid()}
        # What cleans up after them is waited for, unless others need it still.
        is_alone = all(is_cleaner(process.pid) for process in outside)
        marked = marked if is_alone else inside
    processes = marked.union(rank for rank in ranks if rank.exists())
    # A copied folder has the files of the ranks, too.
    mine = (process for process in processes if process.pid not in elsewhere)
    return sorted(mine, key=lambda process: process.pid)


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None  # it has ended


def _own_process_files(paths: RunPaths) -> list[Path]:
    """Return where a run's ranks say who they are; empty if others may say it."""
    files = paths.process_files()
    if imported_from(paths.imported) is not None:
        return []
    parents = {folder for file in files for folder in (file.parent, file.parent.parent)}
    with report_corruption(paths.root):
        foreign_file = what_others_own([paths.root, paths.logs, *parents, *files])
    return files if foreign_file is None else []


def end_processes(processes: list[ProcessIdentity], timeout_seconds: float = 5) -> bool:
    """Kill processes, each checked by its start time; return whether all are gone.

    One that stays a zombie, since nothing collects it, is gone, too. What removes
    shared memory ends once the others have.
    """
    for process in processes:
        if not is_cleaner(process.pid):
            kill(process)
    deadline = time.monotonic() + timeout_seconds
    while any(process.is_alive() for process in processes):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def end_leftovers(
    find: Callable[[], Set[ProcessIdentity]],
) -> tuple[list[dict[str, Any]], Set[ProcessIdentity]]:
    """End what ranks have left, until nothing is found, and collect it."""
    deadline = time.monotonic() + _LEFTOVER_SECONDS
    commands: dict[ProcessIdentity, str] = {}
    while remaining := find():
        if time.monotonic() > deadline:
            break
        new = remaining - commands.keys()
        commands |= {process: _command(process.pid) for process in new}
        end_processes([*remaining], deadline - time.monotonic())
        collect_orphans()
    collect_orphans()
    ended = [
        {"pid": process.pid, "command": command}
        for process, command in commands.items()
        if command and process not in remaining
    ]
    if ended:
        names = ", ".join(
            f"{process['command']} (pid {process['pid']})" for process in ended
        )
        sys.stderr.write(
            f"killed at the end of the run: {names}. Processes in a separate session "
            "(start_new_session=True, setsid) continue after a finished run.\n"
        )
        sys.stderr.flush()
    return ended, remaining


def _command(pid: int) -> str:
    """Return the name of a program; empty of a part of a rank."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
        name = Path(f"/proc/{pid}/comm").read_bytes()
    except OSError:
        return ""
    # A zombie has no command line.
    if not line or is_cleaner(pid) or any(part in line for part in _PARTS_OF_A_RANK):
        return ""
    return name.decode(errors="replace").strip()


def sweep(run_id: str | None = None) -> list[Leftover]:
    """End leftover processes of runs whose supervisor has exited.

    Parameters
    ----------
    run_id
        Id of the run to sweep; None sweeps all runs of this store on this host.

    Returns
    -------
    list of Leftover
        The leftover processes; usually empty.

    Raises
    ------
    StoreError
        If the files of run `run_id` are damaged; with None, damaged runs are skipped.
    """
    if run_id is None:
        run_ids = {run for run, *_ in marked_processes()}
        folders = [runs_folder() / run for run in sorted(run_ids)]
        folders += [path for path in list_run_folders()[:200] if path not in folders]
    else:
        folders = [runs_folder() / run_id]
    leftovers: list[Leftover] = []
    for paths in map(RunPaths, folders):
        try:
            with report_corruption(paths.root):
                if _supervisor_is_gone(paths):
                    leftovers += _end_run(paths)
        except StoreError:
            # One damaged run must not keep the others' processes.
            if run_id is not None:
                raise
    return leftovers


def _end_run(paths: RunPaths) -> list[Leftover]:
    # What a run had detached and left when it ended is no longer its own.
    files = _own_process_files(paths)
    state = (read_json(paths.record) or {}).get("state")
    sessions = None
    if state is not None and RunState(state).is_final:
        ranks = map(ProcessIdentity.from_dict, filter(None, map(read_json, files)))
        sessions = {rank.pid for rank in ranks if rank.is_here}
    processes = processes_of_run(paths, sessions)
    # Among them may be the supervisor of a process that resumes the run meanwhile.
    if _is_being_resumed(paths) or not _supervisor_is_gone(paths):
        return []
    zombies = {process for process in processes if not process.is_alive()}
    end_processes(processes)
    return [
        Leftover(
            paths.run_id,
            process,
            is_zombie=process in zombies,
            # What was ended right now is a zombie until its parent collects it.
            ended=not (process.exists() if process in zombies else process.is_alive()),
        )
        for process in processes
    ]


def _is_being_resumed(paths: RunPaths) -> bool:
    """Return whether another process holds an attempt that it has not submitted yet."""
    submitted = (read_json(paths.submission) or {}).get("attempt", 0)
    numbers = (path.name for path in paths.logs.glob("*") if path.name.isdecimal())
    newest = max(map(int, numbers), default=0)
    if newest <= submitted:
        return False
    try:
        holder = ProcessIdentity.from_dict(read_json(paths.resumer(newest)) or {})
    except (StoreError, LookupError, TypeError, ValueError):
        return False  # A restart has none.
    return holder != ProcessIdentity.of() and holder.is_alive() is True


def _supervisor_is_gone(paths: RunPaths) -> bool:
    """Return whether the run had a supervisor, and has none any more."""
    # None of a job of Slurm's, which ends what is left of it by itself.
    submission = read_json(paths.submission) or read_json(paths.record) or {}
    job = submission.get("job") or (submission.get("launch") or {}).get("job")
    supervisor = None if job else submission.get("supervisor")
    if supervisor is None:
        return False
    return is_supervised(paths, supervisor) is False
