"""`python -m nbkit.worker RUN_DIR`: one rank, started by a supervisor or torchrun."""

from __future__ import annotations

import faulthandler
import os
import sys
from pathlib import Path

from nbkit.config import ExperimentConfig
from nbkit.config.determinism import DETERMINISTIC_VARIABLES
from nbkit.reading import read_file
from nbkit.worker.binding import bind
from nbkit.worker.ending import Ending, print_redacted
from nbkit.worker.rank import Rank, keep_to_cpus


def main() -> None:
    """Run this rank; a failure leaves torchelastic's error file.

    A function or script ends as Python ends (see `nbkit.worker.ending`); nbkit's own
    tasks have nothing to end, and leave.
    """
    sys.excepthook = print_redacted
    faulthandler.enable()
    ending = Ending()
    rank = Rank.enter(Path(sys.argv[1]))
    is_users = False
    try:
        config = ExperimentConfig.from_json(read_file(rank.paths.config))
        if config.deterministic:
            for name, value in DETERMINISTIC_VARIABLES.items():
                os.environ.setdefault(name, value)
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


def _run(rank: Rank, config: ExperimentConfig, ending: Ending) -> None:
    if config.task == "allreduce":
        from nbkit.worker.allreduce import measure_allreduce

        measure_allreduce(rank, config)
    elif config.task == "load":
        from nbkit.worker.load import load

        load(rank, config)
    elif config.task == "inference":
        from nbkit.worker.inference import infer

        infer(rank, config)
    elif config.has_entry:
        from nbkit.worker.function import run_entry

        run_entry(rank, config, ending)
    else:
        from nbkit.worker.train import train

        train(rank, config)


if __name__ == "__main__":
    main()
