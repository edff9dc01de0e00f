"""Process that renders a report's page, to keep plotting out of the server.

``python -P -m nbkit.server.report_process STUDY`` writes the page to standard output,
or why there is none to standard error.
"""

from __future__ import annotations

import sys

from nbkit.errors import NbkitError
from nbkit.questions.study_report import make
from nbkit.server.child import REFUSED
from nbkit.studies.study import Study


def main(study_id: str) -> int:
    """Write the page of a study; return the exit code."""
    try:
        page = make(Study.open(study_id)).to_html()
    except NbkitError as error:
        sys.stderr.buffer.write(str(error).encode("utf-8", "backslashreplace"))
        return REFUSED
    sys.stdout.buffer.write(page.encode("utf-8", "backslashreplace"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
