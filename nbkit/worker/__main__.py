"""`python -m nbkit.worker RUN_DIR`: one rank, started by a supervisor or torchrun."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

from nbkit.config import ExperimentConfig
from nbkit.config.determinism import DETERMINISTIC_VARIABLES
from nbkit.reading import read_file
from nbkit.store.redaction import redacted
from nbkit.worker.binding import bind
from nbkit.worker.rank import Rank, keep_to_cpus


def main() -> None:
    """Run this rank and exit; a failure leaves torchelastic's error file."""
    rank = Rank.enter(Path(sys.argv[1]))
    try:
        config = ExperimentConfig.from_json(read_file(rank.paths.config))
        if config.deterministic:
            for name, value in DETERMINISTIC_VARIABLES.items():
                os.environ.setdefault(name, value)
        if config.cpus is not None:
            keep_to_cpus(config.cpus)
        # Before torch: its threads, and the memory that they touch, follow.
        rank.binding = bind(rank, config)
        from torch.distributed.elastic.multiprocessing.errors import record

        from nbkit.worker.last_words import LastWords

        record(_run, LastWords())(rank, config)
    except BaseException as error:  # noqa: BLE001 - the process ends here either way
        sys.stderr.write(redacted(traceback.format_exc()))
        code = error.code if isinstance(error, SystemExit) else 1
        _exit(code if isinstance(code, int) else 1)
    _exit(0)


def _run(rank: Rank, config: ExperimentConfig) -> None:
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

        run_entry(rank, config)
    else:
        from nbkit.worker.train import train

        train(rank, config)


def _exit(code: int) -> None:
    """Leave without waiting for threads of a communicator whose peers are gone."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
