"""Checkpoints: a folder each, which counts only once it says that it is complete.

::

    checkpoints/step_00000120/
        state.pt       rank 0: model, optimizer, scaler, position
        rank_<k>.pt    rank k: random state
        complete.json  rank 0, last: every file and its size
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from nbkit.errors import StoreError
from nbkit.store.metrics import store_error
from nbkit.store.record import read_json, utc_now, write_json

__all__ = ["latest", "load", "random_state", "restore_random_state", "save"]

SCHEMA = "nbkit.checkpoint/1"


def save(
    folder: Path,
    step: int,
    state: dict[str, Any],
    rank_state: dict[str, Any],
    rank: int,
    world_size: int,
    barrier: Callable[[], None],
    kept: int,
) -> Path:
    """Save a checkpoint; called by every rank at the same step.

    Parameters
    ----------
    folder
        The run's checkpoints.
    step
        Optimizer steps done.
    state
        What all ranks share; rank 0 writes it.
    rank_state
        This rank's own part.
    rank, world_size
        Of the caller.
    barrier
        Waits for every rank.
    kept
        Complete checkpoints to keep; older ones are removed.

    Returns
    -------
    Path
        The checkpoint's folder.

    Raises
    ------
    StoreError
        If it cannot be written; earlier checkpoints stay as they are.
    """
    path = folder / f"step_{step:08d}"
    try:
        path.mkdir(parents=True, exist_ok=True)
        _write(path / f"rank_{rank}.pt", rank_state)
        if rank == 0:
            _write(path / "state.pt", state)
    except OSError as error:
        raise store_error(path, error) from error
    barrier()
    if rank == 0:
        sizes = {file.name: file.stat().st_size for file in path.glob("*.pt")}
        complete = {
            "schema": SCHEMA,
            "step": step,
            "time": utc_now(),
            "world_size": world_size,
            "files": sizes,
        }
        write_json(path / "complete.json", complete)
        _prune(folder, path, kept)
    barrier()
    return path


def latest(folder: Path) -> Path | None:
    """Return the newest complete checkpoint whose files are all there, or None."""
    for path in sorted(folder.glob("step_*"), reverse=True):
        complete = read_json(path / "complete.json")
        if complete is not None and all(
            (path / name).exists() and (path / name).stat().st_size == size
            for name, size in complete["files"].items()
        ):
            return path
    return None


def load(
    path: Path, rank: int, map_location: torch.device | str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the shared state and this rank's own part.

    Raises
    ------
    StoreError
        If the checkpoint was written by fewer ranks.
    """
    own = path / f"rank_{rank}.pt"
    if not own.exists():
        ranks = len(list(path.glob("rank_*.pt")))
        message = f"{path} was written by {ranks} ranks; resume with gpus={ranks}."
        raise StoreError(message)
    state = torch.load(path / "state.pt", map_location=map_location, weights_only=True)
    return state, torch.load(own, map_location="cpu", weights_only=True)


def random_state() -> dict[str, Any]:
    """Return the state of this rank's random generators."""
    version, words, gauss = random.getstate()
    return {
        "python": [version, list(words), gauss],
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
    }


def restore_random_state(state: dict[str, Any]) -> None:
    """Put this rank's random generators where `random_state` found them."""
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


def _write(path: Path, state: dict[str, Any]) -> None:
    """Write to a temporary file, force it to the disk, give it its name."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except (OSError, RuntimeError) as error:
        temporary.unlink(missing_ok=True)
        # torch reports a full disk as a RuntimeError of its zip writer.
        if isinstance(error, RuntimeError):
            raise OSError(28, f"No space left on device ({error})") from error
        raise
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _prune(folder: Path, newest: Path, kept: int) -> None:
    """Remove complete checkpoints beyond ``kept`` and incomplete older ones."""
    older = sorted((p for p in folder.glob("step_*") if p < newest), reverse=True)
    complete = [path for path in older if (path / "complete.json").exists()]
    keep = set(complete[: kept - 1])
    for path in older:
        if path not in keep:
            shutil.rmtree(path)
