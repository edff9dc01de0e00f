"""What a study says of its runs so far if it is stopped in the middle."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from nbkit.errors import RunStoppedError
from nbkit.studies.kinds import headline_so_far
from nbkit.studies.starts import resume_hint
from nbkit.studies.stored_study import StoredStudy
from nbkit.visible import visible


@contextmanager
def headline_if_stopped(study: StoredStudy, *, shown: bool) -> Iterator[None]:
    """Print the headline of what has finished if a user stops the study meanwhile.

    A notebook ends there: its cells that show results do not come any more.
    """
    try:
        yield
    except (KeyboardInterrupt, RunStoppedError):
        # What is raised says how to continue, too, but papermill shows no notes of it.
        with suppress(Exception):
            if shown and (headline := headline_so_far(study)):
                text = f"{headline}\n{resume_hint(study.study_id)}"
                sys.stdout.write(f"\n{visible(text, lines=True)}\n")
                sys.stdout.flush()
        raise
