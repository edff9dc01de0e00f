"""Checkpoints: a folder each, valid only with its mark of completeness.

::

    checkpoints/step_00000120/
        state.pt       rank 0: model, optimizer, scaler, position
        rank_<k>.pt    rank k: random state
        complete.json  rank 0, last: every file and its size

A save writes ``.step_00000120.new`` and renames it when it is complete; one that was
there before is ``.step_00000120.old`` for that moment. A killed or failed save leaves
the checkpoint before it in force, one of the same step too.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from nbkit.errors import ConfigError, RunError, StoreError
from nbkit.reading import retry_io
from nbkit.store.heartbeat import Phase
from nbkit.store.metrics import store_error
from nbkit.store.ownership import make_folder, open_new
from nbkit.store.record import read_json, utc_now, write_json
from nbkit.worker.rank import Rank

SCHEMA = "nbkit.checkpoint/1"
_MOST_PLACES = 5
SHOWN_SECONDS = 120.0
"""What a node has to show what another has written: NFS may take 60 s (acdirmax)."""
_POLL_SECONDS = 0.1
_NAME = re.compile(r"(\.)?step_(\d{8,})(?(1)\.(old|new))")
"""Of folders that a save makes; it leaves all others alone."""
_PLAIN = torch.Tensor | int | float | complex | str | bytes


def save(
    folder: Path,
    step: int,
    state: dict[str, Any],
    rank_state: dict[str, Any],
    rank: int,
    world_size: int,
    barrier: Callable[[], object],
    kept: int,
    *,
    finite: bool | None = None,
) -> Path:
    """Save a checkpoint; called by every rank at the same step."""
    path = folder / f"step_{step:08d}"
    # What a killed save has left there is overwritten: each rank writes the same files.
    staged = folder / f".{path.name}.new"
    try:
        make_folder(staged, folder.parent)
        _write(staged / f"rank_{rank}.pt", rank_state)
        if rank == 0:
            _write(staged / "state.pt", state)
            _raise_unless_loadable(staged / "state.pt", state)
        _sync_folder(folder)
    except OSError as error:
        raise store_error(path, error) from error
    barrier()
    if rank == 0:
        complete = {
            "schema": SCHEMA,
            "step": step,
            "time": utc_now(),
            "world_size": world_size,
            "finite": finite,
            "files": _sizes(staged, world_size),
        }
        write_json(staged / "complete.json", complete)
        try:
            _sync_folder(staged)
            _give_name(staged, path)
        except OSError as error:
            raise store_error(path, error) from error
        _prune(folder, path, kept)
    # No rank may look for it before it has its name.
    barrier()
    return path


def latest(folder: Path) -> Path | None:
    """Return the newest complete checkpoint whose files are all there, or None."""
    return next(iter(_complete(folder)), None)


def agreed(
    rank: Rank, group: dist.ProcessGroup | None, limit_seconds: float = SHOWN_SECONDS
) -> Path | None:
    """Return the newest complete checkpoint that rank 0 finds; called by all ranks."""
    # Another node may still show a folder as it was: ranks that each choose the newest
    # would continue from different steps.
    folder = rank.paths.checkpoints
    newest = latest(folder) if rank.rank == 0 else None
    if group is None:
        return newest
    chosen = [newest and newest.name]
    dist.broadcast_object_list(chosen, src=0, group=group)
    (name,) = chosen
    if name is None:
        return None
    _wait_for(folder / name, rank, limit_seconds)
    return folder / name


def step_of(path: Path) -> int:
    """Return the optimizer steps done at a checkpoint, from its folder's name."""
    name = _NAME.fullmatch(path.name)
    assert name is not None, path
    return int(name[2])


def load(
    path: Path, rank: int, world_size: int | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the shared state and this rank's own part, all on the host."""
    complete = _read_complete(path)
    if complete is None or not _is_complete(path):
        message = f"checkpoint {path} is incomplete. Resume again to use an older one."
        raise StoreError(message)
    if world_size is None:
        world_size = dist.get_world_size() if dist.is_initialized() else 1
    written_by = complete["world_size"]
    if written_by != world_size:
        message = (
            f"{path} was written by {written_by} ranks, but this run has {world_size}. "
            "Launch a new run."
        )
        raise RunError(message)
    return _load(path / "state.pt"), _load(path / f"rank_{rank}.pt")


def _load(path: Path) -> dict[str, Any]:
    return retry_io(lambda: torch.load(path, map_location="cpu", weights_only=True))


def _write(path: Path, state: dict[str, Any]) -> None:
    """Write to a temporary file, force it to the disk, give it its name."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with open_new(temporary) as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except (OSError, RuntimeError) as error:
        temporary.unlink(missing_ok=True)
        # torch covers a failed write with a RuntimeError about its archive; one
        # without a failed write below it has nothing to do with the store.
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise
    _sync_folder(path.parent)


def _raise_unless_loadable(path: Path, state: dict[str, Any]) -> None:
    """Raise now, not at a resume, for what a checkpoint must not hold."""
    unsafe_globals = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    if unsafe_globals:
        places = list(islice(_unsupported_values(state, "state"), _MOST_PLACES))
        where = f" ({', '.join(places)})" if places else ""
        message = (
            f"state contains {', '.join(unsafe_globals)}{where}, which cannot be "
            "restored. Save tensors, numbers, text, dicts and lists, and the state of "
            "random generators."
        )
        raise ConfigError(message)


def _unsupported_values(value: Any, place: str) -> Iterator[str]:
    """Yield where a state holds something else than tensors, numbers and text."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _unsupported_values(item, f"{place}[{key!r}]")
    elif isinstance(value, list | tuple | set):
        for number, item in enumerate(value):
            yield from _unsupported_values(item, f"{place}[{number}]")
    elif value is not None and not isinstance(value, _PLAIN):
        yield f"{place} is a {type(value).__name__}"


def with_python_numbers(value: Any) -> Any:
    """Return a value with Python's numbers where it has NumPy's."""
    if "numpy" in sys.modules and isinstance(value, sys.modules["numpy"].generic):
        return value.item()
    if type(value) is dict:
        return {key: with_python_numbers(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(with_python_numbers, value))
    return value


def _sync_folder(folder: Path) -> None:
    """Force the names in a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sizes(path: Path, world_size: int) -> dict[str, int]:
    """Return the size in bytes of every file that a checkpoint consists of."""
    names = ["state.pt", *(f"rank_{rank}.pt" for rank in range(world_size))]
    missing = [name for name in names if not (path / name).exists()]
    if missing:
        message = (
            f"{path} lacks {missing[0]}: rank 0 does not see {len(missing)} of the "
            f"{len(names)} checkpoint files. Put the store (NBKIT_HOME) on a file "
            "system that all nodes share."
        )
        raise StoreError(message)
    return {name: (path / name).stat().st_size for name in names}


def _give_name(staged: Path, path: Path) -> None:
    """Rename a complete checkpoint; it takes the place of one of the same step."""
    former = path.with_name(f".{path.name}.old")
    if path.exists():
        shutil.rmtree(former, ignore_errors=True)
        path.rename(former)
    staged.rename(path)
    _sync_folder(path.parent)


def _folders(folder: Path) -> list[Path]:
    """Return what saves have made here; a copy by another name is not theirs."""
    return [path for path in folder.glob("*step_*") if _NAME.fullmatch(path.name)]


def _complete(folder: Path) -> list[Path]:
    """Return the complete checkpoints, the newest first, one of each step."""
    # A former one counts where its successor did not get its name.
    by_step = {
        step_of(path): path
        for path in sorted(_folders(folder))  # former ones first: they begin with a dot
        if path.suffix != ".new" and _is_complete(path)
    }
    return [by_step[step] for step in sorted(by_step, reverse=True)]


def _is_complete(path: Path) -> bool:
    return retry_io(lambda: _has_all_files(path))


def _has_all_files(path: Path) -> bool:
    complete = read_json(path / "complete.json")
    return complete is not None and all(
        (path / name).exists() and (path / name).stat().st_size == size
        for name, size in complete["files"].items()
    )


def _wait_for(path: Path, rank: Rank, limit_seconds: float) -> None:
    """Wait until this node shows a checkpoint that is complete on another."""
    began = time.monotonic()
    while not _is_complete(path):
        waited_seconds = time.monotonic() - began
        if waited_seconds > limit_seconds:
            host = socket.gethostname()
            message = (
                f"checkpoint {path} of rank 0 is not complete on node {host} after "
                f"{waited_seconds:.0f} s (limit {limit_seconds:.0f} s). Put the store "
                "(NBKIT_HOME) on a file system that all nodes share, or resume again."
            )
            raise StoreError(message)
        rank.beat(0, Phase.STARTING)
        time.sleep(_POLL_SECONDS)


def _is_finite(path: Path) -> bool:
    """Return whether nothing says of a complete checkpoint that it is not finite."""
    return (_read_complete(path) or {}).get("finite") is not False


def _read_complete(path: Path) -> dict[str, Any] | None:
    return retry_io(lambda: read_json(path / "complete.json"))


def _prune(folder: Path, newest: Path, kept: int) -> None:
    """Remove complete checkpoints in excess of ``kept``, and what saves have left."""
    complete = [p for p in _complete(folder) if step_of(p) < step_of(newest)]
    keep = {newest, *complete[: kept - 1]}
    if not any(map(_is_finite, keep)):
        keep.update([*filter(_is_finite, complete)][:1])
    for path in _folders(folder):
        if step_of(path) <= step_of(newest) and path not in keep:
            # What cannot be removed now is tried again after the next checkpoint; it
            # must not end the training.
            shutil.rmtree(path, ignore_errors=True)
