"""`python -m nbkit.launch.owner RUN_DIR`: end of a job with the process that owns it.

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
from nbkit.store.job_state import may_go_on
from nbkit.store.jobs import find_job
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import DAMAGE_ERRORS, RunState, read_json, unix_seconds

_LOOK_SECONDS = 2.0
_ASK_SECONDS = 60.0


def watch(run: Run, ask_seconds: float = _ASK_SECONDS) -> None:
    """Return once the run has ended or was asked to, or its owner has ended.

    Every `ask_seconds` Slurm is asked, which alone knows of jobs that end in the queue
    and of those that it starts again.
    """
    submission = run.submission
    owner = ProcessIdentity.from_dict(submission["owner"])
    asked_at = time.monotonic()
    # What cannot be known keeps the run, as everywhere.
    while owner.is_alive() is not False:
        time.sleep(_LOOK_SECONDS)
        # A file server, or Slurm, may be silent for a while.
        with suppress(NbkitError, *DAMAGE_ERRORS):
            if _is_over(run, submission["attempt"]):
                return
            if time.monotonic() - asked_at >= ask_seconds:
                asked_at = time.monotonic()
                job, time_text = submission["job"], submission["time"]
                cluster, submitted_at = job.get("cluster"), unix_seconds(time_text)
                word = find_job(str(job["id"]), cluster, ask_seconds, submitted_at)
                if word is not None and word.has_ended:
                    return
    while True:
        with suppress(NbkitError, *DAMAGE_ERRORS):
            run.stop(by="owner exit", wait=False)
            return
        time.sleep(_ASK_SECONDS)


def _is_over(run: Run, attempt: int) -> bool:
    """Return whether the attempt has ended, or another process takes care of it."""
    request = read_json(run.paths.stop) or {}
    if run.submission.get("attempt") != attempt or request.get("attempt") == attempt:
        return True
    record = run.record
    # Slurm, or max_restarts, may have started it again as a later attempt.
    ended = record.get("attempt", -1) >= attempt and RunState(record["state"]).is_final
    return ended and not may_go_on(record)


if __name__ == "__main__":
    watch(Run(Path(sys.argv[1])))
