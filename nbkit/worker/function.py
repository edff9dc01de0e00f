"""One rank of a function or a script that somebody launched."""

from __future__ import annotations

import datetime
import linecache
import os
import pickle
import runpy
import sys
import threading
from pathlib import Path
from typing import Any

from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]

from nbkit.config import ExperimentConfig
from nbkit.errors import RunError, StoreError
from nbkit.store.heartbeat import Phase
from nbkit.store.metrics import store_error
from nbkit.store.record import read_json
from nbkit.worker import context
from nbkit.worker.distributed import choose_device, rendezvous
from nbkit.worker.facts import write_facts
from nbkit.worker.rank import Rank

__all__ = ["run_entry"]


def run_entry(rank: Rank, config: ExperimentConfig) -> None:
    """Do what ``code/entry.json`` says; what a function returns is kept.

    The code finds torchrun's environment, so that ``init_process_group()`` works as
    under torchrun; no process group is made for it.

    Raises
    ------
    RunError
        If what the function returned cannot be kept.
    StoreError
        If the entry cannot be read.
    """
    entry = read_json(rank.paths.entry)
    if entry is None:
        message = f"{rank.paths.entry} is missing: the run's folder is not whole."
        raise StoreError(message)
    os.environ.update(entry["environment"])
    sys.path += [folder for folder in entry["sys_path"] if folder not in sys.path]
    _show_sources(rank, entry)
    device = choose_device(rank, config)
    timeout = datetime.timedelta(seconds=config.collective_timeout_seconds)
    store = rendezvous(rank, timeout)
    # From here on `env://` is a client of the store above, as under torchrun, instead
    # of binding a port that is bound already.
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    here = context.enter(rank, config, device)
    write_facts(rank, config, device, None, None, None, completed=False)
    rank.end_at_requests_to_stop()
    if entry["kind"] == "script":
        _run_script(entry)
    else:
        _keep(_call(rank), rank, entry["name"])
    here.close()
    # A function that was asked to stop, and that knows how to, has come to its end.
    write_facts(
        rank, config, device, None, None, None, completed=not rank.stop_requested
    )
    rank.beat(0, Phase.DONE)
    _end_of_user_code()
    _wait_for_all(store, rank)


def _show_sources(rank: Rank, entry: dict[str, Any]) -> None:
    """Let tracebacks show lines of cells, which are in no file."""
    for name, source in entry["sources"].items():
        if not Path(name).exists():
            text = (rank.paths.source / source["file"]).read_text(encoding="utf-8")
            lines = text.splitlines(keepends=True)
            linecache.cache[name] = (len(text), None, lines, name)


def _run_script(entry: dict[str, Any]) -> None:
    path = entry["path"]
    sys.argv = [path, *entry["argv"]]
    sys.path.insert(0, str(Path(path).parent))
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as error:
        if error.code not in (None, 0):
            raise


def _call(rank: Rank) -> Any:
    with rank.paths.entry_pickle.open("rb") as file:
        function, args, kwargs = pickle.load(file)
    return function(*args, **kwargs)


def _keep(value: Any, rank: Rank, name: str) -> None:
    """Write what a function returned, all or nothing."""
    import cloudpickle

    try:
        pickled = cloudpickle.dumps(value)
    except Exception as error:
        message = (
            f"{name}() returned a {type(value).__name__}, which cannot be sent back "
            f"({error}); return numbers, text, or tensors on the CPU."
        )
        raise RunError(message) from error
    path = rank.paths.rank(rank.attempt, rank.rank).returned
    temporary = path.with_suffix(".tmp")
    try:
        temporary.write_bytes(pickled)
        temporary.replace(path)
    except OSError as error:
        raise store_error(path, error) from error


def _end_of_user_code() -> None:
    """Do what the interpreter does at its end; the process itself ends at once."""
    import atexit

    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    # What closes files and waits for children; there is no public name for it.
    atexit._run_exitfuncs()


def _wait_for_all(store: TCPStore, rank: Rank) -> None:
    """Keep the store open until everybody has left: rank 0's process holds it.

    A rank that fails meanwhile ends all of them by the supervisor.
    """
    left = store.add("nbkit/left", 1)
    pause = threading.Event()
    while rank.rank == 0 and left < rank.world_size:
        pause.wait(0.02)
        left = store.add("nbkit/left", 0)
