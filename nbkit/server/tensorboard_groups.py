"""Curves in a TensorBoard: of a run, of a study, or of the store.

Everything here is done by the store's thread (`nbkit.server.store_thread`).
"""

from __future__ import annotations

import contextlib
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbkit.errors import RunNotFoundError, StoreError
from nbkit.server.run_table import find_exactly
from nbkit.store.paths import RunPaths, StudyPaths, is_id, studies_folder
from nbkit.store.record import DAMAGE_ERRORS, read_json
from nbkit.store.stored_runs import StoredRun, list_run_folders

MOST_RUNS = 100
"""TensorBoard reads every one into its memory, and draws a line for each."""
_MOST_LOOKED_AT = 1000
_LONGEST_ARM = 64
_MOST_STUDIES = 100


@dataclass(frozen=True)
class EventFiles:
    """Event files of one run or several."""

    folders: dict[str, Path]
    """By the name with which TensorBoard shows a run."""
    total: int
    """How many runs there are, with curves or without."""


def curves_of_run(run_id: str) -> EventFiles:
    """Return the curves of a run by its name."""
    run = StoredRun(find_exactly(run_id))
    if not are_curves(run.paths.tensorboard):
        message = (
            f"run {run_id} has no TensorBoard files. Launch with tensorboard=True to "
            "write them."
        )
        raise RunNotFoundError(message)
    name = ""
    with contextlib.suppress(*DAMAGE_ERRORS):
        name = _link_name(run.record.get("name") or "")[:_LONGEST_ARM]
    return EventFiles({name or run_id: run.paths.tensorboard}, 1)


def all_curves() -> EventFiles:
    """Return the curves of the newest runs of the store."""
    folders = list_run_folders()
    named = ((folder.name, folder.name) for folder in folders[:_MOST_LOOKED_AT])
    last = f" (newest {_MOST_LOOKED_AT:,} runs)" * (len(folders) > _MOST_LOOKED_AT)
    return EventFiles(_find_folders(f"the store{last}", named), len(folders))


def curves_of_study(study_id: str) -> EventFiles:
    """Return the curves of a study's newest runs, by arm and repeat."""
    runs = study_content(study_id).get("runs") or []
    named = filter(None, map(_curve_name, reversed(runs)))
    return EventFiles(_find_folders(f"study {study_id}", named), len(runs))


def study_content(study_id: str) -> dict[str, Any]:
    """Return what the file of a study of this store says, given its whole id."""
    content = None
    if is_id(study_id):
        content = read_json(StudyPaths(studies_folder() / study_id).study)
    if content is None:
        message = f"study_id={study_id[:80]!r}: no study in the store has this id."
        raise RunNotFoundError(message)
    return content


def _curve_name(run: Any) -> tuple[str, str] | None:
    """Return the name and the id of a run of a study; None if either is damaged."""
    try:
        name = f"{run['arm'][:_LONGEST_ARM]} {run['repeat'] + 1} {run['run_id'][-4:]}"
        return (name, run["run_id"]) if isinstance(run["run_id"], str) else None
    except (KeyError, TypeError):
        return None


def _link_name(name: str) -> str:
    return re.sub(r"[^\w .,=+-]+", "_", name).lstrip(". ")


def list_studies() -> list[dict[str, Any]]:
    """Return id and name of the newest studies, newest first; None is unknown."""
    try:
        ids = [path.name for path in studies_folder().iterdir()]
    except FileNotFoundError:
        return []
    known = sorted(filter(is_id, ids), reverse=True)[:_MOST_STUDIES]
    return [{"study_id": study_id, "name": _name(study_id)} for study_id in known]


def _name(study_id: str) -> str | None:
    try:
        content = read_json(StudyPaths(studies_folder() / study_id).study) or {}
    except StoreError:
        return None  # one that is damaged must not hide the others
    return content.get("name")


def are_curves(folder: Path) -> bool:
    """Return whether a folder exists and TensorBoard can read all its files.

    TensorBoard opens every file: a pipe would hang it, and a link lead it elsewhere.
    """
    try:
        if not stat.S_ISDIR(folder.lstat().st_mode):
            return False
        modes = [path.lstat().st_mode for path in folder.rglob("*")]
    except OSError:
        return False
    return all(stat.S_ISREG(mode) or stat.S_ISDIR(mode) for mode in modes)


def _find_folders(owner: str, named: Iterable[tuple[str, str]]) -> dict[str, Path]:
    folders: dict[str, Path] = {}
    for name, run_id in named:
        try:
            folder = RunPaths(find_exactly(run_id)).tensorboard
        except RunNotFoundError:
            continue  # it was removed, or a link leads out of the store
        if are_curves(folder):
            folders[_link_name(name)] = folder
        if len(folders) == MOST_RUNS:
            break
    if not folders:
        message = (
            f"no run with TensorBoard files in {owner}. Launch with tensorboard=True "
            "to write them."
        )
        raise RunNotFoundError(message)
    return folders
