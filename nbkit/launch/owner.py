"""`python -m nbkit.launch.owner RUN_DIR`: stops a job when who launched it is gone.

The supervisor of a job is on another node, or does not exist yet: neither can see the
kernel that the run was to end with. This process can, and ends with the run.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path

from nbkit.errors import NbkitError
from nbkit.launch.run import Run
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import RunState, read_json

__all__ = ["watch"]

_LOOK_SECONDS = 2.0
_ASK_SECONDS = 20.0
"""Between two questions to Slurm, which alone knows of jobs that end in the queue."""


def watch(run: Run) -> None:
    """Return once the run has ended or was told to, or its owner has ended."""
    submission = run.submission
    owner = ProcessIdentity.from_dict(submission["owner"])
    asked_at = time.monotonic()
    while owner.is_alive():
        time.sleep(_LOOK_SECONDS)
        goes_on = run.submission.get("attempt") != submission["attempt"]
        if goes_on or read_json(run.paths.stop) is not None:
            return  # somebody else's business now
        record = run.record
        if record.get("attempt") == submission["attempt"]:
            if RunState(record["state"]).is_final:
                return
        elif time.monotonic() - asked_at >= _ASK_SECONDS:
            asked_at = time.monotonic()
            with suppress(NbkitError):  # Slurm may be silent for a while
                if run.state.is_final:
                    return
    run.stop(by="owner exit", wait=False)


if __name__ == "__main__":
    watch(Run(Path(sys.argv[1])))
