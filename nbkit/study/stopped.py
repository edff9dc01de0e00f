"""What a study says of its runs so far if it is stopped in the middle."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from nbkit.errors import NbkitError, RunStoppedError
from nbkit.study.lead import so_far
from nbkit.study.report import Report
from nbkit.study.stored_study import StoredStudy
from nbkit.visible import visible

__all__ = ["headline_if_stopped"]

_REPORTS = "nbkit.study.report_study"
"""It opens studies, and studies come here: neither can import the other."""


@contextmanager
def headline_if_stopped(study: StoredStudy, *, shown: bool) -> Iterator[None]:
    """Print the headline of what has finished if a user stops the study meanwhile.

    A notebook ends there: its cells that show results do not come any more.
    """
    try:
        yield
    except (KeyboardInterrupt, RunStoppedError):
        # What is raised says how to continue, and matters more than a fault here.
        with suppress(Exception):
            if shown and (said := _headline(study)):
                sys.stdout.write(f"\n{visible(said, lines=True)}\n")
                sys.stdout.flush()
        raise


def _headline(study: StoredStudy) -> str:
    try:
        made: Report = importlib.import_module(_REPORTS).make(study)
    except NbkitError:
        return so_far(study)  # nothing can be compared yet
    tables = [] if made.has_no_answer else made.tables[:1]
    return "\n\n".join([made.answer, *(one.to_text() for one in tables)])
