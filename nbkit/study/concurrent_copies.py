"""A copy of the data for each job, where jobs are not to share their storage."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from nbkit.errors import ConfigError
from nbkit.store.metrics import store_error

__all__ = ["copies_of", "copy_data"]


def copies_of(data: str, folders: Sequence[str], jobs: int) -> tuple[Path, ...]:
    """Return where the copy of each job will be; nothing is written.

    Parameters
    ----------
    data
        Folder that is to be copied.
    folders
        Where the copies go: one folder for all, or one for each job, such as a disk
        of its own.
    jobs
        How many copies.

    Raises
    ------
    ConfigError
        If the data is no folder, or there are too many or too few folders.
    """
    source = Path(data)
    if not source.is_absolute() or not source.is_dir():
        message = (
            f"storage=separate copies a folder for each job, and data={data!r} is "
            "none; name a folder of images or packed files, or use storage=shared."
        )
        raise ConfigError(message)
    if len(folders) not in (1, jobs):
        message = (
            f"copies names {len(folders)} folders for the copies of {jobs} jobs; name "
            f"1 folder for all of them, or {jobs}."
        )
        raise ConfigError(message)
    each = [*folders] * jobs if len(folders) == 1 else [*folders]
    return tuple(
        Path(folder).expanduser().absolute() / f"{source.name}-job-{number}"
        for number, folder in enumerate(each, start=1)
    )


def copy_data(data: str, copies: Sequence[Path]) -> list[str]:
    """Make the copies that are not there yet; say which there are.

    A copy has its name only once it is whole. It stays when all is done.

    Raises
    ------
    StoreError
        If a copy cannot be written.
    """
    said = []
    for copy in copies:
        if copy.is_dir():
            said.append(f"{copy} is there already and is used as it is.")
            continue
        unfinished = copy.with_name(f"{copy.name}.unfinished")
        try:
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(unfinished, ignore_errors=True)
            shutil.copytree(data, unfinished)
            unfinished.rename(copy)
        except shutil.Error as error:
            raise store_error(copy, OSError(str(error))) from error
        except OSError as error:
            raise store_error(copy, error) from error
        said.append(f"{copy} is a copy of {data}; remove it when you are done.")
    return said or ["All jobs read the same data: nothing is copied."]
