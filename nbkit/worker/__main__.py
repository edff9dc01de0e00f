"""`python -m nbkit.worker RUN_DIR`: one rank, started by a supervisor or torchrun."""

from __future__ import annotations

import faulthandler
import gc
import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from nbkit.clock import start_clock
from nbkit.config import ExperimentConfig
from nbkit.config.determinism import DETERMINISTIC_VARIABLES
from nbkit.reading import read_file, retry_io
from nbkit.worker.binding import bind
from nbkit.worker.ending import Ending, print_redacted
from nbkit.worker.rank import Rank, device_kind, keep_to_cpus

_LONGEST_TMPDIR = 107 - len("/pymp-12345678/listener-12345678")
"""sun_path of unix(7) holds 108 bytes, with its end."""


def main() -> None:
    """Run this rank; a failure leaves torchelastic's error file."""
    # A function or script ends as Python ends (see `nbkit.worker.ending`); nbkit's own
    # tasks have nothing to end, and leave.
    sys.excepthook = print_redacted
    faulthandler.enable()
    start_clock()  # torchrun on a host of its own has no supervisor there
    ending = Ending()
    rank = Rank.enter(Path(sys.argv[1]))
    is_users = False
    try:
        text = retry_io(lambda: read_file(rank.paths.config))
        config = ExperimentConfig.from_json(text)
        if config.deterministic:
            for name, value in DETERMINISTIC_VARIABLES.items():
                os.environ.setdefault(name, value)
        _keep_socket_paths_short()
        if config.cpus is not None:
            keep_to_cpus(config.cpus)
        # Before torch: its threads, and the memory that they touch, follow.
        rank.binding = bind(rank, config)
        is_users = config.has_entry
        _run(rank, config, ending)
    except BaseException as error:
        ending.note(error)
        if is_users:
            raise
        print_redacted(type(error), error, error.__traceback__)
    if not is_users:
        ending.leave()


def _keep_socket_paths_short() -> None:
    """Let multiprocessing have its sockets in /tmp if TMPDIR is too long for them."""
    # Else loading processes wait for ever for one that could not be bound.
    if len(os.fsencode(tempfile.gettempdir())) <= _LONGEST_TMPDIR:
        return
    from multiprocessing.util import get_temp_dir

    before, tempfile.tempdir = tempfile.tempdir, "/tmp"
    try:
        get_temp_dir()  # it is kept, and removed at exit
    finally:
        tempfile.tempdir = before


def _run(rank: Rank, config: ExperimentConfig, ending: Ending) -> None:
    # What is imported stays: to look through it for garbage, again and again, takes a
    # tenth of a rank's start.
    gc.disable()
    try:
        task = _task(rank, config, ending)
        gc.freeze()
    finally:
        gc.enable()
    task(rank, config)


def _task(
    rank: Rank, config: ExperimentConfig, ending: Ending
) -> Callable[[Rank, ExperimentConfig], None]:
    """Import what does the task, and torch; a lone rank's code imports its own."""
    if config.task == "allreduce":
        from nbkit.worker.allreduce import measure_allreduce

        return measure_allreduce
    if config.task == "load":
        from nbkit.worker.load import load

        return load
    if config.task == "inference":
        from nbkit.worker.inference import infer

        return infer
    if config.has_entry:
        from nbkit.worker.function import prepare_alone, run_entry

        if rank.world_size == 1 and device_kind(config) in ("cpu", "replay"):
            return partial(run_entry, ending=ending, prepare_rendezvous=prepare_alone)
        from nbkit.worker.process_group import prepare_rendezvous

        return partial(run_entry, ending=ending, prepare_rendezvous=prepare_rendezvous)
    from nbkit.worker.train import train

    return train


if __name__ == "__main__":
    main()
