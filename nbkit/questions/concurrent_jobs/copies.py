"""A copy of the data for each job, for separate storage."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from nbkit.errors import ConfigError
from nbkit.plural import few
from nbkit.reading import expanded
from nbkit.store.metrics import store_error


def copies_of(data: str, folders: Sequence[str], jobs: int) -> tuple[Path, ...]:
    """Return the path of each job's copy, without writing anything."""
    source = Path(data)
    if not source.is_absolute() or not source.is_dir():
        message = (
            f"storage=separate requires a folder to copy, but data={data!r} is not a "
            "folder. Use a folder of images or packed files, or storage=shared."
        )
        raise ConfigError(message)
    if len(folders) not in (1, jobs):
        message = (
            f"copies has {len(folders)} folders for {jobs} jobs. Use 1 folder for all "
            f"jobs, or {jobs} folders."
        )
        raise ConfigError(message)
    folders_by_job = [*folders] * jobs if len(folders) == 1 else [*folders]
    copies = tuple(
        expanded(folder, "copies").resolve() / f"{source.name}-job-{number}"
        for number, folder in enumerate(folders_by_job, start=1)
    )
    for copy in copies:
        if copy.is_relative_to(source.resolve()):
            message = (
                f"copies={str(copy.parent)!r} is data={data!r} or inside it, so copies "
                "would become part of the data. Use a folder outside of the data."
            )
            raise ConfigError(message)
    return copies


def copy_data(data: str, copies: Sequence[Path]) -> dict[Path, bool]:
    """Make the copies that are missing; return for each whether it is new.

    A copy has its name only once it is whole. It stays when all is done.
    """
    is_new: dict[Path, bool] = {}
    for copy in copies:
        if copy.is_dir():
            _refuse_other_data(data, copy)
            is_new[copy] = False
            continue
        try:
            _copy(data, copy)
        except shutil.Error as error:
            raise store_error(copy, OSError(str(error))) from error
        except OSError as error:
            raise store_error(copy, error) from error
        is_new[copy] = True
    return is_new


def _copy(data: str, copy: Path) -> None:
    copy.parent.mkdir(parents=True, exist_ok=True)
    # Another process may be making the same copy: each writes a separate folder.
    prefix = f"{copy.name}.unfinished-"
    unfinished = Path(tempfile.mkdtemp(prefix=prefix, dir=copy.parent))
    try:
        # Its folders may be read-only then, and stay where they are.
        shutil.copytree(
            data, unfinished, dirs_exist_ok=True, ignore_dangling_symlinks=True
        )
        try:
            unfinished.rename(copy)
        except OSError:
            if not copy.is_dir():
                raise
            _refuse_other_data(data, copy)  # the other process was first
    finally:
        # Also when it is interrupted: half a copy only fills the disk.
        shutil.rmtree(unfinished, ignore_errors=True)


def _refuse_other_data(data: str, copy: Path) -> None:
    source, there = _files(Path(data)), _files(copy)
    if source != there:
        message = (
            f"{copy} exists, but is not a copy of {data} (files that differ: "
            f"{few(sorted(dict(source ^ there)))}). Remove {copy}, or list another "
            "folder in copies."
        )
        raise ConfigError(message)


def _files(folder: Path) -> set[tuple[str, int]]:
    """Return name and size of every file below a folder."""
    return {
        (str(path.relative_to(folder)), path.stat().st_size)
        # A class may be a link to another disk: a copy has what it leads to.
        for root, _, names in os.walk(folder, followlinks=True)
        for path in (Path(root, name) for name in names)
        if path.is_file()
    }
